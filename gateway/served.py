"""What a running gateway holds: its models, store, tools, metrics and running responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from gateway.access import Doorkeeper
from gateway.admission import Admission
from gateway.config import Config, ModelConfig
from gateway.errors import GatewayError, InvalidRequest, ModelNotFound, ServerShuttingDown
from gateway.metrics import Metrics
from gateway.protocols import Engine, ModelInfo, OutputFormat, PromptRenderer, ResponseStore
from gateway.sealing import Sealer
from gateway.toolset import OfferedTools

if TYPE_CHECKING:
    from gateway.background import BackgroundRuns


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
    why: str = ""
    """Why this engine, renderer and format were chosen; for people."""


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
        offered_tools: OfferedTools,
        metrics: Metrics,
        settings: RunSettings,
        hook: Any,
        background: BackgroundRuns | None,
        doorkeeper: Doorkeeper,
        sealer: Sealer,
    ) -> None:
        """`hook` is the plugin manager's hook caller; `aliases` map further names to those of `models`."""
        self.config = config
        self.models = {model.name: model for model in models}
        self.aliases = aliases
        self.store = store
        self.offered_tools = offered_tools
        self.metrics = metrics
        self.settings = settings
        self.hook = hook
        self.background = background
        self.doorkeeper = doorkeeper
        self.sealer = sealer
        self.runs: set[Run] = set()
        self.draining = False

    def model(self, name: str | None) -> ServedModel:
        """The model that a request names; the only one, where it names none."""
        if self.draining:
            raise ServerShuttingDown("The server is shutting down. Retry elsewhere, or later.")
        if name is None:
            if len(self.models) == 1:
                return next(iter(self.models.values()))
            raise InvalidRequest(
                f"'model' is missing. Name one of: {', '.join(self.models)}.",
                param="model",
                code="missing_required_parameter",
            )
        return self.known_model(name)

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
