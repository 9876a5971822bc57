"""Planning: turns a decoded chat request into the plan of one answer."""

from __future__ import annotations

import time
from collections.abc import Mapping

from msgspec import Struct

from gateway.answers.chat.items import items_of
from gateway.answers.chat.store import CompletionToStore, to_store
from gateway.answers.chat.style import ChatStyle, style_of
from gateway.answers.chat.toolset import chat_toolset
from gateway.answers.hints import hints_of
from gateway.answers.parameter_checks import SCORES, check_chat_request, check_engine_parameters
from gateway.answers.request_settings import settings_of, with_prompt_parameters
from gateway.generation.error_params import ChatParams, tool_params
from gateway.generation.generation import GenerationSettings
from gateway.generation.sampling import sampling_of
from gateway.generation.text_format import text_format_of
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import SessionContext, TextFormat, Turn
from gateway.services import Services
from gateway.tools.toolset import Toolset
from gateway.wire.chat import ChatRequest
from gateway.wire.ids import new_id
from gateway.wire.large_bodies import threaded_if_many
from gateway.wire.refusals import check_needs

_TEXT = TextFormat()


class ChatPlan(Struct, frozen=True, kw_only=True):
    """Everything that is decided about an answer before it runs."""

    id: str
    created: int
    model: ServedModel
    turn: Turn
    request: ChatRequest
    params: ChatParams
    """A context in which errors about the turn name the parameters of the request."""
    toolset: Toolset
    settings: GenerationSettings
    n: int
    style: ChatStyle
    to_store: CompletionToStore | None
    """The request data to store with the answer; None if it is not stored."""


async def make_chat_plan(
    request: ChatRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    model_name: str | None = None,
) -> ChatPlan:
    """Plan an answer with the model `model_name`, by default the model that the request names. Raises a `GatewayError`
    that names the invalid parameter."""
    extended = check_chat_request(request, services)
    model = services.lookup.model(model_name or request.model)
    check_needs(request, SCORES, model.engine.capabilities)
    if extended:
        check_engine_parameters(request, model)
    conversation = await threaded_if_many(request.messages, items_of)
    context = SessionContext(owner=owner, items=conversation.items)
    toolset = await chat_toolset(request, services, model, context)
    turn = Turn(
        items=conversation.items,
        tools=toolset.definitions,
        tool_choice=toolset.choice,
        parallel_tool_calls=request.parallel_tool_calls is not False and not request.legacy,
        reasoning_effort=request.reasoning_effort,
        text_format=text_format_of(request) if extended else _TEXT,
        chat_template_kwargs=model.config.chat_template_kwargs,
    )
    if extended:
        turn = with_prompt_parameters(turn, request)
    most = request.max_completion_tokens
    sampling = sampling_of(
        request,
        model,
        max_tokens=most if most is not None else request.max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        prompt_logprobs=request.prompt_logprobs,
    )
    return ChatPlan(
        id=new_id("chatcmpl-"),
        created=int(time.time()),
        model=model,
        turn=turn,
        request=request,
        params=ChatParams(request, conversation.origins),
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
            tool_params=tool_params(request.tools) if request.tools else {},
            n=request.n or 1,
            extended=extended,
        ),
        n=request.n or 1,
        style=style_of(request, services, toolset, turn),
        to_store=to_store(request, sampling, owner),
    )
