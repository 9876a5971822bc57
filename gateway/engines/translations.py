"""Translating constraint trees for an engine, with a cache."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Any

import msgspec
from msgspec import Struct

from gateway.constraints import Constraint
from gateway.engines.xgrammar import Enforcement, structured_outputs, unwanted_special_tokens

_REMEMBERED = 256
_REMEMBERED_BYTES = 64 << 20
"""Maximum total size of the cached constraints. A translation is about as large as its constraint."""


class Translation(Struct):
    """The translation of a constraint."""

    arguments: dict[str, Any] | None
    """Arguments of the engine's own structured outputs. None: anything is allowed."""
    unwanted: list[int]
    """Special tokens to exclude, because the constraint treats them as the text that they are written with."""
    verified: bool = False
    """Whether the engine has accepted it."""


class Translations:
    """Translates constraints for one engine. A translation takes about a millisecond, so recent ones are cached."""

    def __init__(self, by: Enforcement) -> None:
        self._by = by
        self._found: OrderedDict[bytes, tuple[Translation, int]] = OrderedDict()
        self._size = 0

    def knows(self, constraint: Constraint) -> bool:
        """Whether a translation is cached."""
        return _key(constraint)[0] in self._found

    def put(self, constraint: Constraint, translated: Translation) -> None:
        """Cache a translation that was made elsewhere."""
        key, size = _key(constraint)
        if key in self._found:
            self._size -= self._found.pop(key)[1]
        self._found[key] = translated, size
        self._size += size
        while len(self._found) > 1 and (
            len(self._found) > _REMEMBERED or self._size > _REMEMBERED_BYTES
        ):
            _, (_, old) = self._found.popitem(last=False)
            self._size -= old

    def of(self, constraint: Constraint) -> Translation:
        """The translation of a constraint. Raises `Unsupported` if it cannot be enforced, and errors of the
        `Enforcement`'s functions."""
        key, _ = _key(constraint)
        if key in self._found:
            self._found.move_to_end(key)
            return self._found[key][0]
        translated = Translation(
            arguments=structured_outputs(constraint, self._by),
            unwanted=unwanted_special_tokens(constraint, self._by),
        )
        self.put(constraint, translated)
        return translated


def _key(constraint: Constraint) -> tuple[bytes, int]:
    """A hash of the constraint, and its size."""
    data = msgspec.json.encode(constraint)
    return hashlib.sha256(data).digest(), len(data)
