"""In place of a renderer and an output format, for models that only embed: they are never asked to generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from gateway.constraints import Constraint
from gateway.errors import Unsupported
from gateway.protocols import (
    Engine,
    OutputParser,
    ParserContext,
    Piece,
    RenderedPrompt,
    Tail,
    Turn,
)


def generates(engine: Engine) -> bool:
    """Whether the engine's model generates; one that does not, embeds."""
    return bool(engine.capabilities & {"tokens", "messages"})


class NoPrompts:
    """Satisfies `PromptRenderer`, and has no prompt."""

    def render(self, turn: Turn) -> RenderedPrompt:
        _refuse()


class NoOutput:
    """Satisfies `OutputFormat`, and has no output."""

    name = "none"
    keeps_special_tokens = False

    def parser(self, context: ParserContext) -> OutputParser:
        _refuse()

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        _refuse()

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        _refuse()


def _refuse() -> NoReturn:
    raise Unsupported("This model only embeds. Use /v1/embeddings.", param="model")
