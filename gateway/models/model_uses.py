"""The uses of models (generating, embedding, reranking), and placeholders for models that do not generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from gateway.base.constraints import Constraint
from gateway.base.errors import ConfigurationError, Unsupported
from gateway.plugins.protocols import (
    EmbeddingEngine,
    Engine,
    OutputParser,
    ParserContext,
    Piece,
    RenderedPrompt,
    ScoringEngine,
    Tail,
    Turn,
)


def generates(engine: Engine) -> bool:
    """Whether the engine's model can generate."""
    return bool(engine.capabilities & {"tokens", "messages"})


def check_engine(engine: Engine, name: str, where: str) -> None:
    """Raise `ConfigurationError` if an engine has no use, or lacks the methods of its capabilities.

    `name` is the name under which the engine is registered; `where` is the configuration key, for the message.
    """
    claimed = engine.capabilities
    if "embeddings" in claimed and not isinstance(engine, EmbeddingEngine):
        raise ConfigurationError(
            f"{where}: the engine {name!r} claims embeddings, but is not an EmbeddingEngine: a mistake of its plugin."
        )
    if "rerank" in claimed and not isinstance(engine, ScoringEngine):
        raise ConfigurationError(
            f"{where}: the engine {name!r} claims rerank, but is not a ScoringEngine: a mistake of its plugin."
        )
    if not claimed & {"embeddings", "rerank"} and not generates(engine):
        raise ConfigurationError(
            f"{where}: the engine {name!r} neither generates nor embeds nor reranks with this model."
        )


def uses_of(engine: Engine) -> str:
    """The uses of an engine that does not generate, for messages: `embeds`, `reranks` or both."""
    verbs = {"embeddings": "embeds", "rerank": "reranks"}
    return " and ".join(verb for name, verb in verbs.items() if name in engine.capabilities)


def paths_of(engine: Engine) -> str:
    """The API paths of an engine that does not generate, for messages."""
    paths = {"embeddings": "/v1/embeddings", "rerank": "/v1/rerank"}
    return " or ".join(path for name, path in paths.items() if name in engine.capabilities)


class NoRenderer:
    """The placeholder `PromptRenderer` of models that do not generate. Raises `Unsupported` if it is called."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def render(self, turn: Turn) -> RenderedPrompt:
        _refuse(self._engine)


class NoFormat:
    """The placeholder `OutputFormat` of models that do not generate. Raises `Unsupported` if it is called."""

    name = "none"
    keeps_special_tokens = False

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def parser(self, context: ParserContext) -> OutputParser:
        _refuse(self._engine)

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        _refuse(self._engine)

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        _refuse(self._engine)


def _refuse(engine: Engine) -> NoReturn:
    raise Unsupported(f"This model only {uses_of(engine)}. Use {paths_of(engine)}.", param="model")
