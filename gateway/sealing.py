"""Sealed reasoning and summaries: `encrypted_content`, which clients that store nothing carry from request to request.

Fernet (AES-128 in CBC mode with HMAC-SHA256) of the `cryptography` package. The first key seals, all keys open, so that
keys can be rotated; every replica with the same keys opens what another has sealed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from msgspec import Struct

from gateway.errors import ConfigurationError, InvalidRequest
from gateway.wire.content import OutputText, ReasoningText
from gateway.wire.items import Compaction, Item, Message, Reasoning

logger = logging.getLogger("gateway.sealing")


class _Sealed(Struct, frozen=True):
    """What is inside."""

    text: str
    owner: str | None = None


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

    def seal(self, text: str, owner: str | None) -> str:
        """`text` so that only `owner` can have it opened."""
        return self._fernet.encrypt(msgspec.json.encode(_Sealed(text, owner))).decode()

    def open(self, sealed: str, owner: str | None, param: str) -> str:
        """The text again; raises `InvalidRequest` for what is damaged, another's, or sealed with an unknown key."""
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
        return inner.text


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


def open_compactions(context: Sequence[Item], sealer: Sealer, owner: str | None) -> list[Item]:
    """A conversation as the model reads it: each compaction is what the model itself has written there.

    Errors name an item by its place in `context`.
    """
    return [
        Message(
            id=item.id,
            role="assistant",
            content=[
                OutputText(
                    text="Summary of the conversation before this point:\n\n"
                    + sealer.open(
                        item.encrypted_content, owner, f"input[{index}].encrypted_content"
                    )
                )
            ],
        )
        if isinstance(item, Compaction)
        else item
        for index, item in enumerate(context)
    ]
