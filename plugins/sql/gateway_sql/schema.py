"""The schema, as statements for each version. `{identity}` is the database's type of a growing primary key, and
`{bytes}` its type of binary data.

`responses`
    One row for each stored response, and for each removed one whose items others need (state `KEPT`, without an id).
    `meta` is the record without its items, `sent` and `made` are its input and output, `parent` is the row that it
    continues. `token` is that of the last write.
`items`
    The responses that contain an item; `called` is 1 if the response holds the result of that call.
`logs`, `events`
    The event log of a response, and what each append wrote: `upto` is the length of the log after it. Logs are removed
    with their response, not by their age, so events are in one table and are deleted by log.
`leases`, `cancels`
    Leases on responses, and requests to cancel.
`conversations`, `conversation_items`, `completions`
    Conversations, their items by position, and chat completions in the order in which they were stored.
`shared_values`, `value_owners`
    Shared values, and the number and bytes that each owner has.
`limits`, `limit_requests`
    What each principal has spent of its limits, and its running requests with what their admission returned.
`usage_counts`, `usage_hours`, `usage_minutes`, `usage_batches`
    What was used in each day, hour and minute, and the batches that were added. `names` is the API, the principal and the model as JSON,
    and `subject` is its key.
`parts`, `part_uses`
    Large parts of the values above, once for each owner, by hash (`gateway.sdk.stores.cut`), and the rows that name them: `kind`
    is one of `OF_RESPONSE`, `OF_CONVERSATION` and `OF_COMPLETION`, `holder` is the row, `item` the key of a conversation's item. The column
    `parts` of those rows is the number of their uses. A part without uses is removed.
"""

from __future__ import annotations

from typing import Final

RUNNING: Final = 0
FINISHED: Final = 1
KEPT: Final = 2

OF_RESPONSE: Final = 0
OF_CONVERSATION: Final = 1
OF_COMPLETION: Final = 2

VERSIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE responses (num {identity}, id TEXT UNIQUE, owner TEXT NOT NULL, state INTEGER NOT NULL,
        status TEXT NOT NULL, attempt INTEGER NOT NULL, streamed INTEGER NOT NULL, meta {bytes} NOT NULL,
        sent {bytes} NOT NULL, made {bytes} NOT NULL, results {bytes}, parent BIGINT, previous TEXT NOT NULL,
        broken INTEGER NOT NULL, size BIGINT NOT NULL, used DOUBLE PRECISION NOT NULL, token TEXT NOT NULL)""",
        "CREATE INDEX responses_parent ON responses (parent) WHERE parent IS NOT NULL",
        "CREATE INDEX responses_owner ON responses (owner, state, used, size)",
        "CREATE INDEX responses_used ON responses (state, used)",
        """CREATE TABLE items (owner TEXT NOT NULL, item TEXT NOT NULL, response BIGINT NOT NULL,
        called INTEGER NOT NULL, PRIMARY KEY (owner, item, response))""",
        "CREATE INDEX items_response ON items (response)",
        """CREATE TABLE logs (num {identity}, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, attempt INTEGER NOT NULL,
        is_open INTEGER NOT NULL, ended INTEGER NOT NULL, length BIGINT NOT NULL, bytes BIGINT NOT NULL,
        token TEXT NOT NULL)""",
        "CREATE INDEX logs_owner ON logs (owner, bytes)",
        """CREATE TABLE events (log BIGINT NOT NULL, upto BIGINT NOT NULL, data {bytes} NOT NULL,
        PRIMARY KEY (log, upto))""",
        "CREATE TABLE leases (id TEXT PRIMARY KEY, holder TEXT NOT NULL, until DOUBLE PRECISION NOT NULL)",
        "CREATE INDEX leases_until ON leases (until)",
        "CREATE TABLE cancels (num {identity}, id TEXT NOT NULL, at DOUBLE PRECISION NOT NULL)",
        """CREATE TABLE conversations (num {identity}, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
        data {bytes} NOT NULL, number BIGINT NOT NULL, bytes BIGINT NOT NULL, next BIGINT NOT NULL,
        size BIGINT NOT NULL, used DOUBLE PRECISION NOT NULL)""",
        "CREATE INDEX conversations_owner ON conversations (owner, used, size)",
        "CREATE INDEX conversations_used ON conversations (used)",
        """CREATE TABLE conversation_items (conversation BIGINT NOT NULL, position BIGINT NOT NULL, item TEXT NOT NULL,
        data {bytes} NOT NULL, PRIMARY KEY (conversation, position), UNIQUE (conversation, item))""",
        """CREATE TABLE completions (num {identity}, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, model TEXT NOT NULL,
        metadata {bytes} NOT NULL, data {bytes} NOT NULL, size BIGINT NOT NULL, used DOUBLE PRECISION NOT NULL)""",
        "CREATE INDEX completions_listed ON completions (owner, num)",
        "CREATE INDEX completions_owner ON completions (owner, used, size)",
        "CREATE INDEX completions_used ON completions (used)",
        """CREATE TABLE shared_values (owner TEXT NOT NULL, name TEXT NOT NULL, value {bytes} NOT NULL,
        until DOUBLE PRECISION NOT NULL, PRIMARY KEY (owner, name))""",
        "CREATE INDEX shared_values_until ON shared_values (until)",
        "CREATE TABLE value_owners (owner TEXT PRIMARY KEY, number BIGINT NOT NULL, bytes BIGINT NOT NULL)",
    ),
    (
        """CREATE TABLE limits (principal TEXT PRIMARY KEY, requests DOUBLE PRECISION NOT NULL,
        requests_at DOUBLE PRECISION NOT NULL, tokens DOUBLE PRECISION NOT NULL, tokens_at DOUBLE PRECISION NOT NULL,
        day BIGINT NOT NULL, day_tokens BIGINT NOT NULL, used DOUBLE PRECISION NOT NULL)""",
        "CREATE INDEX limits_used ON limits (used)",
        """CREATE TABLE limit_requests (principal TEXT NOT NULL, request TEXT NOT NULL, until DOUBLE PRECISION NOT NULL,
        requests DOUBLE PRECISION NOT NULL, tokens DOUBLE PRECISION NOT NULL, day BIGINT NOT NULL,
        PRIMARY KEY (principal, request))""",
        "CREATE INDEX limit_requests_until ON limit_requests (until)",
    ),
    (
        """CREATE TABLE usage_counts (day BIGINT NOT NULL, subject TEXT NOT NULL, names TEXT NOT NULL,
        requests BIGINT NOT NULL, input BIGINT NOT NULL, cached BIGINT NOT NULL, output BIGINT NOT NULL,
        reasoning BIGINT NOT NULL, PRIMARY KEY (day, subject))""",
        "CREATE TABLE usage_batches (batch TEXT PRIMARY KEY, at DOUBLE PRECISION NOT NULL)",
        "CREATE INDEX usage_batches_at ON usage_batches (at)",
    ),
    (
        """CREATE TABLE parts (num {identity}, owner TEXT NOT NULL, hash TEXT NOT NULL, size BIGINT NOT NULL,
        data {bytes} NOT NULL, UNIQUE (owner, hash))""",
        "CREATE INDEX parts_owner ON parts (owner, size)",
        """CREATE TABLE part_uses (kind INTEGER NOT NULL, holder BIGINT NOT NULL, item TEXT NOT NULL, part BIGINT NOT NULL,
        PRIMARY KEY (kind, holder, item, part))""",
        "CREATE INDEX part_uses_part ON part_uses (part)",
        "ALTER TABLE responses ADD COLUMN parts INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE conversations ADD COLUMN parts INTEGER NOT NULL DEFAULT 0",
        "ALTER TABLE completions ADD COLUMN parts INTEGER NOT NULL DEFAULT 0",
    ),
    (
        """CREATE TABLE usage_hours (hour BIGINT NOT NULL, subject TEXT NOT NULL, names TEXT NOT NULL,
        requests BIGINT NOT NULL, input BIGINT NOT NULL, cached BIGINT NOT NULL, output BIGINT NOT NULL,
        reasoning BIGINT NOT NULL, PRIMARY KEY (hour, subject))""",
        """CREATE TABLE usage_minutes (minute BIGINT NOT NULL, subject TEXT NOT NULL, names TEXT NOT NULL,
        requests BIGINT NOT NULL, input BIGINT NOT NULL, cached BIGINT NOT NULL, output BIGINT NOT NULL,
        reasoning BIGINT NOT NULL, PRIMARY KEY (minute, subject))""",
    ),
)
"""The statements that migrate each version of the schema to the next; the first ones create it."""
