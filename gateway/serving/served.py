"""What a running gateway holds: its models, store, tools, metrics and running responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from gateway.config import Config, ModelConfig
from gateway.embeddings.only import generates
from gateway.errors import GatewayError, InvalidRequest, ModelNotFound, ServerShuttingDown
from gateway.protocols import (
    EmbeddingEngine,
    Engine,
    Front,
    ModelInfo,
    OutputFormat,
    PromptRenderer,
    ResponseStore,
)
from gateway.responses.sealing import Sealer
from gateway.serving.access import Doorkeeper
from gateway.serving.admission import Admission
from gateway.serving.metrics import Metrics
from gateway.tools.offered import OfferedTools
from gateway.tools.omitted import OmittedTools

if TYPE_CHECKING:
    from gateway.responses.background import BackgroundRuns


class ServedModel(Struct, frozen=True, kw_only=True, eq=False):
    """One name that requests may use, with all that serves it."""

    name: str
    config: ModelConfig
    engine: Engine
    renderer: PromptRenderer
    output_format: OutputFormat
    admission: Admission
    info: ModelInfo
    created: int
    """Unix time at which it was opened."""
    adapter: str | None = None
    """The LoRA adapter that it is, of the model `parent`."""
    parent: str | None = None
    fingerprint: str | None = None
    """See `gateway.loop.fingerprint`."""
    why: str = ""
    """Why this engine, renderer and format were chosen; for people."""

    @property
    def generates(self) -> bool:
        """Whether it can be asked to generate."""
        return generates(self.engine)

    @property
    def embedder(self) -> EmbeddingEngine | None:
        """What embeds, if the model does."""
        if "embeddings" not in self.engine.capabilities:
            return None
        assert isinstance(self.engine, EmbeddingEngine), "the capability was checked at the start"
        return self.engine


class NamedFront(Struct, frozen=True):
    """A further API that is open."""

    name: str
    """As the configuration names it."""
    front: Front


class Run(Protocol):
    """A response that is being made."""

    def stop(self, error: GatewayError) -> None:
        """End it with `error`; its terminal event says so."""
        ...


class RunSettings(Struct, frozen=True, kw_only=True):
    """The limits of every run."""

    request_timeout: float = 3600.0
    """Seconds for one whole response."""
    max_parallel_tool_calls: int = 16


class Services:
    """Handed to every request. One per process; made and closed by the app's lifespan."""

    def __init__(
        self,
        *,
        config: Config,
        models: Iterable[ServedModel],
        aliases: Mapping[str, str],
        store: ResponseStore | None,
        offered_tools: Mapping[str, OfferedTools],
        metrics: Metrics,
        settings: RunSettings,
        hook: Any,
        background: BackgroundRuns | None,
        doorkeeper: Doorkeeper,
        sealer: Sealer,
        fronts: Sequence[NamedFront] = (),
    ) -> None:
        """`hook` is the plugin manager's hook caller; `aliases` map further names to those of `models`.

        `offered_tools` are by the names of `models`.
        """
        self.config = config
        self.models = {model.name: model for model in models}
        self.aliases = aliases
        self.store = store
        self.offered_tools = offered_tools
        self.omitted_tools = OmittedTools(metrics)
        self.metrics = metrics
        self.settings = settings
        self.hook = hook
        self.background = background
        self.doorkeeper = doorkeeper
        self.sealer = sealer
        self.fronts = fronts
        self.runs: set[Run] = set()
        self.draining = False

    def model(self, name: str | None) -> ServedModel:
        """The model that a request names, which generates; the only one that does, where it names none."""
        found = self._chosen(name, _generates)
        if not found.generates:
            others = ", ".join(self._names(_generates))
            raise InvalidRequest(
                f"The model '{found.name}' only embeds: use it with /v1/embeddings."
                f" Models that generate: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found

    def embedding_model(self, name: str | None) -> tuple[ServedModel, EmbeddingEngine]:
        """The model that a request names, which embeds; the only one that does, where it names none."""
        found = self._chosen(name, _embeds)
        if found.embedder is None:
            others = ", ".join(self._names(_embeds))
            raise InvalidRequest(
                f"The model '{found.name}' does not embed. Models that do: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found, found.embedder

    def any_model(self, name: str | None) -> ServedModel:
        """The model that a request names, whatever it does; the only one, where it names none."""
        return self._chosen(name, _is_served)

    def _names(self, fits: Callable[[ServedModel], bool]) -> list[str]:
        return [model.name for model in self.models.values() if fits(model)]

    def _chosen(self, name: str | None, fits: Callable[[ServedModel], bool]) -> ServedModel:
        """The model of that name, whether it fits or not; without a name, the only one that does."""
        if self.draining:
            raise ServerShuttingDown("The server is shutting down. Retry elsewhere, or later.")
        if name is not None:
            return self.known_model(name)
        models = self._names(fits)
        if len(models) == 1:
            return self.models[models[0]]
        if not models:
            raise InvalidRequest(
                f"None of the models here can do this: {', '.join(self.models)}.",
                param="model",
                code="model_not_supported",
            )
        raise InvalidRequest(
            f"'model' is missing. Name one of: {', '.join(models)}.",
            param="model",
            code="missing_required_parameter",
        )

    def known_model(self, name: str) -> ServedModel:
        """The model of that name or alias; raises `ModelNotFound`."""
        found = self.models.get(name) or self.models.get(self.aliases.get(name, ""))
        if found is None:
            raise ModelNotFound(
                f"The model '{name}' does not exist here. Models: {', '.join(self.models)}.",
                param="model",
            )
        return found

    def stop_runs(self, error: GatewayError) -> None:
        """End all that still runs; each tells its reader why."""
        for run in tuple(self.runs):
            run.stop(error)


def _generates(model: ServedModel) -> bool:
    return model.generates


def _embeds(model: ServedModel) -> bool:
    return model.embedder is not None


def _is_served(model: ServedModel) -> bool:
    return True
