"""Planning: turns a decoded request into the plan of one response."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.errors import InvalidRequest, ParamPath, Unsupported, renamed_params
from gateway.loop.generation import GenerationSettings
from gateway.loop.hints import hints_of
from gateway.loop.param_paths import tool_params
from gateway.loop.request_settings import check_continuation, check_engine_parameters, settings_of
from gateway.loop.sampling import sampling_of
from gateway.loop.text_format import shared_format, shared_path
from gateway.loop.unsupported import refuse
from gateway.protocols import (
    Sampling,
    SessionContext,
    TextFormat,
    Turn,
)
from gateway.responses.configuration_updates import with_updates
from gateway.responses.context_management import (
    CompactionSettings,
    compaction_settings,
)
from gateway.responses.history import (
    conversation_of,
    kept_results,
    with_readable_reasoning,
)
from gateway.responses.params import request_path
from gateway.responses.stored_prompts import FilledPrompt, with_prompt
from gateway.runtime.sealing import open_compactions
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.tools.approved import ApprovedCall, approved_calls
from gateway.tools.client_functions import client_tools_of
from gateway.tools.credentials import server_addresses, without_credentials
from gateway.tools.requested import list_request_tools, new_listings
from gateway.tools.toolset import Toolset, build_toolset
from gateway.wire import items
from gateway.wire.common import JsonObject
from gateway.wire.ids import new_id
from gateway.wire.request import ResponseRequest
from gateway.wire.response import ConversationReference, Response
from gateway.wire.text import ReasoningOptions, TextConfig
from gateway.wire.tools import Tool


class Plan(Struct, kw_only=True):
    """Everything that is decided about a response before it runs."""

    model: ServedModel
    response: Response
    """The response as `response.created` shows it."""
    input: Sequence[items.Item]
    """The request's own items, each with an id."""
    history: Sequence[items.Item]
    """The items that it continues from, oldest first."""
    turn: Turn
    toolset: Toolset
    settings: GenerationSettings
    text_param: ParamPath
    """The place of what sets the form of the final text, if `text.format` does not."""
    store: bool
    stream: bool
    shows_times: bool
    """Whether the response says how long it took."""
    background: bool
    conversation_id: str | None
    wants_logprobs: bool
    seals_reasoning: bool
    """Whether reasoning items carry `encrypted_content`."""
    summarizes_reasoning: bool
    """Whether reasoning items carry their text also as a summary."""
    owner: str | None
    previous_response_id: str | None
    max_tool_calls: int | None
    truncate: bool
    """Whether the oldest turns may be dropped from a prompt that is too long."""
    listings: Sequence[items.McpListTools] = ()
    """Tool lists that the response shows first; without ids."""
    include: Sequence[str] = ()
    """The request's `include` values."""
    approved: Sequence[ApprovedCall] = ()
    """Calls that are run before the first generation."""
    addresses: Mapping[str, str] = {}
    """See `server_addresses`."""
    body: bytes | None = None
    """The request body, if it is stored with the response."""
    generates: bool = True
    """Whether the model is called at all. If not, the response only extends the conversation."""
    compaction: CompactionSettings | None = None
    """Whether, and when, the response compacts its history."""
    preamble: int = 0
    """The number of items of the turn that a stored prompt has put before the conversation."""

    def request_params(self) -> AbstractContextManager[None]:
        """A context in which errors about the turn name the parameters of the request."""
        before = len(self.turn.items) - len(self.input)
        logprobs = "top_logprobs" if self.response.top_logprobs else "include"
        return _request_params(
            before,
            self.input,
            self.conversation_id,
            logprobs=logprobs,
            text_param=self.text_param,
            preamble=self.preamble,
        )


