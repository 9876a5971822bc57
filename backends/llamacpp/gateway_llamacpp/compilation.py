"""Compiles the grammars of requests: small ones inline, others in a helper process with a deadline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.sdk import Unsupported
from gateway.sdk.constraints import Constraint, JsonObject, JsonSchema
from gateway.sdk.engines import Compiler, compiled, decoded, encoded, is_small
from gateway_llamacpp.gbnf.ambiguity import check_ambiguity
from gateway_llamacpp.gbnf.constraints import to_gbnf
from gateway_llamacpp.gbnf.json_text import Bounds
from gateway_llamacpp.vocabulary import Vocabulary

_END_BIAS: Final = 5.0
"""The logit that ends of strings gain in bounded JSON. The tiny model is sure of what it knows by more, and of what it does not by less."""
MAX_BYTES = 4_000_000
"""Maximum size of a grammar's text, in bytes."""


class Grammars:
    """Compiles grammars for one model."""

    def __init__(self, vocabulary: Vocabulary, *, seconds: float, bounded: bool = False) -> None:
        """`seconds` is the deadline of one compilation. With `bounded`, JSON comes to an end where a constraint sets no limit."""
        self._vocabulary = len(vocabulary)
        self._bounded = bounded
        self._ends = (
            {
                token: _END_BIAS
                for token in range(len(vocabulary))
                if vocabulary.token_bytes(token).startswith(b'"')
            }
            if bounded
            else {}
        )
        self.compiler = Compiler(
            compile_constraint,
            seconds=seconds,
            preload=("gateway_llamacpp.compilation",),
        )

    async def of(self, constraint: Constraint, owner: str) -> str:
        """The grammar of `constraint`. Raises `InvalidRequest` if llama.cpp cannot enforce it, or not fast enough."""
        if is_small(constraint):
            return to_gbnf(constraint, _bounds(self._bounded))
        grammar: str = await self.compiler(
            encoded(constraint), self._vocabulary, self._bounded, key=owner
        )
        return grammar

    def bias(self, constraint: Constraint) -> Mapping[int, float]:
        """What to add to the logits of tokens, so that a model that is in doubt within a string of JSON ends it."""
        return self._ends if isinstance(constraint, JsonSchema | JsonObject) else {}

    async def close(self) -> None:
        await self.compiler.close()


def compile_constraint(constraint: bytes, vocabulary: int, bounded: bool = False) -> Any:
    """The grammar of an `encoded` constraint. Runs in a helper process."""
    return compiled(lambda: _checked(decoded(constraint), vocabulary, _bounds(bounded)))


def _checked(constraint: Constraint, vocabulary: int, bounds: Bounds | None) -> str:
    grammar = to_gbnf(constraint, bounds)
    if len(grammar) > MAX_BYTES:
        raise Unsupported(
            f"The grammar would have {len(grammar)} bytes, and llamacpp takes at most {MAX_BYTES}. Make it smaller.",
            param="schema",
        )
    check_ambiguity(grammar, vocabulary)
    return grammar


def _bounds(bounded: bool) -> Bounds | None:
    return Bounds() if bounded else None
