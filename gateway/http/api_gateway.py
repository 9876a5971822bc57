"""The gateway's interface for plugins' APIs: prompts, token counts, and answers written by the API's own writer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from gateway.answers.apis.output import ApiAnswer as RunningAnswer
from gateway.answers.apis.output import PreparedGeneration, api_answer
from gateway.answers.apis.tools import api_toolset, asks_for_tools
from gateway.answers.attempts import Attempts
from gateway.answers.parameter_checks import check_engine_parameters
from gateway.answers.request_settings import settings_of
from gateway.base.errors import InvalidRequest, Unsupported
from gateway.generation.error_params import ApiParams, tool_params
from gateway.generation.generation import GenerationSettings
from gateway.generation.generator import Generator
from gateway.generation.media import prompt_length
from gateway.generation.sampling import with_defaults, with_parameters
from gateway.generation.text_format import shared_format
from gateway.http.api_answers import ApiStream, plain_api_answer
from gateway.http.counted import counted
from gateway.models.model_lookup import WaitFor
from gateway.models.model_slot import ModelSlot
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import (
    AnswerWriter,
    AsgiApp,
    AvailableTool,
    CountingEngine,
    GenerationRequest,
    ListedModel,
    NewWriter,
    ServerTool,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.services import Services
from gateway.tools.roles import NO_TOOL, answers_unknown
from gateway.tools.toolset import Toolset
from gateway.wire.parameter_table import PLUGINS
from gateway.wire.parameters import SharedParameters
from gateway.wire.refusals import refuse


class ApiAnswer:
    """Implements `gateway.plugins.protocols.PreparedAnswer`."""

    def __init__(
        self,
        prepared: PreparedGeneration,
        request: GenerationRequest,
        services: Services,
        attempts: Attempts[PreparedGeneration],
        api: str,
    ) -> None:
        self._prepared = prepared
        self._request = request
        self._services = services
        self._attempts = attempts
        self._api = api

    @property
    def model(self) -> str:
        return self._prepared.model.name

    @property
    def prompt_tokens(self) -> int:
        return self._prepared.prompt_tokens

    @property
    def available_tools(self) -> Mapping[str, AvailableTool]:
        toolset = self._prepared.toolset
        tools = {
            name: AvailableTool(server_label=toolset.roles[name].server_label, tool=runnable.tool)
            for name, runnable in toolset.bound_tools.items()
        }
        return _AnsweredTools(tools) if answers_unknown(toolset.roles) else tools

    def stream(
        self,
        writer: AnswerWriter | NewWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "text/event-stream; charset=utf-8",
        idle_seconds: float | None = None,
    ) -> AsgiApp:
        return ApiStream(
            self._run(writer),
            headers=headers,
            content_type=content_type,
            idle_seconds=idle_seconds,
        )

    def whole(
        self,
        writer: AnswerWriter | NewWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "application/json",
    ) -> AsgiApp:
        return plain_api_answer(self._run(writer), headers=headers, content_type=content_type)

    def _run(self, writer: AnswerWriter | NewWriter) -> RunningAnswer:
        def new_writer(prepared: PreparedGeneration) -> AnswerWriter:
            self._prepared = prepared
            return writer() if callable(writer) else writer

        # A writer that has begun cannot begin again for another model.
        attempts = self._attempts if callable(writer) else None
        return api_answer(
            self._request, self._prepared, self._services, attempts, new_writer, api=self._api
        )


class _AnsweredTools(Mapping[str, AvailableTool]):
    """A mapping that has a tool for every name. For an unknown name it is one whose calls the gateway answers with an
    error."""

    def __init__(self, tools: Mapping[str, AvailableTool]) -> None:
        self._tools = tools

    def __getitem__(self, name: str) -> AvailableTool:
        found = self._tools.get(name)
        if found is not None:
            return found
        unknown = ServerTool(definition=ToolDefinition(name=name))
        return AvailableTool(server_label=NO_TOOL.server_label, tool=unknown)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


class ApiGateway:
    """Implements `gateway.plugins.protocols.Gateway`."""

    def __init__(self, services: Services, api: str, wait: WaitFor | None = None) -> None:
        """`api` is the name of the API, for routers, metrics and logs. `wait`: see `Attempts`."""
        self._services = services
        self._api = api
        self._wait = wait

    def models(self) -> Sequence[ListedModel]:
        return [
            each
            for slot in self._services.lookup.visible_slots()
            for each in (_listed_slot(slot), *map(_listed, slot.served[1:]))
            if self._services.lookup.may_use(each.name)
        ]

    def model(self, name: str) -> ListedModel:
        services = self._services
        slot = services.slots.named(name)
        if slot is None or not services.lookup.may_use(name):
            return _listed(services.lookup.known_model(name))
        return _listed_slot(slot)

    def tool_types(self, model: str | None) -> Collection[str]:
        services = self._services
        slot = services.lookup.slot_for(model, "generates")
        if slot is None:
            offered = services.tools_of(services.lookup.model(model))
        else:
            offered = services.permitted_tools(slot.name, slot.config, slot.tools)
        return {*offered.by_type, *offered.choices}

    async def prepare(self, request: GenerationRequest) -> ApiAnswer:
        services = self._services
        names = await services.lookup.candidates(
            request.model, api=self._api, use="generates", owner=request.owner, size=request.size
        )

        async def prepare(name: str | None) -> PreparedGeneration:
            return await self._prepare(request, services.lookup.model(name))

        attempts = Attempts(
            names,
            prepare,
            services.lookup,
            services.metrics,
            services.limiter,
            wait=self._wait,
        )
        with attempts:
            return ApiAnswer(await attempts.begin(), request, services, attempts, self._api)

    async def _prepare(self, request: GenerationRequest, model: ServedModel) -> PreparedGeneration:
        services = self._services
        with ApiParams(request):
            settings = _settings(request, model, services, self._api)
            generator = Generator(model, settings, services.metrics)
            toolset = await api_toolset(request, model, services)
            first = await generator.fitting(_turn(request, model, toolset))
        prompt = first.request.prompt
        length = 0
        if isinstance(prompt, TokensPrompt):
            countable = not prompt.media or isinstance(model.engine, CountingEngine)
            length = await prompt_length(prompt, model.engine) if countable else 0
        return PreparedGeneration(
            model=model, settings=settings, first=first, toolset=toolset, prompt_tokens=length
        )

    async def count_tokens(self, request: GenerationRequest) -> int:
        async with counted(self._services), self._services.lookup.loaded(request.model):
            return await self._counted(request)

    async def _counted(self, request: GenerationRequest) -> int:
        services = self._services
        model = services.lookup.model(request.model)
        with ApiParams(request):
            settings = _settings(request, model, services, self._api)
            generator = Generator(model, settings, services.metrics)
            toolset = await api_toolset(request, model, services)
            prompt = (await generator.prepare(_turn(request, model, toolset))).request.prompt
        if not isinstance(prompt, TokensPrompt):
            raise Unsupported(
                f"The engine of '{model.name}' counts its tokens itself; they are not known here.",
                param="model",
            )
        return await prompt_length(prompt, model.engine)

    def seal(self, text: str, owner: str | None, *, model: str | None = None) -> str:
        name = None if model is None else self._own_name(model)
        return self._services.sealer.seal(text, owner, model=name)

    def unseal(self, sealed: str, owner: str | None, *, model: str) -> str | None:
        try:
            return self._services.sealer.open(sealed, owner, "", model=self._own_name(model))
        except InvalidRequest:
            return None

    def _own_name(self, model: str) -> str:
        return self._services.aliases.get(model, model)


def _listed(model: ServedModel) -> ListedModel:
    return ListedModel(
        name=model.name,
        created=model.created,
        max_model_len=model.info.max_model_len,
        description=model.config.description,
    )


def _listed_slot(slot: ModelSlot) -> ListedModel:
    if slot.served:
        return _listed(slot.served[0])
    return ListedModel(
        name=slot.name,
        created=slot.created,
        max_model_len=None,
        description=slot.config.description,
    )


def _settings(
    request: GenerationRequest, model: ServedModel, services: Services, api: str
) -> GenerationSettings:
    parameters = _parameters(request)
    if extended := refuse(parameters, PLUGINS):
        check_engine_parameters(parameters, model)
    settings = settings_of(
        parameters,
        model,
        services,
        api=api,
        sampling=with_defaults(with_parameters(request.sampling, parameters), model),
        owner=request.owner,
        size=request.size,
        trace_headers=request.trace_headers,
        tool_params=tool_params(request.tools),
        extended=extended,
    )
    if settings.thinking_budget is None and request.thinking_budget is not None:
        settings = msgspec.structs.replace(settings, thinking_budget=request.thinking_budget)
    return settings


def _parameters(request: GenerationRequest) -> SharedParameters:
    if request.parameters is not None:
        return request.parameters
    return SharedParameters(cache_salt=request.cache_salt, priority=request.priority)


def _turn(request: GenerationRequest, model: ServedModel, toolset: Toolset) -> Turn:
    turn = request.turn
    if asks_for_tools(request):
        turn = msgspec.structs.replace(turn, tools=toolset.definitions, tool_choice=toolset.choice)
    own, configured = request.parameters, model.config.chat_template_kwargs
    if own is not None:
        turn = msgspec.structs.replace(
            turn,
            text_format=shared_format(own, turn.text_format, "text.format"),
            documents=own.documents or turn.documents,
            chat_template=own.chat_template or turn.chat_template,
            chat_template_kwargs={**turn.chat_template_kwargs, **(own.chat_template_kwargs or {})},
        )
    if not configured:
        return turn
    kwargs = {**configured, **turn.chat_template_kwargs}
    return msgspec.structs.replace(turn, chat_template_kwargs=kwargs)
