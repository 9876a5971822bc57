"""Translating constraint trees for an engine, with a cache."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from gateway.base.caches import LruCache
from gateway.base.constraints import Constraint
from gateway.engines.xgrammar import Enforcement, structured_outputs, unwanted_special_tokens

_REMEMBERED = 256
_REMEMBERED_BYTES = 64 << 20
"""Maximum total size of the cached constraints. A translation is about as large as its constraint."""


class Translation(Struct):
    """The translation of a constraint."""

    arguments: dict[str, Any] | None
    """Arguments of the engine's structured outputs; None if all outputs are allowed."""
    unwanted: list[int]
    """Ids of special tokens to exclude, because the engine's constraint would treat them as ordinary text."""
    verified: bool = False
    """Whether a trial compilation or the engine has accepted it."""


class Translations:
    """Translates constraints for one engine. A translation takes about a millisecond, so recent ones are cached."""

    def __init__(self, by: Enforcement) -> None:
        self._by = by
        self._found = LruCache[bytes, Translation](_REMEMBERED, max_size=_REMEMBERED_BYTES)

    def knows(self, constraint: Constraint) -> bool:
        """Whether a translation is cached."""
        return _key(constraint)[0] in self._found

    def put(self, constraint: Constraint, translated: Translation) -> None:
        """Cache a translation that was made elsewhere."""
        key, size = _key(constraint)
        self._found.put(key, translated, size)

    def of(self, constraint: Constraint) -> Translation:
        """The translation of a constraint. Raises `Unsupported` if the constraint cannot be enforced, and errors of the
        functions of `Enforcement`."""
        key, size = _key(constraint)
        translated = self._found.get(key)
        if translated is None:
            translated = Translation(
                arguments=structured_outputs(constraint, self._by),
                unwanted=unwanted_special_tokens(constraint, self._by),
            )
            self._found.put(key, translated, size)
        return translated


def _key(constraint: Constraint) -> tuple[bytes, int]:
    """A hash of the constraint, and its size."""
    data = msgspec.json.encode(constraint)
    return hashlib.sha256(data).digest(), len(data)
