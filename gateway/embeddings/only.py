"""In place of a renderer and an output format, for models that only embed: they are never asked to generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from gateway.constraints import Constraint
from gateway.errors import ConfigurationError, Unsupported
from gateway.protocols import (
    EmbeddingEngine,
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


def check_engine(engine: Engine, name: str, where: str) -> None:
    """Raise `ConfigurationError` unless an engine, registered under `name`, does what its capabilities say, and anything."""
    if "embeddings" in engine.capabilities:
        if not isinstance(engine, EmbeddingEngine):
            raise ConfigurationError(
                f"{where}: the engine {name!r} says that it embeds, and is no EmbeddingEngine: a mistake of its plugin."
            )
    elif not generates(engine):
        raise ConfigurationError(
            f"{where}: the engine {name!r} neither generates nor embeds with this model."
        )


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
