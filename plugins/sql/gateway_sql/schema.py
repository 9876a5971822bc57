"""The schema, as statements for each version. `{identity}` stands for the database's type of an increasing primary key,
and `{bytes}` for its type of binary data.

`responses`
    One row for each stored response, and for each removed response whose items others need (state `KEPT`, without an
    id). `meta` is the record without its items, `sent` and `made` are its input and output, and `parent` is the row
    that it continues. `token` is the token of the last write.
`items`
    The responses that contain an item; `called` is 1 if the response holds the result of that call.
`logs`, `events`
    The event log of a response, and the events of each append: `upto` is the length of the log after it. A log is
    removed together with its response, not by age, so all events are in one table and are deleted by log.
`leases`, `cancels`
    Leases on responses, and requests to cancel.
`conversations`, `conversation_items`, `completions`
    Conversations, their items by position, and chat completions in the order in which they were stored.
`shared_values`, `value_owners`
    Shared values, and the number and total size of each owner's values.
`limits`, `limit_requests`
    The part of its limits that each principal has used, and its running requests with the results of their admission.
`usage_counts`, `usage_hours`, `usage_minutes`, `usage_batches`
    The usage in each day, hour and minute, and the ids of the batches that were added. `names` is the API, the
    principal and the model as JSON, and `subject` is the key of this text.
`parts`, `part_uses`
    Large parts of the values above, once for each owner, by hash (`gateway.sdk.stores.cut`), and the rows that use
    them: `kind` is one of `OF_RESPONSE`, `OF_CONVERSATION` and `OF_COMPLETION`, `holder` is the row, and `item` is the
    key of a conversation's item. The column `parts` of these rows is the number of parts that the row uses. Unused
    parts are removed.
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
"""The statements that migrate each version of the schema to the next. The first version's statements create it."""
