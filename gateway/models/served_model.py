"""A loaded model or adapter that requests can use."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from gateway.access.admission import Admission
from gateway.config import ModelConfig, SchemaLimits
from gateway.models.model_uses import generates
from gateway.plugins.protocols import (
    EmbeddingEngine,
    Engine,
    EngineRequest,
    LateRefusingEngine,
    MediaKind,
    ModelInfo,
    OutputFormat,
    PromptRenderer,
    PushingEngine,
    Sampling,
    ScoringEngine,
)
from gateway.tools.available import AvailableTools

SAMPLED: Final = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "seed", "min_tokens",
)  # fmt: skip
"""Sampling settings that may be set by a request, the configuration and the model's recommendation, in this order of
precedence."""
_sampled = attrgetter(*SAMPLED)


class ServedModel(Struct, frozen=True, kw_only=True, eq=False):
    """A loaded model or adapter: the name that requests use, and the objects that serve it."""

    name: str
    config: ModelConfig
    engine: Engine
    renderer: PromptRenderer
    output_format: OutputFormat
    admission: Admission
    info: ModelInfo
    created: int
    """Unix time at which the model was loaded."""
    adapter: str | None = None
    """Name of the LoRA adapter, if this is an adapter."""
    parent: str | None = None
    """Name of the adapter's model, if this is an adapter."""
    schema_limits: SchemaLimits = SchemaLimits()
    """Limits on the constraints in requests."""
    fingerprint: str | None = None
    """See `gateway.generation.fingerprint`."""
    media_kinds: frozenset[MediaKind] = frozenset()
    """The kinds of media that token prompts may contain: those that both the engine and the renderer support."""
    tools: AvailableTools = AvailableTools()
    """The gateway's tools that requests to the model may use."""
    late: LateRefusingEngine | None = None
    """The engine, if it may refuse a request only when it begins to generate; otherwise None."""
    cites: bool = False
    """Whether the output format may give citations; see `gateway.plugins.protocols.CitingFormat`."""
    joins_outputs: bool = False
    """Whether several engine outputs of an answer may be joined and parsed as one; see
    `gateway.plugins.protocols.JoiningFormat`."""
    pushing: PushingEngine | None = None
    """The engine, if it can push outputs as it receives them; otherwise None."""
    why: str = ""
    """Why this engine, renderer and output format were chosen. For display."""
    sampling: Sampling = Sampling()
    """The configured sampling settings, completed by the model's recommended ones. Computed from other attributes."""
    generates: bool = True
    """Whether the model can generate. Computed from other attributes."""

    def __post_init__(self) -> None:
        configured, recommended = self.config.sampling, self.info.sampling
        own: dict[str, Any] = {
            name: value if value is not None else getattr(recommended, name, None)
            for name, value in zip(SAMPLED, _sampled(configured), strict=True)
        }
        force_setattr(self, "sampling", Sampling(**own, max_tokens=configured.max_tokens))
        force_setattr(self, "generates", generates(self.engine))

    def may_refuse(self, request: EngineRequest | None) -> bool:
        """Whether the engine may refuse `request` although it has checked it. None: whether it may so refuse any
        request."""
        return self.late is not None and (request is None or self.late.may_refuse(request))

    @property
    def embedder(self) -> EmbeddingEngine | None:
        """The engine as an `EmbeddingEngine`; None if it does not embed."""
        if "embeddings" not in self.engine.capabilities:
            return None
        assert isinstance(self.engine, EmbeddingEngine), "the capability was checked at the start"
        return self.engine

    @property
    def scorer(self) -> ScoringEngine | None:
        """The engine as a `ScoringEngine`; None if it does not rerank."""
        if "rerank" not in self.engine.capabilities:
            return None
        assert isinstance(self.engine, ScoringEngine), "the capability was checked at the start"
        return self.engine
