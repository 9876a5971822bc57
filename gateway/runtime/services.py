"""The services of a running gateway: its models, store, tools, metrics and running responses."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from gateway.config import Config, ModelConfig
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
    InternalAnswer,
    ModelLoad,
    Policy,
    Principal,
    PromptSource,
    ResponseStore,
    RoutingRequest,
    ScoringEngine,
    SharedValues,
    StoredResponse,
    Tracer,
)
from gateway.request_stats import RunStats
from gateway.runtime.access import Authenticator
from gateway.runtime.callers import Caller, current_caller, current_principal, names_model
from gateway.runtime.content_policy import content_policy
from gateway.runtime.embedding_only import only_at, only_does
from gateway.runtime.held_bytes import HeldBytes
from gateway.runtime.in_progress import RequestsInProgress
from gateway.runtime.limiter import Limiter
from gateway.runtime.model_slot import Does, ModelSlot
from gateway.runtime.model_slots import ModelSlots
from gateway.runtime.queue_history import QueueHistory
from gateway.runtime.routing import Routes, Routing
from gateway.runtime.run_history import RunHistory
from gateway.runtime.sealing import Sealer
from gateway.runtime.served_model import ServedModel
from gateway.runtime.tool_probes import ToolProbes
from gateway.runtime.unknown_parameters import UnknownParameters
from gateway.runtime.usage_meter import UsageMeter
from gateway.shared_timers import SharedTimers
from gateway.shared_values import ProcessValues
from gateway.tools.approvals import Approvals
from gateway.tools.available import AvailableTools, permitted_to
from gateway.tools.omitted import OmittedTools
from gateway.wire.inventory import ListedPlugin

WaitFor: TypeAlias = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
"""Runs a coroutine, and waits until it has ended or there is nothing to wait for any more."""


class NamedApi(Struct, frozen=True):
    """A further API that is open."""

    name: str
    """Its name in the configuration."""
    api: Api


class Run(Protocol):
    """A response in progress."""

    stats: RunStats

    @property
    def principal(self) -> Principal | None:
        """Who is served; None in anonymous mode."""
        ...

    def stop(self, error: GatewayError) -> None:
        """End the response with `error`, which its terminal event reports."""
        ...

    def revoke(self) -> bool:
        """End the response because an administrator cancels it; False if its work has ended."""
        ...


class WorkerAnswers(Struct, frozen=True):
    """What other worker processes have answered."""

    answers: Sequence[bytes]
    silent: Sequence[int]
    """The ids of the processes that did not answer in time."""


class Workers(Protocol):
    """The other worker processes of this server; implemented by `gateway.server.worker_sockets.WorkerSockets`."""

    async def ask(self, question: bytes, *, seconds: float) -> WorkerAnswers:
        """What they answer in that time, which has a bound of its own."""
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


class SendInternal(Protocol):
    """Sends a request within the process; implemented by `gateway.routes.internal.InternalRequests`."""

    def __call__(
        self, path: str, body: bytes, *, caller: Caller, request_id: str | None, max_bytes: int
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
        usage: UsageMeter | None = None,
        tracer: Tracer | None = None,
        documents: FileReader | None = None,
        routing: Routing | None = None,
        policies: Sequence[Policy] = (),
        plugins: Sequence[ListedPlugin] = (),
    ) -> None:
        """`hook` is the plugin manager's hook caller. `tool_tables` is keyed like `[tools.<name>]`. `limiter` counts requests of
        keys with limits; by default, in this process. `media` reads images and sounds; None if no model takes any.
        `documents` reads the files of requests; without it, the renderers refuse them."""
        self.config = config
        self.strict = config.server.compatibility == "strict"
        """Whether what OpenAI rejects is rejected."""
        self.slots = slots
        self.store = store
        self.values: SharedValues = ProcessValues() if store is None else store
        """Small values that last as long as what is stored."""
        self.tool_tables = tool_tables
        self.limiter = Limiter(None) if limiter is None else limiter
        self.content_policy = content_policy(config.server.log_content, hook)
        """Which texts are logged; None for none."""
        self.usage = UsageMeter(None, hook) if usage is None else usage
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
        """What keeps the prompts of clients."""
        self.media = media
        self.documents = documents
        self.policies = policies
        self.plugins = plugins
        """What is installed, for administrators."""
        self.routing = routing or Routing(Routes({}))
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
        """The runs that have ended last; None if they are not kept."""
        self.queue_history: QueueHistory | None = None
        """The queues of the last hour; None if they are not kept."""
        self.tool_probes = ToolProbes()
        """What administrators found out of the tool servers."""
        self.workers: Workers | None = None
        """The other worker processes; None if there are none."""
        self.in_progress = RequestsInProgress()
        self.send: SendInternal | None = None
        """Sends a request to the application, within the process; None until the application has these services."""
        self.reload: Callable[[Config], Awaitable[None]] | None = None
        """Uses another configuration, or raises `ConfigurationError` and changes nothing."""
        self.draining = False
        self.started = int(time.time())
        """Unix time."""

    def keep_runs(self, most: int) -> None:
        """Keep at least the last `most` runs that end from now on."""
        if self.run_history is None or self.run_history.most < most:
            self.run_history = RunHistory(most)
        if self.queue_history is None:
            self.queue_history = QueueHistory()

    def use_config(self, config: Config, tool_tables: Mapping[str, AvailableTools]) -> None:
        """Use another configuration for new requests. The constructor's other arguments stay as they are."""
        server = config.server
        self.config, self.tool_tables = config, tool_tables
        self.settings = RunSettings(request_timeout=server.request_timeout)
        self.conversation_bounds = ConversationBounds(
            server.max_conversation_items, server.max_conversation_bytes
        )
        self.authenticator.use_keys("the configuration", server.api_keys)

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """What is loaded, with adapters, by name."""
        return self.slots.models

    @property
    def aliases(self) -> Mapping[str, str]:
        """Further names of models. Values are names in the configuration."""
        return self.slots.aliases

    @property
    def unopened(self) -> list[str]:
        """Names of the models that could not be loaded at the last attempt."""
        return [slot.name for slot in self.slots.slots.values() if slot.state == "failed"]

    def loaded(
        self,
        name: str | None,
        does: Does | None = "generates",
        *,
        waits_for_room: bool = True,
        wait: WaitFor | None = None,
    ) -> Loaded:
        """A context in which the model that a request names is loaded, and is not unloaded.

        Entering it loads the model if necessary. Raises as `ModelSlots.acquire`; but if there is no such model, the methods
        below raise the error. Without a name, the model is the only one that supports the use `does`. A run that has
        reserved its place in the model's queue keeps the model loaded too. `wait` waits while the model is being loaded, and
        may give up.
        """
        return Loaded(self, name, does, waits_for_room=waits_for_room, wait=wait)

    def model(self, name: str | None) -> ServedModel:
        """The generating model that a request names; if it names none, the only one."""
        found = self._chosen(name, "generates")
        if not found.generates:
            others = ", ".join(self._names("generates"))
            raise InvalidRequest(
                f"The model '{found.name}' only {only_does(found.engine)}: use it with {only_at(found.engine)}."
                f" Models that generate: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found

    def embedding_model(self, name: str | None) -> tuple[ServedModel, EmbeddingEngine]:
        """The embedding model that a request names; if it names none, the only one."""
        found = self._chosen(name, "embeds")
        if found.embedder is None:
            others = ", ".join(self._names("embeds"))
            raise InvalidRequest(
                f"The model '{found.name}' does not embed. Models that do: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found, found.embedder

    def scoring_model(self, name: str | None) -> tuple[ServedModel, ScoringEngine]:
        """The reranking model that a request names; if it names none, the only one."""
        found = self._chosen(name, "reranks")
        if found.scorer is None:
            others = ", ".join(self._names("reranks"))
            raise InvalidRequest(
                f"The model '{found.name}' does not rerank. Models that do: {others or 'none'}.",
                param="model",
                code="model_not_supported",
            )
        return found, found.scorer

    def any_model(self, name: str | None) -> ServedModel:
        """The model of any kind that a request names; if it names none, the only one."""
        return self._chosen(name, None)

    def tools_of(self, model: ServedModel) -> AvailableTools:
        """The tools that requests to `model` may use, by the current request's principal."""
        return self.permitted_tools(model.name, model.config, model.tools)

    def permitted_tools(
        self, name: str, config: ModelConfig, whole: AvailableTools
    ) -> AvailableTools:
        """Those of the tools of a model that the current request's principal may use."""
        principal = current_principal()
        if principal is None or principal.tools is None:
            return whole
        return permitted_to(principal, name, config, self.tool_tables, whole)

    def visible_slots(self) -> list[ModelSlot]:
        """The models, loaded or not, that the current request's principal may use."""
        return [slot for slot in self.slots.slots.values() if any(map(self.may_use, slot.names))]

    def may_use(self, name: str) -> bool:
        """Whether the current request's principal may use a model, by any of its names."""
        principal = current_principal()
        if principal is None or principal.models is None:
            return True
        own = self.aliases.get(name, name)
        others = [alias for alias, target in self.aliases.items() if target == own]
        return names_model(principal, own, *others)

    async def candidates(
        self, name: str | None, *, api: str, does: Does, owner: str | None, size: int
    ) -> Sequence[str | None]:
        """The models that may answer a request which names the model `name`, in order of trial: names of models and
        adapters, loaded or not; or just `name` if nothing routes it. `api`, `owner` and `size` are those of
        `RoutingRequest`.
        """
        if not self.routing.concerns(name):
            return (name,)
        able = self._names(does)
        chosen = await self.routing.choose(
            RoutingRequest(
                api=api,
                model=name,
                owner=owner,
                size=size,
                models=[
                    _load(each, slot)
                    for each in able
                    if (slot := self.slots.find(each)) is not None
                ],
            )
        )
        if chosen is None:
            return (name,)
        own = dict.fromkeys(self.aliases.get(each, each) for each in chosen)
        found = [each for each in own if each in able]
        if found:
            return found
        # Models of another kind, or that could not be loaded: the error says so.
        usable = [each for each in own if self.slots.find(each) is not None and self.may_use(each)]
        return usable[:1] or (name,)

    def _target(self, name: str) -> str:
        """For a route, the first of its models that the principal may use; otherwise `name`."""
        for target in self.routing.routes.targets.get(name, ()):
            own = self.aliases.get(target, target)
            if self.slots.find(own) is not None and self.may_use(own):
                return own
        return name

    def _names(self, does: Does | None) -> list[str]:
        """Names of all models, loaded or not, that may support the use `does`, and that the principal may use."""
        return [
            name
            for slot in self.slots.slots.values()
            if slot.may(does)
            for name in slot.names
            if self.may_use(name)
        ]

    def slot_for(self, name: str | None, does: Does | None) -> ModelSlot | None:
        """The slot of the model that a request names. Without a name, the only one that may support the use `does`. None if
        there is none, or more than one, or the principal may not use it."""
        if name is None:
            names = self._names(does)
            slots = {id(slot): slot for each in names if (slot := self.slots.find(each))}
            return next(iter(slots.values())) if len(slots) == 1 else None
        name = self._target(name)
        return self.slots.find(name) if self.may_use(name) else None

    def _chosen(self, name: str | None, does: Does | None) -> ServedModel:
        """The model of that name, even if it does not support the use `does`. Without a name, the only one that supports it."""
        self.check_open()
        if name is not None:
            return self.known_model(name)
        models = self._names(does)
        if len(models) == 1:
            return self.known_model(models[0])
        if not models:
            raise InvalidRequest(
                f"None of the models here can do this: {', '.join(self._names(None))}.",
                param="model",
                code="model_not_supported",
            )
        raise InvalidRequest(
            f"'model' is missing. Name one of: {', '.join(models)}.",
            param="model",
            code="missing_required_parameter",
        )

    def check_open(self) -> None:
        """Raise `ServerShuttingDown` if no more requests are accepted."""
        if self.draining:
            raise ServerShuttingDown("The server is shutting down. Retry elsewhere, or later.")

    def known_model(self, name: str) -> ServedModel:
        """The model with that name or alias; for a route, the first of its models. Raises `ModelNotFound`, also if the
        current request's principal may not use it, or `EngineUnavailable` for one that is not loaded."""
        name = self._target(name)
        if not self.may_use(name):
            names = ", ".join(self._names(None)) or "none"
            raise ModelNotFound(
                f"The model '{name}' does not exist here, or this API key may not use it. Models: {names}.",
                param="model",
            )
        models = self.slots.models
        found = models.get(name) or models.get(self.aliases.get(name, ""))
        if found is not None:
            return found
        slot, names = self.slots.find(name), ", ".join(self._names(None)) or "none"
        if slot is None:
            raise ModelNotFound(
                f"The model '{name}' does not exist here. Models: {names}.", param="model"
            )
        if slot.state == "failed":
            # The reason may have paths and addresses, which are for the log.
            raise EngineUnavailable(
                f"The model '{name}' could not be opened, and the server's log says why. Use another model: {names}."
            )
        raise EngineUnavailable(f"The model '{name}' is not loaded. Send the request again.")

    def stop_runs(self, error: GatewayError) -> None:
        """End all running responses with `error`, which is reported to their readers."""
        for run in tuple(self.runs):
            run.stop(error)


class Loaded(AbstractAsyncContextManager[None]):
    """See `Services.loaded`. Entered once."""

    __slots__ = ("_does", "_name", "_services", "_slot", "_wait", "_waits_for_room")

    def __init__(
        self,
        services: Services,
        name: str | None,
        does: Does | None,
        *,
        waits_for_room: bool,
        wait: WaitFor | None,
    ) -> None:
        self._services = services
        self._name = name
        self._does: Does | None = does
        self._waits_for_room = waits_for_room
        self._wait = wait
        self._slot: ModelSlot | None = None

    async def __aenter__(self) -> None:
        services = self._services
        services.check_open()
        slot = services.slot_for(self._name, self._does)
        if slot is None:
            return
        if slot.state == "loaded":
            slot.hold()
            self._slot = slot
        elif self._wait is None:
            await self._load()
        else:
            try:
                await self._wait(self._load())
            except BaseException:
                await self.__aexit__()
                raise

    async def _load(self) -> None:
        """Load the model, and hold it."""
        services, caller = self._services, current_caller()
        waits_for_room = self._waits_for_room and (caller is None or caller.waits_for_room)
        while True:
            services.check_open()
            slot = services.slot_for(self._name, self._does)
            if slot is None:
                return
            try:
                await services.slots.acquire(slot, waits_for_room=waits_for_room)
            except ModelNotFound:
                if services.slot_for(self._name, self._does) in (None, slot):
                    raise
                continue  # replaced by another with that name
            self._slot = slot
            return

    async def __aexit__(self, *exc_info: object) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()


def _load(name: str, slot: ModelSlot) -> ModelLoad:
    queue, config = slot.admission, slot.config
    return ModelLoad(
        name=name,
        running=queue.running,
        waiting=queue.waiting,
        max_running=config.max_running,
        max_waiting=config.max_waiting,
    )
