"""Encryption of reasoning and summaries (`encrypted_content`), which clients send back if the server stores nothing.

Uses Fernet (AES-128 in CBC mode with HMAC-SHA256) of the `cryptography` package. The first key encrypts and all keys
decrypt, so that keys can be rotated. Replicas with the same keys can read each other's content. In this module, keys
are encryption keys, not API keys.
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

from gateway.base.errors import ConfigurationError, InvalidRequest, ParamPath
from gateway.plugins.protocols import SharedValues
from gateway.wire.content import InputText, OutputText, ReasoningText
from gateway.wire.items import Compaction, Item, Message, Reasoning

logger = logging.getLogger("gateway.access.sealing")


Replaces: TypeAlias = Literal["nothing", "context", "all"]
"""Which preceding items a compaction replaces.

"nothing": none; `/v1/responses/compact` returns the remaining items as well. "context": all items except messages
that the client sends again; for a compaction within a response. "all": all items; the messages to keep are inside the
compaction."""

_KEY: Final = "reasoning_key"
_KEY_SECONDS: Final = 10 * 365 * 86_400.0
_SUMMARY = "Summary of the conversation before this point:\n\n"


class SealReasoning(Protocol):
    """Encrypts the text of a reasoning item for the client, with the content that the engine itself encrypted, if
    any."""

    def __call__(self, text: str, *, encrypted: str | None) -> str: ...


class _Sealed(Struct, frozen=True, omit_defaults=True):
    """The encrypted payload."""

    text: str
    owner: str | None = None
    model: str | None = None
    """The model that wrote the text; None if unknown."""
    replaces: Replaces = "nothing"
    encrypted: str | None = None
    """Reasoning content that the engine itself encrypted."""
    kept: Sequence[Message] = ()
    """Messages kept unchanged by a compaction. The user's messages follow the summary, others precede it."""


_decode = msgspec.json.Decoder(_Sealed).decode


class Sealer:
    """Encrypts reasoning and summaries. Decrypts them only for their owner, and until they expire."""

    def __init__(self, keys: Sequence[str], *, lifetime: float = 0.0) -> None:
        """`keys` are Fernet keys (32 bytes in URL-safe base64). Raises `ConfigurationError` if one is invalid.

        Without keys, a key is generated; content encrypted with it is unreadable after the end of this process.
        `lifetime` is in seconds; 0: content does not expire.
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
        """Create a sealer with the configured keys.

        Without keys, use a key that is stored in `values`, so that all processes that share `values` use the same
        one, now and later. Without `values`, generate a key for this process.
        """
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
        """Encrypt `text` for `owner`. `model` is the model that wrote it; None if unknown: any model may read it.

        `encrypted` is reasoning content that the engine itself encrypted. For a compaction, `replaces` says which
        items it replaces, and `kept` are the messages that it keeps.
        """
        inner = _Sealed(text, owner, model, replaces, encrypted, kept)
        return self._fernet.encrypt(msgspec.json.encode(inner)).decode()

    def open(
        self, sealed: str, owner: str | None, param: str | ParamPath, *, model: str
    ) -> str | None:
        """Decrypt a text for `owner` and `model`; None if another model wrote it.

        Raises `InvalidRequest` for the parameter `param` if the content is damaged or expired, belongs to another
        owner, or was encrypted with an unknown key.
        """
        inner = self.open_complete(sealed, owner, param)
        return inner.text if inner.model in (None, model) else None

    def open_complete(
        self, sealed: str, owner: str | None, param: str | ParamPath, *, stored: bool = False
    ) -> _Sealed:
        """Decrypt the whole payload, whichever model wrote it. Raises like `open`. `stored`: whether the content was
        stored by this server; it then does not expire."""
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
    """Decrypt the reasoning in `sent` for `model`.

    Reasoning with readable text is left unchanged. So is reasoning of another model, because a client cannot know
    that it should leave it out when it changes the model; the model reads the summary instead, if there is one.
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
    """Return the reasoning content that engines themselves encrypted in `context`, by item id. Content that cannot be
    decrypted for `owner` and `model` is left out."""
    found: dict[str, str] = {}
    for item in context:
        if not isinstance(item, Reasoning) or not item.encrypted_content:
            continue
        try:
            inner = sealer.open_complete(item.encrypted_content, owner, ())
        except InvalidRequest:
            continue  # `open_items` has already opened or refused what the model needs
        if inner.encrypted is not None and inner.model in (None, model):
            found[item.id] = inner.encrypted
    return found


def open_compactions(
    context: Sequence[Item], sealer: Sealer, owner: str | None, *, own: int
) -> list[Item]:
    """Return the conversation for a model, with each compaction replaced by its summary, whichever model wrote it.

    A compaction made within a response also replaces the items before it. `own` is the index of the first item that the
    request itself contains; earlier items are stored. Messages of the request may remain (see `Replaces`), and its
    compactions may have expired, which is an error. Errors name an item by its index in `context`.
    """
    opened: list[Item] = []
    sent: list[Item] = []
    """The request's own messages, without those of the model."""
    for index, item in enumerate(context):
        if not isinstance(item, Compaction):
            opened.append(item)
            if index >= own and isinstance(item, Message) and item.role != "assistant":
                sent.append(item)
        elif item.encrypted_content:  # empty if the response ended before the summary did
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
    """The items that the model reads in place of the compacted items: the summary and the kept messages."""
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
