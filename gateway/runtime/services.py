"""The services of a running gateway: its models, store, tools, metrics and running responses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.config import Config, ModelConfig, SchemaLimits
from gateway.errors import (
    EngineUnavailable,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    ServerShuttingDown,
)
from gateway.media.file_reader import FileReader
from gateway.media.reader import MediaReader
from gateway.metrics import Metrics
from gateway.protocols import (
    Api,
    ConversationBounds,
    EmbeddingEngine,
    Engine,
    MediaKind,
    ModelInfo,
    OutputFormat,
    PromptRenderer,
    ResponseStore,
    ScoringEngine,
    StoredResponse,
)
from gateway.runtime.access import Authenticator
from gateway.runtime.admission import Admission
from gateway.runtime.callers import current_principal, names_model
from gateway.runtime.embedding_only import generates, only_at, only_does
from gateway.runtime.held_bytes import HeldBytes
from gateway.runtime.limiter import Limiter
from gateway.runtime.sealing import Sealer
from gateway.tools.approvals import Approvals
from gateway.tools.available import AvailableTools, permitted_to
from gateway.tools.omitted import OmittedTools


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
    why: str = ""
    """Why this engine, renderer and format were chosen. For display."""

    @property
    def generates(self) -> bool:
        """Whether the model can generate."""
        return generates(self.engine)

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


class NamedApi(Struct, frozen=True):
    """A further API that is open."""

    name: str
    """Its name in the configuration."""
    api: Api


class Run(Protocol):
    """A response in progress."""

    def stop(self, error: GatewayError) -> None:
        """End the response with `error`, which its terminal event reports."""
        ...


class Background(Protocol):
    """Runs responses independently of their clients; implemented by `gateway.responses.background.BackgroundRuns`."""

    async def start(self, run: Any) -> StoredResponse:
        """Store a prepared run as queued and start it. Returns the stored record."""
        ...

    def live(self, response_id: str) -> Any:
        """The live events of a response that this process runs; None if it does not run it."""
        ...

    async def cancel(self, record: StoredResponse) -> StoredResponse:
        """Cancel a response, whichever process runs it. Returns it in its terminal status."""
        ...


class RunSettings(Struct, frozen=True, kw_only=True):
    """Limits that apply to every run."""

    request_timeout: float = 3600.0
    """Time limit for one whole response, in seconds."""
    max_parallel_tool_calls: int = 16


class Services:
    """The gateway's state, passed to every request. One per process; created and closed by the app's lifespan."""

    def __init__(
        self,
        *,
        config: Config,
        models: Iterable[ServedModel],
        unopened: Sequence[str] = (),
        aliases: Mapping[str, str],
        store: ResponseStore | None,
        offered_tools: Mapping[str, AvailableTools],
        tool_tables: Mapping[str, AvailableTools] = {},
        metrics: Metrics,
        settings: RunSettings,
        hook: Any,
        background: Background | None,
        authenticator: Authenticator,
        sealer: Sealer,
        approvals: Approvals,
        apis: Sequence[NamedApi] = (),
        media: MediaReader | None = None,
        limiter: Limiter | None = None,
        documents: FileReader | None = None,
    ) -> None:
        """`hook` is the plugin manager's hook caller. `aliases` map further names to keys of `models`. `offered_tools`
        is keyed like `models`, `tool_tables` like `[tools.<name>]`. `limiter` counts requests of keys with limits; by
        default, in this process. `media` reads images and sounds; None if no model takes any. `documents` reads the
        files of requests; without it, the renderers refuse them."""
        self.config = config
        self.models = {model.name: model for model in models}
        self.unopened = unopened
        """Names of the configured models that could not be opened, and are not required."""
        self.aliases = aliases
        self.store = store
        self.offered_tools = offered_tools
        self.tool_tables = tool_tables
        self.limiter = Limiter(None) if limiter is None else limiter
        self.omitted_tools = OmittedTools(metrics)
        self.metrics = metrics
        self.settings = settings
        self.hook = hook
        self.background = background
        self.authenticator = authenticator
        self.sealer = sealer
        self.approvals = approvals
        self.apis = apis
        self.media = media
        self.documents = documents
        self.conversation_bounds = ConversationBounds(
            config.server.max_conversation_items, config.server.max_conversation_bytes
        )
        self.held_bytes = HeldBytes(
            per_connection=config.server.max_websocket_bytes,
            per_owner=config.server.max_owner_websocket_bytes,
        )
        self.runs: set[Run] = set()
        self.draining = False
        self.started = int(time.time())
        """Unix time."""

    def model(self, name: str | None) -> ServedModel:
        """The generating model that a request names; if it names none, the only one."""
        found = self._chosen(name, _generates)
        if not found.generates:
            others = ", ".join(self._names(_generates))
            raise InvalidRequest(
                f"The model '{found.name}' only {only_does(found.engine)}: use it with {only_at(found.engine)}."
                f" Models that generate: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found

    def embedding_model(self, name: str | None) -> tuple[ServedModel, EmbeddingEngine]:
        """The embedding model that a request names; if it names none, the only one."""
        found = self._chosen(name, _embeds)
        if found.embedder is None:
            others = ", ".join(self._names(_embeds))
            raise InvalidRequest(
                f"The model '{found.name}' does not embed. Models that do: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found, found.embedder

    def scoring_model(self, name: str | None) -> tuple[ServedModel, ScoringEngine]:
        """The reranking model that a request names; if it names none, the only one."""
        found = self._chosen(name, _scores)
        if found.scorer is None:
            others = ", ".join(self._names(_scores))
            raise InvalidRequest(
                f"The model '{found.name}' does not rerank. Models that do: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found, found.scorer

    def any_model(self, name: str | None) -> ServedModel:
        """The model of any kind that a request names; if it names none, the only one."""
        return self._chosen(name, _is_served)

    def tools_of(self, model: ServedModel) -> AvailableTools:
        """The tools that requests to `model` may use, by the current request's principal."""
        whole, principal = self.offered_tools[model.name], current_principal()
        if principal is None or principal.tools is None:
            return whole
        return permitted_to(principal, model.name, model.config, self.tool_tables, whole)

    def visible_models(self) -> list[ServedModel]:
        """The models that the current request's principal may use."""
        return [model for model in self.models.values() if self.may_use(model.name)]

    def may_use(self, name: str) -> bool:
        """Whether the current request's principal may use a model, by any of its names."""
        principal = current_principal()
        if principal is None or principal.models is None:
            return True
        own = self.aliases.get(name, name)
        others = [alias for alias, target in self.aliases.items() if target == own]
        return names_model(principal, own, *others)

    def _names(self, fits: Callable[[ServedModel], bool]) -> list[str]:
        return [model.name for model in self.visible_models() if fits(model)]

    def _chosen(self, name: str | None, fits: Callable[[ServedModel], bool]) -> ServedModel:
        """The model of that name, whether it fits or not. Without a name, the only one that fits."""
        if self.draining:
            raise ServerShuttingDown("The server is shutting down. Retry elsewhere, or later.")
        if name is not None:
            return self.known_model(name)
        models = self._names(fits)
        if len(models) == 1:
            return self.models[models[0]]
        if not models:
            raise InvalidRequest(
                f"None of the models here can do this: {', '.join(self._names(_is_served))}.",
                param="model",
                code="model_not_supported",
            )
        raise InvalidRequest(
            f"'model' is missing. Name one of: {', '.join(models)}.",
            param="model",
            code="missing_required_parameter",
        )

    def known_model(self, name: str) -> ServedModel:
        """The model with that name or alias. Raises `ModelNotFound`, also if the current request's principal may not use it, or
        `EngineUnavailable` for one that is not open."""
        found = self.models.get(name) or self.models.get(self.aliases.get(name, ""))
        if not self.may_use(name):
            names = ", ".join(self._names(_is_served))
            raise ModelNotFound(
                f"The model '{name}' does not exist here, or this API key may not use it. Models: {names or 'none'}.",
                param="model",
            )
        if found is None:
            if self.aliases.get(name, name) in self.unopened:
                # The reason may have paths and addresses, which are for the log.
                raise EngineUnavailable(
                    f"The model '{name}' could not be opened when the server started, and the server's log says why. "
                    f"Use another model: {', '.join(self.models)}."
                )
            raise ModelNotFound(
                f"The model '{name}' does not exist here. Models: {', '.join(self.models)}.",
                param="model",
            )
        return found

    def stop_runs(self, error: GatewayError) -> None:
        """End all running responses with `error`, which is reported to their readers."""
        for run in tuple(self.runs):
            run.stop(error)


def _generates(model: ServedModel) -> bool:
    return model.generates


def _embeds(model: ServedModel) -> bool:
    return model.embedder is not None


def _scores(model: ServedModel) -> bool:
    return model.scorer is not None


def _is_served(model: ServedModel) -> bool:
    return True
