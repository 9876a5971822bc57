"""Converts constraints to a server's request fields, in a helper process where that may take long."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gateway.sdk.caches import LruCache
from gateway.sdk.constraints import Constraint
from gateway.sdk.engines import Compiler, compiled, decoded, encoded, is_small
from gateway_remote.structure import (
    LlamaCppStructures,
    SglangStructures,
    Structures,
    TrtllmStructures,
    VllmStructures,
)

_REMEMBERED = 256
_REMEMBERED_BYTES = 64 << 20


class PreparedStructures:
    """A server's `Structures` with a cache of prepared constraints."""

    def __init__(self, dialect: str, settings: Mapping[str, Any], *, seconds: float) -> None:
        """`settings` are plain values that can be sent to a process; see `structures_of`."""
        self._dialect = dialect
        self._settings = dict(settings)
        self._structures = structures_of(dialect, settings)
        self._prepared = LruCache[bytes, dict[str, Any]](_REMEMBERED, max_size=_REMEMBERED_BYTES)
        self.compiler = Compiler(fields_of, seconds=seconds, preload=("gateway_remote.compiling",))

    async def prepare(self, constraint: Constraint, owner: str) -> None:
        """Compute the fields of this constraint. Raises `InvalidRequest` if it cannot be enforced or takes too long."""
        if is_small(constraint):
            return
        data = encoded(constraint)
        key = hashlib.sha256(data).digest()
        # Asked even if it is prepared: the time must not tell an owner which schemas others have sent.
        made = await self.compiler(data, self._dialect, self._settings, key=owner)
        self._prepared.put(key, made, len(data))

    def fields(self, constraint: Constraint) -> dict[str, Any]:
        """See `Structures`."""
        if not is_small(constraint):
            found = self._prepared.get(hashlib.sha256(encoded(constraint)).digest())
            if found is not None:
                return found
        return self._structures.fields(constraint)


def structures_of(dialect: str, settings: Mapping[str, Any]) -> Structures:
    """The `Structures` of a dialect. `settings` has `special`, `ending` and `max_json_whitespace`."""
    if dialect == "llamacpp":
        return LlamaCppStructures()
    arguments = (
        settings["special"],
        frozenset(settings["ending"]),
        settings["max_json_whitespace"],
    )
    match dialect:
        case "sglang":
            return SglangStructures(*arguments)
        case "trtllm":
            return TrtllmStructures(*arguments)
        case _:
            return VllmStructures(*arguments)


def fields_of(constraint: bytes, dialect: str, settings: Mapping[str, Any]) -> Any:
    """The fields of an `encoded` constraint. Runs in a helper process."""

    def made() -> dict[str, Any]:
        fields = structures_of(dialect, settings).fields(decoded(constraint))
        if dialect == "llamacpp" and "grammar" in fields:
            _check(fields["grammar"], settings["vocabulary"])
        return fields

    return compiled(made)


def _check(grammar: str, vocabulary: int) -> None:
    """Raise for a grammar that would block the server's sampler."""
    try:
        from gateway_llamacpp.gbnf.ambiguity import check_ambiguity
    except ImportError:
        return
    check_ambiguity(grammar, vocabulary)
