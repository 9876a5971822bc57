"""A model that requests can use."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import force_setattr

from gateway.config import ModelConfig, SchemaLimits
from gateway.protocols import (
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
from gateway.runtime.admission import Admission
from gateway.runtime.model_uses import generates
from gateway.tools.available import AvailableTools

SAMPLED: Final = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "seed", "min_tokens",
)  # fmt: skip
"""The settings of sampling that a request, the configuration and the model's recommendation may give, in this order of precedence."""
_sampled = attrgetter(*SAMPLED)


class ServedModel(Struct, frozen=True, kw_only=True, eq=False):
    """One model name that requests can use, with everything that serves it."""

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
    """Name of the LoRA adapter, if this is one, of the model `parent`."""
    parent: str | None = None
    schema_limits: SchemaLimits = SchemaLimits()
    """Limits on the constraints in requests."""
    fingerprint: str | None = None
    """See `gateway.loop.fingerprint`."""
    media_kinds: frozenset[MediaKind] = frozenset()
    """The images and sounds that prompts of tokens may contain: what the engine takes and the renderer places."""
    tools: AvailableTools = AvailableTools()
    """The tools of the gateway that requests to the model may use."""
    late: LateRefusingEngine | None = None
    """The engine, if it may refuse requests only when it generates."""
    cites: bool = False
    """Whether the output format may give citations; see `gateway.protocols.CitingFormat`."""
    joins_outputs: bool = False
    """Whether the outputs of an answer may be parsed as one; see `gateway.protocols.JoiningFormat`."""
    pushing: PushingEngine | None = None
    """The engine, if it can hand over outputs as it receives them."""
    why: str = ""
    """Why this engine, renderer and format were chosen. For display."""
    sampling: Sampling = Sampling()
    """The configured settings, completed by the model's recommended ones. Computed, as `generates`."""
    generates: bool = True
    """Whether the model can generate."""

    def __post_init__(self) -> None:
        configured, recommended = self.config.sampling, self.info.sampling
        own: dict[str, Any] = {
            name: value if value is not None else getattr(recommended, name, None)
            for name, value in zip(SAMPLED, _sampled(configured), strict=True)
        }
        force_setattr(self, "sampling", Sampling(**own, max_tokens=configured.max_tokens))
        force_setattr(self, "generates", generates(self.engine))

    def may_refuse(self, request: EngineRequest | None) -> bool:
        """Whether the engine may still refuse `request`, which it has checked. None: whether it may refuse any."""
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
