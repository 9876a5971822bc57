"""The services of a running gateway: its models, store, tools, metrics and running responses."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.access.access import Authenticator
from gateway.access.held_bytes import HeldBytes
from gateway.access.limiter import Limiter
from gateway.access.sealing import Sealer
from gateway.access.usage_meter import UsageMeter
from gateway.base.errors import (
    GatewayError,
    ServerShuttingDown,
)
from gateway.base.shared_timers import SharedTimers
from gateway.config import Config, ModelConfig
from gateway.media.file_reader import FileReader
from gateway.media.reader import MediaReader
from gateway.models.model_lookup import ModelLookup
from gateway.models.model_slots import ModelSlots
from gateway.models.queue_history import QueueHistory
from gateway.models.routing import Routing
from gateway.models.served_model import ServedModel
from gateway.observe.content_policy import content_policy
from gateway.observe.in_progress import RequestsInProgress
from gateway.observe.metrics import Metrics
from gateway.observe.request_context import RequestContext, current_principal
from gateway.observe.run_history import RunHistory
from gateway.observe.run_stats import RunStats
from gateway.observe.unknown_parameters import UnknownParameters
from gateway.plugins.protocols import (
    Api,
    ConversationBounds,
    InternalAnswer,
    Policy,
    Principal,
    PromptSource,
    ResponseStore,
    SharedValues,
    StoredResponse,
    Tracer,
)
from gateway.storage.shared_values import ProcessValues
from gateway.tools.approvals import Approvals
from gateway.tools.available import AvailableTools, permitted_to
from gateway.tools.omitted import OmittedTools
from gateway.tools.probes import ToolProbes
from gateway.wire.inventory import ListedPlugin


class NamedApi(Struct, frozen=True):
    """An open API of a plugin."""

    name: str
    """Its name in the configuration."""
    api: Api


class Run(Protocol):
    """A response in progress."""

    stats: RunStats

    @property
    def principal(self) -> Principal | None:
        """The principal whose request it is; None in anonymous mode."""
        ...

    def stop(self, error: GatewayError) -> None:
        """End the response with `error`, which its terminal event reports."""
        ...

    def revoke(self) -> bool:
        """End the response because an administrator cancels it. Returns False if its work has already ended."""
        ...


class WorkerAnswers(Struct, frozen=True):
    """Answers of the other worker processes to a question."""

    answers: Sequence[bytes]
    silent: Sequence[int]
    """Ids of the processes that did not answer in time."""


class Workers(Protocol):
    """The other worker processes of this server; implemented by `gateway.process.worker_sockets.WorkerSockets`."""

    async def ask(self, question: bytes, *, seconds: float) -> WorkerAnswers:
        """Ask all of them, and return the answers that arrive within `seconds`, or within the implementation's own
        limit."""
        ...


class Background(Protocol):
    """Runs responses independently of their clients; implemented by `gateway.answers.responses.background.BackgroundRuns`."""

    async def start(self, run: Any) -> StoredResponse:
        """Store a prepared run as queued, and start it. Returns the stored record."""
        ...

    def live(self, response_id: str) -> Any:
        """The live events of a response; None if this process does not run it."""
        ...

    async def cancel(self, record: StoredResponse) -> StoredResponse:
        """Cancel a response, whichever process runs it. Returns the record with its terminal status."""
        ...

    def stop(self, error: GatewayError) -> None:
        """Begin no more responses, because this process is being stopped. Waiting responses are left to other
        processes."""
        ...


class SendInternal(Protocol):
    """Sends a request within the process; implemented by `gateway.http.internal.InternalRequests`."""

    def __call__(
        self, path: str, body: bytes, *, context: RequestContext, max_bytes: int
    ) -> Coroutine[Any, Any, InternalAnswer]: ...


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
        slots: ModelSlots,
        store: ResponseStore | None,
        tool_tables: Mapping[str, AvailableTools],
        metrics: Metrics,
        settings: RunSettings,
        hook: Any,
        background: Background | None,
        authenticator: Authenticator,
        sealer: Sealer,
        approvals: Approvals,
        apis: Sequence[NamedApi],
        limiter: Limiter,
        usage: UsageMeter,
        tracer: Tracer | None,
        documents: FileReader,
        routing: Routing,
        policies: Sequence[Policy],
        plugins: Sequence[ListedPlugin],
    ) -> None:
        """`hook`: the plugin manager's hook caller. `tool_tables`: the tools of each table `[tools.<name>]`, by that
        name. `limiter`: counts requests of API keys with limits. `documents`: reads the files of requests."""
        self.config = config
        self.strict = config.server.compatibility == "strict"
        """Whether to reject requests that OpenAI would reject."""
        self.slots = slots
        self.store = store
        self.values: SharedValues = ProcessValues() if store is None else store
        """Small shared values. They are kept in the store if there is one, otherwise in this process."""
        self.tool_tables = tool_tables
        self.limiter = limiter
        self.content_policy = content_policy(config.server.log_content, hook)
        """Decides which texts are logged; None if no texts are logged."""
        self.usage = usage
        self.tracer = tracer
        """Begins the spans of requests; None if nothing is traced."""
        self.omitted_tools = OmittedTools(metrics)
        self.unknown_parameters = UnknownParameters(metrics)
        self.metrics = metrics
        self.settings = settings
        self.hook = hook
        self.background = background
        self.authenticator = authenticator
        self.sealer = sealer
        self.approvals = approvals
        self.apis = apis
        self.prompt_sources = [each.api for each in apis if isinstance(each.api, PromptSource)]
        """The APIs that store prompts of clients."""
        self.media: MediaReader | None = None
        """Reads images and sounds; None if no model accepts any."""
        self.documents = documents
        self.policies = policies
        self.plugins = plugins
        """The installed plugins, for administrators."""
        self.lookup = ModelLookup(slots, routing, self.check_open)
        """Finds the models that requests name."""
        self.conversation_bounds = ConversationBounds(
            config.server.max_conversation_items, config.server.max_conversation_bytes
        )
        self.held_bytes = HeldBytes(
            per_connection=config.server.max_websocket_bytes,
            per_owner=config.server.max_owner_websocket_bytes,
        )
        self.timers = SharedTimers()
        self.runs: set[Run] = set()
        self.run_history: RunHistory | None = None
        """The runs that ended last; None if they are not kept."""
        self.queue_history: QueueHistory | None = None
        """The queues of the last hour; None if they are not recorded."""
        self.tool_probes = ToolProbes()
        """Probes of the tool servers, and their last results, for administrators."""
        self.workers: Workers | None = None
        """The other worker processes; None if there are none."""
        self.in_progress = RequestsInProgress()
        self.send: SendInternal | None = None
        """Sends a request to the application within the process; None until the application uses these services."""
        self.reload: Callable[[Config], Awaitable[None]] | None = None
        """Switches to another configuration, or raises `ConfigurationError` and changes nothing."""
        self.draining = False
        """Whether the server is shutting down and rejects new requests."""
        self.started = int(time.time())
        """Unix time of the start."""

    def keep_runs(self, most: int) -> None:
        """Keep at least the last `most` runs that end from now on, and record the queues."""
        if self.run_history is None or self.run_history.most < most:
            self.run_history = RunHistory(most)
        if self.queue_history is None:
            self.queue_history = QueueHistory()

    def use_config(self, config: Config, tool_tables: Mapping[str, AvailableTools]) -> None:
        """Use another configuration for new requests. The constructor's other arguments do not change."""
        server = config.server
        self.config, self.tool_tables = config, tool_tables
        self.settings = RunSettings(request_timeout=server.request_timeout)
        self.conversation_bounds = ConversationBounds(
            server.max_conversation_items, server.max_conversation_bytes
        )
        self.authenticator.use_keys("the configuration", server.api_keys)

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """The loaded models and their adapters, by name."""
        return self.slots.models

    @property
    def aliases(self) -> Mapping[str, str]:
        """Maps aliases to the models' names in the configuration."""
        return self.slots.aliases

    @property
    def unopened(self) -> list[str]:
        """Names of the models whose last attempt to load failed."""
        return [slot.name for slot in self.slots.slots.values() if slot.state == "failed"]

    def tools_of(self, model: ServedModel) -> AvailableTools:
        """The gateway's tools that the current request's principal may use with `model`."""
        return self.permitted_tools(model.name, model.config, model.tools)

    def permitted_tools(
        self, name: str, config: ModelConfig, whole: AvailableTools
    ) -> AvailableTools:
        """The subset of a model's tools, `whole`, that the current request's principal may use."""
        principal = current_principal()
        if principal is None or principal.tools is None:
            return whole
        return permitted_to(principal, name, config, self.tool_tables, whole)

    def check_open(self) -> None:
        """Raise `ServerShuttingDown` if the server is shutting down."""
        if self.draining:
            raise ServerShuttingDown("The server is shutting down. Retry elsewhere, or later.")

    def stop_runs(self, error: GatewayError) -> None:
        """End all running responses with `error`, which their clients receive."""
        for run in tuple(self.runs):
            run.stop(error)
