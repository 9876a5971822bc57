"""Encryption of reasoning and summaries (`encrypted_content`), which clients that store nothing carry between requests.

Uses Fernet (AES-128 in CBC mode with HMAC-SHA256) of the `cryptography` package. The first key encrypts and all keys
decrypt, so that keys can be rotated. Replicas with the same keys can read each other's content.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec import Struct

from gateway.errors import ConfigurationError, InvalidRequest, ParamPath
from gateway.protocols import SharedValues
from gateway.wire.content import InputText, OutputText, ReasoningText
from gateway.wire.items import Compaction, Item, Message, Reasoning

logger = logging.getLogger("gateway.runtime.sealing")


Replaces: TypeAlias = Literal["nothing", "context", "all"]
"""Which preceding items a compaction replaces. "nothing": `/v1/responses/compact` returns the remaining items as well.
"context": compacted within a response; messages that the client sends again remain. "all": everything, including the
messages that are kept inside."""

_KEY: Final = "reasoning_key"
_KEY_SECONDS: Final = 10 * 365 * 86_400.0
_SUMMARY = "Summary of the conversation before this point:\n\n"


class SealReasoning(Protocol):
    """Encrypts the text of a reasoning item, and what its engine encrypted, for the client."""

    def __call__(self, text: str, *, encrypted: str | None) -> str: ...


class _Sealed(Struct, frozen=True, omit_defaults=True):
    """The encrypted payload."""

    text: str
    owner: str | None = None
    model: str | None = None
    """The model that wrote it; None if unknown."""
    replaces: Replaces = "nothing"
    encrypted: str | None = None
    """What the engine of reasoning encrypted itself."""
    kept: Sequence[Message] = ()
    """Messages kept unchanged after the summary. Those that are not the user's come before it."""


_decode = msgspec.json.Decoder(_Sealed).decode


class Sealer:
    """Encrypts reasoning and summaries, and decrypts them for their owner only, until they expire."""

    def __init__(self, keys: Sequence[str], *, lifetime: float = 0.0) -> None:
        """`keys` are Fernet keys (32 bytes in URL-safe base64). Raises `ConfigurationError` for anything else.

        Without keys, a key is generated for this process, and its content is unreadable afterwards. `lifetime` is in
        seconds; 0 means no expiry.
        """
        self._lifetime = lifetime
        try:
            made = [Fernet(key) for key in keys]
        except ValueError as error:
            raise ConfigurationError(
                "server.reasoning_keys: each key is 32 bytes in URL-safe base64, as `gateway key --reasoning` makes them."
            ) from error
        if any(len(set(base64.urlsafe_b64decode(key))) == 1 for key in keys):
            raise ConfigurationError(
                "server.reasoning_keys: a key of equal bytes is the placeholder of an example, which everybody knows. "
                "`gateway key --reasoning` makes one."
            )
        if not made:
            made = [Fernet(Fernet.generate_key())]
        self._fernet = MultiFernet(made)

    @classmethod
    async def create(
        cls, keys: Sequence[str], values: SharedValues | None, *, lifetime: float
    ) -> Sealer:
        """Create with the configured keys or, if there are none, with one that all processes sharing `values` agree on, and their
        successors. If there are no values either, with a key of this process."""
        if keys or values is None:
            return cls(keys, lifetime=lifetime)
        fresh = Fernet.generate_key()
        key = await values.compare_and_set(_KEY, fresh, expected=None, seconds=_KEY_SECONDS)
        return cls([(key or fresh).decode()], lifetime=lifetime)

    def seal(
        self,
        text: str,
        owner: str | None,
        *,
        model: str | None,
        replaces: Replaces = "nothing",
        kept: Sequence[Message] = (),
        encrypted: str | None = None,
    ) -> str:
        """Encrypt `text` for `owner` and `model` (None: any model; the author is unknown).

        `encrypted` is what the engine of reasoning encrypted itself. A compaction also states what it `replaces` and carries the messages that it keeps.
        """
        inner = _Sealed(text, owner, model, replaces, encrypted, kept)
        return self._fernet.encrypt(msgspec.json.encode(inner)).decode()

    def open(
        self, sealed: str, owner: str | None, param: str | ParamPath, *, model: str
    ) -> str | None:
        """Decrypt for `model`; None if another model wrote it. Raises `InvalidRequest` if the content is damaged or expired,
        belongs to another owner, or was encrypted with an unknown key."""
        inner = self.open_complete(sealed, owner, param)
        return inner.text if inner.model in (None, model) else None

    def open_complete(
        self, sealed: str, owner: str | None, param: str | ParamPath, *, stored: bool = False
    ) -> _Sealed:
        """Decrypt the whole payload, whichever model wrote it. What is `stored` here does not expire."""
        try:
            inner = _decode(self._fernet.decrypt(sealed.encode()))
        except (InvalidToken, msgspec.MsgspecError):
            inner = None
        if inner is None or inner.owner != owner:
            raise InvalidRequest(
                "This encrypted_content cannot be opened: it was changed, or sealed for somebody else, or with a key "
                "that is no longer known. Leave the item out.",
                param=param,
                code="invalid_encrypted_content",
            )
        if stored:
            return inner
        age = time.time() - self._fernet.extract_timestamp(sealed)
        if self._lifetime and age > self._lifetime:
            raise InvalidRequest(
                f"This encrypted_content is older than this server's limit of {self._lifetime:g} seconds. Leave the item out.",
                param=param,
                code="invalid_encrypted_content",
            )
        return inner


