"""Signatures of thinking blocks. They are opaque to clients, who return them with the block."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Protocol


class Signer(Protocol):
    """Signs one block."""

    def add(self, text: str) -> None:
        """Add a piece of the block's thinking."""
        ...

    def signature(self) -> str: ...


class DigestSigner:
    """Signs visible thinking: the text is returned with its signature, so a digest suffices."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, text: str) -> None:
        self._hash.update(text.encode())

    def signature(self) -> str:
        return urlsafe_b64encode(self._hash.digest()).decode()


class SealingSigner:
    """Signs hidden thinking: the signature is the encrypted text."""

    def __init__(self, seal: Callable[[str], str]) -> None:
        self._seal = seal
        self._text: list[str] = []

    def add(self, text: str) -> None:
        self._text.append(text)

    def signature(self) -> str:
        return self._seal("".join(self._text))
