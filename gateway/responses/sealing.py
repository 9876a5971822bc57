"""Sealed reasoning and summaries: `encrypted_content`, which clients that store nothing carry from request to request.

Fernet (AES-128 in CBC mode with HMAC-SHA256) of the `cryptography` package. The first key seals, all keys open, so that
keys can be rotated; every replica with the same keys opens what another has sealed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, TypeAlias

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec import Struct

from gateway.errors import ConfigurationError, InvalidRequest
from gateway.wire.content import InputText, OutputText, ReasoningText
from gateway.wire.items import Compaction, Item, Message, Reasoning

logger = logging.getLogger("gateway.responses.sealing")


Replaces: TypeAlias = Literal["nothing", "context", "all"]
"""What of the items before it a compaction stands for: none, as `/v1/responses/compact` sends those on that stay; what a
response has compacted, but for messages that its client sends again beside it; or all, with those that it keeps inside."""

_SUMMARY = "Summary of the conversation before this point:\n\n"


class _Sealed(Struct, frozen=True, omit_defaults=True):
    """What is inside."""

    text: str
    owner: str | None = None
    replaces: Replaces = "nothing"
    kept: Sequence[Message] = ()
    """What stays as it was, after the summary; messages that are not the user's come before it."""


class Sealer:
    """Seals reasoning, and opens it again for its owner alone."""

    def __init__(self, keys: Sequence[str]) -> None:
        """`keys` are Fernet keys (32 bytes in URL-safe base64); raises `ConfigurationError` for anything else.

        Without keys, one is made for this process: what it seals is lost with it.
        """
        try:
            made = [Fernet(key) for key in keys]
        except ValueError as error:
            raise ConfigurationError(
                "server.reasoning_keys: each key is 32 bytes in URL-safe base64, as `gateway key --reasoning` makes them."
            ) from error
        if not made:
            made = [Fernet(Fernet.generate_key())]
        self._fernet = MultiFernet(made)

    def seal(
        self,
        text: str,
        owner: str | None,
        *,
        replaces: Replaces = "nothing",
        kept: Sequence[Message] = (),
    ) -> str:
        """`text` so that only `owner` can have it opened. A compaction says what it `replaces`, and has what it keeps."""
        inner = _Sealed(text, owner, replaces, kept)
        return self._fernet.encrypt(msgspec.json.encode(inner)).decode()

    def open(self, sealed: str, owner: str | None, param: str) -> str:
        """The text again; raises `InvalidRequest` for what is damaged, another's, or sealed with an unknown key."""
        return self.open_whole(sealed, owner, param).text

    def open_whole(self, sealed: str, owner: str | None, param: str) -> _Sealed:
        """As `open`, with all that was sealed."""
        try:
            inner = msgspec.json.decode(self._fernet.decrypt(sealed.encode()), type=_Sealed)
        except (InvalidToken, msgspec.MsgspecError):
            inner = None
        if inner is None or inner.owner != owner:
            raise InvalidRequest(
                "This encrypted_content cannot be opened: it was changed, or sealed for somebody else, or with a key "
                "that is no longer known. Leave the item out.",
                param=param,
                code="invalid_encrypted_content",
            )
        return inner


def open_items(
    sent: Sequence[Item], sealer: Sealer, owner: str | None, param: str = "input"
) -> list[Item]:
    """Items with their sealed reasoning opened; what came with its text is taken as it is."""
    opened: list[Item] = []
    for index, item in enumerate(sent):
        if isinstance(item, Reasoning) and item.encrypted_content and not item.content:
            text = sealer.open(item.encrypted_content, owner, f"{param}[{index}].encrypted_content")
            item = msgspec.structs.replace(item, content=[ReasoningText(text=text)])
        opened.append(item)
    return opened


def open_compactions(
    context: Sequence[Item], sealer: Sealer, owner: str | None, *, own: int = 0
) -> list[Item]:
    """A conversation as the model reads it: each compaction is what the model itself has written there.

    One that a response has made stands for what comes before it. `own` is where the request's own items begin: of these,
    messages may stay. Errors name an item by its place in `context`.
    """
    opened: list[Item] = []
    sent: list[Item] = []
    """Messages of the request's own that do not come from the model."""
    for index, item in enumerate(context):
        if not isinstance(item, Compaction):
            opened.append(item)
            if index >= own and isinstance(item, Message) and item.role != "assistant":
                sent.append(item)
        elif item.encrypted_content:  # else its response ended before the summary did
            param = f"input[{index}].encrypted_content"
            inner = sealer.open_whole(item.encrypted_content, owner, param)
            if inner.replaces != "nothing":
                sent = sent if inner.replaces == "context" else []
                opened = sent.copy()
            opened += compacted_context(inner.text, inner.replaces, inner.kept, item_id=item.id)
    return opened


def compacted_context(
    summary: str, replaces: Replaces, kept: Sequence[Message], *, item_id: str = ""
) -> list[Item]:
    """What the model reads in place of what was compacted."""
    text = _SUMMARY + summary
    if replaces == "nothing":
        return [Message(id=item_id, role="assistant", content=[OutputText(text=text)])]
    # Of the user: many prompt formats want a conversation to begin with one of theirs.
    told = Message(id=item_id, role="user", content=[InputText(text=text)])
    return [
        *(message for message in kept if message.role != "user"),
        told,
        *(message for message in kept if message.role == "user"),
    ]


def is_summary(message: Message) -> bool:
    """Whether a message is what the model reads of a compaction."""
    part = message.content[0] if message.content else None
    return isinstance(part, InputText) and part.text.startswith(_SUMMARY)