async def make_plan(
    request: ResponseRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    unstored: Mapping[str, Sequence[items.Item]] | None = None,
    model_name: str | None = None,
) -> Plan:
    """Plan a response, by the model `model_name` if that is not the one that the request names. Raises a `GatewayError`
    that names the invalid parameter.

    `unstored` has the histories of responses that are not stored but that the request may continue from, by id.
    """
    known = (unstored or {}).get(request.previous_response_id or "")
    _refuse(request, services, goes_on=known is not None)
    model = services.model(model_name or request.model)
    check_engine_parameters(request, model)
    request, prompt = await with_prompt(request, services, owner)
    preamble = () if prompt is None else prompt.messages
    history, own = await conversation_of(request, services, model.name, owner, known)
    request = with_updates(request, [*history, *own])
    conversation_id, reasoning = request.conversation_id, request.reasoning
    text_format, logprobs = _text_format(request), _logprobs(request)
    offered, tools = services.tools_of(model), request.tools or ()
    context = SessionContext(owner=owner, items=[*history, *own])
    requested = await list_request_tools(tools, offered.choices, context, builtins=offered.by_type)
    with _request_params(len(history), own, conversation_id):
        toolset = build_toolset(
            tools,
            request.tool_choice,
            offered,
            requested,
            client_tools_of(context.items),
            renderer=model.renderer,
            context=context,
        )
        opened = open_compactions(
            [*history, *own], services.sealer, owner, model=model.name, own=len(history)
        )
    services.omitted_tools.report(toolset.omitted)
    sampling = sampling_of(request, model, max_tokens=request.max_output_tokens, logprobs=logprobs)
    store = request.store is not False and services.store is not None
    turn = Turn(
        items=[*preamble, *with_readable_reasoning(opened)],
        results=await kept_results([*history, *own], services, model, owner),
        instructions=request.instructions,
        tools=toolset.definitions,
        tool_choice=toolset.choice,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        reasoning_effort=reasoning.effort if reasoning else None,
        text_format=text_format,
        chat_template=request.chat_template,
        chat_template_kwargs={
            **model.config.chat_template_kwargs,
            **(request.chat_template_kwargs or {}),
        },
        documents=request.documents or (),
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final_message=bool(request.continue_final_message),
    )
    if request.continue_final_message:
        last = turn.items[-1] if turn.items else None
        check_continuation(request, isinstance(last, items.Message) and last.role == "assistant")
    addresses = server_addresses(tools)
    listings = new_listings(requested, turn.items)
    approved = approved_calls(
        own,
        history,
        toolset.listed,
        partial(services.approvals.check, owner=owner, addresses=addresses),
    )
    shown = without_credentials(tools)
    return Plan(
        model=model,
        response=_skeleton(request, model, sampling, shown, conversation_id, prompt, store=store),
        input=own,
        history=history,
        turn=turn,
        toolset=toolset,
        settings=settings_of(
            request,
            model,
            services,
            api="responses",
            sampling=sampling,
            owner=owner,
            size=size,
            trace_headers=trace_headers,
            hints=hints_of(request),
            tool_params=tool_params(shown),
        ),
        text_param=() if request.text.format.type != "text" else shared_path(request),
        store=store,
        stream=bool(request.stream),
        shows_times=bool(request.timings_per_token),
        background=bool(request.background),
        conversation_id=conversation_id,
        wants_logprobs=logprobs is not None,
        seals_reasoning="reasoning.encrypted_content" in (request.include or ()),
        summarizes_reasoning=_summarizes(reasoning, model),
        owner=owner,
        previous_response_id=request.previous_response_id,
        max_tool_calls=request.max_tool_calls,
        truncate=request.truncation == "auto",
        include=request.include or (),
        listings=listings,
        approved=approved,
        addresses=addresses,
        generates=_generates(request),
        compaction=_compaction(request, model),
        preamble=len(preamble),
    )


def _refuse(request: ResponseRequest, services: Services, *, goes_on: bool) -> None:
    """Reject unsupported parameters and combinations. `goes_on`: the previous response is available."""
    refuse(request, "responses")
    if request.previous_response_id is not None and request.conversation is not None:
        raise InvalidRequest(
            "Mutually exclusive parameters: 'previous_response_id' and 'conversation'. Send one of them.",
            param="conversation",
            code="mutually_exclusive_parameters",
        )
    if request.background and request.store is False:
        raise InvalidRequest(
            "A background response is fetched later, so it must be stored. Leave store out, or background.",
            param="background",
        )
    _check_window(request)
    if services.store is None:
        for name in ("background", "conversation", "previous_response_id"):
            if getattr(request, name) and not (goes_on and name == "previous_response_id"):
                raise Unsupported(
                    f"This server stores nothing (store = \"none\"), so '{name}' cannot be honoured. "
                    "Send all items as input.",
                    param=name,
                )


