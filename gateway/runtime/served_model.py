"""A model that requests can use."""

from __future__ import annotations

from msgspec import Struct

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
    ScoringEngine,
)
from gateway.runtime.admission import Admission
from gateway.runtime.embedding_only import generates
from gateway.tools.available import AvailableTools


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
    why: str = ""
    """Why this engine, renderer and format were chosen. For display."""

    @property
    def generates(self) -> bool:
        """Whether the model can generate."""
        return generates(self.engine)

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
