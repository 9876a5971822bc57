"""Signatures of thinking blocks: opaque to clients, who send them back with the block."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Protocol


class Signer(Protocol):
    """Signs one block."""

    def add(self, text: str) -> None:
        """More of the block's thinking."""
        ...

    def signature(self) -> str: ...


class Digest:
    """Signs thinking that is shown: the text comes back with its signature, so a digest of it will do."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, text: str) -> None:
        self._hash.update(text.encode())

    def signature(self) -> str:
        return urlsafe_b64encode(self._hash.digest()).decode()


class Sealed:
    """Signs thinking that is not shown: the signature is the text, sealed."""

    def __init__(self, seal: Callable[[str], str]) -> None:
        self._seal = seal
        self._text: list[str] = []

    def add(self, text: str) -> None:
        self._text.append(text)

    def signature(self) -> str:
        return self._seal("".join(self._text))
