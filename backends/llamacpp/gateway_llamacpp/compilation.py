"""Compiles the grammars of requests: small ones inline, others in a helper process with a deadline."""

from __future__ import annotations

from typing import Any

from gateway.sdk import Unsupported
from gateway.sdk.constraints import Constraint
from gateway.sdk.engines import Compiler, compiled, decoded, encoded, is_small
from gateway_llamacpp.ambiguity import check_ambiguity
from gateway_llamacpp.grammar import to_gbnf

MAX_BYTES = 4_000_000
"""Maximum size of a grammar's text, in bytes."""


class Grammars:
    """Compiles grammars for one model."""

    def __init__(self, vocabulary: int, *, seconds: float) -> None:
        """`vocabulary` is the number of the model's tokens, `seconds` the deadline of one compilation."""
        self._vocabulary = vocabulary
        self.compiler = Compiler(
            compile_constraint,
            seconds=seconds,
            preload=("gateway_llamacpp.compilation",),
        )

    async def of(self, constraint: Constraint, owner: str) -> str:
        """The grammar of `constraint`. Raises `InvalidRequest` if llama.cpp cannot enforce it, or not fast enough."""
        if is_small(constraint):
            return to_gbnf(constraint)
        grammar: str = await self.compiler(encoded(constraint), self._vocabulary, key=owner)
        return grammar

    async def close(self) -> None:
        await self.compiler.close()


def compile_constraint(constraint: bytes, vocabulary: int) -> Any:
    """The grammar of an `encoded` constraint. Runs in a helper process."""
    return compiled(lambda: _checked(decoded(constraint), vocabulary))


def _checked(constraint: Constraint, vocabulary: int) -> str:
    grammar = to_gbnf(constraint)
    if len(grammar) > MAX_BYTES:
        raise Unsupported(
            f"The grammar would have {len(grammar)} bytes, and llamacpp takes at most {MAX_BYTES}. Make it smaller.",
            param="schema",
        )
    check_ambiguity(grammar, vocabulary)
    return grammar
