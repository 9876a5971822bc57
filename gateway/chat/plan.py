"""Planning: turns a decoded chat request into the plan of one answer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

from msgspec import Struct

from gateway.chat.items import items_of
from gateway.chat.params import request_path
from gateway.chat.search import WEB_SEARCH, searching_tools, web_search
from gateway.chat.store import CompletionToStore, to_store
from gateway.errors import InvalidRequest, Unsupported, renamed_params
from gateway.loop.generation import GenerationSettings
from gateway.loop.hints import hints_of
from gateway.loop.param_paths import tool_params
from gateway.loop.request_settings import (
    check_continuation,
    check_engine_parameters,
    settings_of,
)
from gateway.loop.sampling import sampling_of
from gateway.loop.text_format import text_format_of
from gateway.loop.unsupported import refuse, refuse_scores
from gateway.protocols import NamedTool, Sampling, SessionContext, Turn
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.tools.available import AvailableTools
from gateway.tools.requested import list_without_approval
from gateway.tools.toolset import Toolset, build_toolset
from gateway.wire.chat import ChatRequest, FinishReason
from gateway.wire.chat_messages import AssistantMessage
from gateway.wire.content import text_of
from gateway.wire.ids import new_id
from gateway.wire.items import Item, Message


class ChatStyle(Struct, frozen=True, kw_only=True):
    """What an answer shows, and in which form."""

    reasoning_fields: Sequence[str]
    """The fields that contain reasoning; if empty, reasoning is not shown."""
    logprobs: bool
    legacy: bool
    """Whether calls are shown as the legacy `function_call`."""
    calls_finish: FinishReason
    stream: bool
    includes_usage: bool
    continuous_usage: bool
    token_ids: bool
    times: bool
    """Whether it says how long it took."""
    prompt_logprobs: bool
    service_tier: str | None
    """The request's value."""
    lead: str
    """Text that precedes the output of each choice (`echo`)."""


class ChatPlan(Struct, frozen=True, kw_only=True):
    """Everything that is decided about an answer before it runs."""

    id: str
    created: int
    model: ServedModel
    turn: Turn
    request: ChatRequest
    origins: Sequence[int]
    """For each item of the turn, the index of its message."""
    toolset: Toolset
    settings: GenerationSettings
    n: int
    style: ChatStyle
    to_store: CompletionToStore | None
    """The data to store with the answer, if it is stored."""

    def request_params(self) -> AbstractContextManager[None]:
        """A context in which errors about the turn name the parameters of the request."""
        return renamed_params(partial(request_path, request=self.request, origins=self.origins))


async def make_chat_plan(
    request: ChatRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    model_name: str | None = None,
) -> ChatPlan:
    """Plan an answer, by the model `model_name` if that is not the one that the request names. Raises a `GatewayError`
    that names the invalid parameter."""
    _refuse(request)
    if request.store and services.store is None:
        raise Unsupported(
            'This server stores nothing (store = "none"). Leave store out.', param="store"
        )
    model = services.model(model_name or request.model)
    refuse_scores(request, model.engine.capabilities)
    check_engine_parameters(request, model)
    conversation = items_of(request.messages)
    context = SessionContext(owner=owner, items=conversation.items)
    toolset = await _toolset(request, services, model, context)
    turn = turn_of(request, model, toolset, conversation.items)
    sampling = _sampling(request, model)
    return ChatPlan(
        id=new_id("chatcmpl-"),
        created=int(time.time()),
        model=model,
        turn=turn,
        request=request,
        origins=conversation.origins,
        toolset=toolset,
        settings=settings_of(
            request,
            model,
            services,
            api="chat",
            sampling=sampling,
            owner=owner,
            size=size,
            trace_headers=trace_headers,
            hints=hints_of(request),
            tool_params=tool_params(request.tools or ()),
        ),
        n=request.n or 1,
        style=_style(request, services, toolset, turn),
        to_store=to_store(request, sampling, owner),
    )


def _refuse(request: ChatRequest) -> None:
    refuse(request, "chat")
    if request.modalities is not None and "audio" in request.modalities:
        raise Unsupported(
            "Audio output is not available on this server. Ask for text.", param="modalities"
        )
    if (
        request.top_logprobs and not request.logprobs
    ):  # 0 requests nothing, and some clients always send it
        raise InvalidRequest(
            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
            param="top_logprobs",
        )
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )
    if request.stream and request.prompt_logprobs is not None:
        raise InvalidRequest(
            "Log probabilities of the prompt are not streamed. Leave out stream, or prompt_logprobs.",
            param="prompt_logprobs",
        )
    if request.continue_final_message:
        check_continuation(request, isinstance(request.messages[-1], AssistantMessage))


def turn_of(
    request: ChatRequest, model: ServedModel, toolset: Toolset, items: Sequence[Item]
) -> Turn:
    """The turn of a request whose messages are `items`."""
    return Turn(
        items=items,
        tools=toolset.definitions,
        tool_choice=toolset.choice,
        parallel_tool_calls=request.parallel_tool_calls is not False and not request.legacy,
        reasoning_effort=request.reasoning_effort,
        text_format=text_format_of(request),
        chat_template=request.chat_template,
        chat_template_kwargs={
            **model.config.chat_template_kwargs,
            **(request.chat_template_kwargs or {}),
        },
        documents=request.documents or (),
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final_message=bool(request.continue_final_message),
    )


async def _toolset(
    request: ChatRequest, services: Services, model: ServedModel, context: SessionContext
) -> Toolset:
    offered = services.tools_of(model)
    listed = await list_without_approval(
        [server for servers in offered.chat_servers for server in servers()], context
    )
    tools, by_type = [*(request.tools or ())], {}
    asked = request.web_search_options
    if asked is not None and (found := searching_tools(offered, services.omitted_tools)):
        tools.append(web_search(asked))
        by_type[WEB_SEARCH] = found
    with renamed_params(partial(request_path, request=request)):
        return build_toolset(
            tools,
            request.tool_choice,
            AvailableTools(by_type=by_type, always=offered.chat, forbidden=offered.forbidden),
            listed,
            renderer=model.renderer,
            context=context,
        )


def _sampling(request: ChatRequest, model: ServedModel) -> Sampling:
    most = request.max_completion_tokens
    return sampling_of(
        request,
        model,
        max_tokens=most if most is not None else request.max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        prompt_logprobs=request.prompt_logprobs,
    )


def _style(request: ChatRequest, services: Services, toolset: Toolset, turn: Turn) -> ChatStyle:
    options = request.stream_options
    calls_finish: FinishReason = "function_call" if request.legacy else "tool_calls"
    if isinstance(toolset.choice, NamedTool):
        calls_finish = "stop"  # OpenAI's rule for a forced call
    last = turn.items[-1] if turn.items else None
    echoed = request.echo and isinstance(last, Message) and last.role == "assistant"
    return ChatStyle(
        reasoning_fields=(
            () if request.include_reasoning is False else services.config.server.chat_reasoning
        ),
        logprobs=bool(request.logprobs),
        legacy=request.legacy,
        calls_finish=calls_finish,
        stream=bool(request.stream),
        includes_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.include_usage and options.continuous_usage_stats),
        token_ids=bool(request.return_token_ids),
        times=bool(request.timings_per_token),
        prompt_logprobs=request.prompt_logprobs is not None,
        service_tier=request.service_tier,
        lead=text_of(last.content) if echoed and isinstance(last, Message) else "",
    )