def _check_window(request: ResponseRequest) -> None:
    """Check `background_options` (of the OpenAI API): a later completion window requires a background response that is
    not streamed."""
    window = request.background_options.completion_window if request.background_options else None
    if window in (None, "soonest"):
        return
    if not request.background or request.stream:
        raise InvalidRequest(
            f"A completion window of {window} is for background responses without a stream. "
            "Send background: true and leave stream out, or ask for 'soonest'.",
            param=("background_options", "completion_window"),
            code="invalid_value",
        )


def _request_params(
    before: int,
    own: Sequence[items.Item],
    conversation_id: str | None,
    *,
    logprobs: str = "top_logprobs",
    text_param: ParamPath = (),
    preamble: int = 0,
) -> AbstractContextManager[None]:
    """A context in which errors about a conversation name the parameters of the request. `before` is the number of
    items that precede the request's `own` ones, `preamble` how many of these are of a stored prompt."""
    return renamed_params(
        partial(
            request_path,
            before=before,
            own=len(own),
            source_param="previous_response_id" if conversation_id is None else "conversation",
            logprobs=logprobs,
            text_param=text_param,
            preamble=preamble,
        )
    )


def _compaction(request: ResponseRequest, model: ServedModel) -> CompactionSettings | None:
    wanted = compaction_settings(request, model)
    if wanted is not None and wanted.threshold is not None and not _generates(request):
        return None  # there is no prompt
    return wanted


def _generates(request: ResponseRequest) -> bool:
    cache = request.prompt_cache_options
    return request.generate is not False and not (cache is not None and cache.prewarm)


def _text_format(request: ResponseRequest) -> TextFormat:
    config = request.text.format
    match config.type:
        case "json_schema":
            wanted = TextFormat(
                kind="json_schema",
                name=config.name,
                schema=config.schema or {},
                strict=bool(config.strict),
                description=config.description,
            )
        case "json_object":
            wanted = TextFormat(kind="json_object")
        case _:
            wanted = TextFormat()
    return shared_format(request, wanted, "text.format")


def _summarizes(reasoning: ReasoningOptions | None, model: ServedModel) -> bool:
    asked = reasoning is not None and reasoning.requested_summary is not None
    return asked and model.config.reasoning_summary == "full"


def _logprobs(request: ResponseRequest) -> int | None:
    """Number of alternatives per token; None if log probabilities were not requested."""
    if request.top_logprobs:
        return request.top_logprobs
    return 0 if "message.output_text.logprobs" in (request.include or ()) else None


def _skeleton(
    request: ResponseRequest,
    model: ServedModel,
    sampling: Sampling,
    tools: list[Tool],
    conversation_id: str | None,
    prompt: FilledPrompt | None,
    *,
    store: bool,
) -> Response:
    """The response before any output, with every field that the API requires. `tools` are shown without credentials."""
    return Response(
        id=new_id("resp_"),
        background=bool(request.background),
        conversation=(ConversationReference(id=conversation_id) if conversation_id else UNSET),
        created_at=int(time.time()),
        model=model.name,
        status="in_progress",
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        parallel_tool_calls=request.parallel_tool_calls is not False,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=request.reasoning,
        safety_identifier=request.safety_identifier,
        service_tier=request.service_tier or "default",
        store=store,
        temperature=1.0 if sampling.temperature is None else sampling.temperature,
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        presence_penalty=sampling.presence_penalty or 0.0,
        frequency_penalty=sampling.frequency_penalty or 0.0,
        text=request.text or TextConfig(),
        tool_choice=request.tool_choice or "auto",
        tools=tools,
        top_logprobs=request.top_logprobs or 0,
        truncation=request.truncation or "disabled",
        user=request.user,
        prompt=UNSET if prompt is None else prompt.shown,
        prompt_cache_retention=_retention(request),
        prompt_cache_options=(
            UNSET
            if request.prompt_cache_options is None
            else _present(msgspec.to_builtins(request.prompt_cache_options))
        ),
    )


def _present(options: JsonObject) -> JsonObject:
    return {name: value for name, value in options.items() if value is not None}


def _retention(request: ResponseRequest) -> Literal["in_memory", "24h"] | UnsetType:
    match request.prompt_cache_retention:
        case None:
            return UNSET
        case "24h":
            return "24h"
        case _:
            return "in_memory"