def open_items(
    sent: Sequence[Item],
    sealer: Sealer,
    owner: str | None,
    *,
    model: str,
) -> list[Item]:
    """Decrypt the reasoning of items for `model`. Reasoning that has its text, or that another model wrote, is left unchanged:
    the model then reads its summary, if it has one. A client cannot leave it out when it changes the model.
    """
    opened: list[Item] = []
    for index, item in enumerate(sent):
        if isinstance(item, Reasoning) and item.encrypted_content and not item.content:
            place = ("input", index, "encrypted_content")
            text = sealer.open(item.encrypted_content, owner, place, model=model)
            if text is not None:
                item = msgspec.structs.replace(item, content=[ReasoningText(text=text)])
        opened.append(item)
    return opened


def open_encrypted(
    context: Sequence[Item], sealer: Sealer, owner: str | None, *, model: str
) -> dict[str, str]:
    """By item id: what engines encrypted themselves in the reasoning of `context`. Content that cannot be opened for
    `owner` and `model` is left out."""
    found: dict[str, str] = {}
    for item in context:
        if not isinstance(item, Reasoning) or not item.encrypted_content:
            continue
        try:
            inner = sealer.open_complete(item.encrypted_content, owner, ())
        except InvalidRequest:
            continue  # what the model needs of it was opened, or refused, before
        if inner.encrypted is not None and inner.model in (None, model):
            found[item.id] = inner.encrypted
    return found


def open_compactions(
    context: Sequence[Item], sealer: Sealer, owner: str | None, *, own: int
) -> list[Item]:
    """The conversation as a model reads it, with each compaction replaced by its summary, whichever model wrote that.

    A compaction made by a response replaces what precedes it. `own` is the index of the request's first own item: among
    these, messages may remain, and compactions must not be expired. Errors name an item by its index in
    `context`.
    """
    opened: list[Item] = []
    sent: list[Item] = []
    """The request's own messages that do not come from the model."""
    for index, item in enumerate(context):
        if not isinstance(item, Compaction):
            opened.append(item)
            if index >= own and isinstance(item, Message) and item.role != "assistant":
                sent.append(item)
        elif item.encrypted_content:  # otherwise the response ended before the summary did
            param = ("input", index, "encrypted_content")
            inner = sealer.open_complete(item.encrypted_content, owner, param, stored=index < own)
            if inner.replaces != "nothing":
                sent = sent if inner.replaces == "context" else []
                opened = sent.copy()
            opened += compacted_context(inner.text, inner.replaces, inner.kept, item_id=item.id)
    return opened


def compacted_context(
    summary: str, replaces: Replaces, kept: Sequence[Message], *, item_id: str = ""
) -> list[Item]:
    """What the model reads in place of the compacted items."""
    text = _SUMMARY + summary
    if replaces == "nothing":
        return [Message(id=item_id, role="assistant", content=[OutputText(text=text)])]
    # A user message, since many prompt formats require a conversation to begin with one.
    user_message = Message(id=item_id, role="user", content=[InputText(text=text)])
    return [
        *(message for message in kept if message.role != "user"),
        user_message,
        *(message for message in kept if message.role == "user"),
    ]


def is_summary(message: Message) -> bool:
    """Whether a message is the text of a compaction's summary."""
    part = message.content[0] if message.content else None
    return isinstance(part, InputText) and part.text.startswith(_SUMMARY)
