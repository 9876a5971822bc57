"""From a decoded request to what has to be run: the plan of one response."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.errors import InvalidRequest, Unsupported
from gateway.loop.hints import hints_of
from gateway.loop.sampling import sampling_of
from gateway.protocols import (
    Sampling,
    TextFormat,
    Turn,
)
from gateway.responses.configuration_updates import with_updates
from gateway.responses.context_management import (
    WantedCompaction,
    wanted_compaction,
    without_trigger,
)
from gateway.responses.history import (
    assign_ids,
    history_of,
    kept_results,
    resolve_references,
    with_thoughts,
)
from gateway.responses.input_checks import check_ids, check_outputs, told_by_own_place
from gateway.responses.sealing import open_compactions, open_items
from gateway.serving.served import ServedModel, Services
from gateway.tools.client_run import brought_tools
from gateway.tools.requested import (
    ApprovedCall,
    approved_calls,
    items_without_credentials,
    list_request_tools,
    new_listings,
    without_credentials,
)
from gateway.tools.toolset import Toolset, build_toolset
from gateway.wire import items
from gateway.wire.common import JsonObject
from gateway.wire.ids import new_id
from gateway.wire.request import ResponseRequest
from gateway.wire.response import ConversationReference, Response
from gateway.wire.text import Reasoning, TextConfig


class Plan(Struct, kw_only=True):
    """All that is decided about a response before it runs."""

    model: ServedModel
    response: Response
    """As `response.created` will show it."""
    input: Sequence[items.Item]
    """This request's own items, each with an id."""
    history: Sequence[items.Item]
    """What it goes on from, oldest first."""
    turn: Turn
    toolset: Toolset
    sampling: Sampling
    store: bool
    stream: bool
    background: bool
    conversation_id: str | None
    wants_logprobs: bool
    seals_reasoning: bool
    """Whether reasoning items shall carry `encrypted_content`."""
    summarizes_reasoning: bool
    """Whether reasoning items shall carry their text as a summary too."""
    owner: str | None
    previous_response_id: str | None
    max_tool_calls: int | None
    cache_salt: str | None
    priority: int
    trace_headers: Mapping[str, str] | None
    hints: Mapping[str, str]
    truncate: bool
    """Whether the oldest turns may be left out of a prompt that is too long."""
    size: int
    """Bytes of the request's body: a hint of how long rendering takes."""
    listings: Sequence[items.McpListTools] = ()
    """Tool lists that the response shows before anything else; without ids."""
    include: Sequence[str] = ()
    """What the request wants to see of items besides."""
    approved: Sequence[ApprovedCall] = ()
    """Calls that are run before the model is asked."""
    body: bytes | None = None
    """The request's body, where it is stored with the response."""
    generates: bool = True
    """Whether the model is asked at all; if not, the response is there to be gone on from."""
    compaction: WantedCompaction | None = None
    """Whether, and when, it summarizes what it goes on from."""

    def faults_told(self) -> AbstractContextManager[None]:
        """Has errors about the turn's items name them by their places in the request."""
        before = len(self.turn.items) - len(self.input)
        return told_by_own_place(before, brought_by=_history_param(self.conversation_id))


# What is known and would change the answer if it were passed over.
_REFUSED = {
    "prompt": "Prompt templates are not stored on this server. Send the instructions and input themselves.",
    "moderation": "Moderation is not available on this server. Leave the parameter out.",
}


async def make_plan(
    request: ResponseRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
    unstored: Mapping[str, Sequence[items.Item]] | None = None,
) -> Plan:
    """Decide everything about a response. Raises what the client must be told, with the parameter that is at fault.

    `unstored` has the histories of responses that the request may go on from besides those that are stored, by their ids.
    """
    known = (unstored or {}).get(request.previous_response_id or "")
    _refuse(request, services, goes_on=known is not None)
    model = services.model(request.model)
    check_ids(request.input or ())
    sent = items_without_credentials(assign_ids(without_trigger(request.input or ())))
    own = open_items(sent, services.sealer, owner)
    history = await history_of(request, services.store, owner) if known is None else known
    own = await resolve_references(own, history, services.store, owner)
    check_outputs(own, history)
    request = with_updates(request, [*history, *own])
    offered, tools = services.offered_tools[model.name], request.tools or ()
    requested = await list_request_tools(tools, offered.choices, owner=owner)
    brought = brought_tools(history, own)
    toolset = build_toolset(
        tools,
        request.tool_choice,
        offered,
        requested,
        brought,
        renderer=model.renderer,
        owner=owner,
        items=[*history, *own],
    )
    services.omitted_tools.tell(toolset.omitted)
    text_format = _text_format(request)
    logprobs = _logprobs(request)
    sampling = sampling_of(request, model, max_tokens=request.max_output_tokens, logprobs=logprobs)
    store = request.store is not False and services.store is not None
    reasoning = request.reasoning
    with told_by_own_place(len(history), brought_by=_history_param(request.conversation_id)):
        context = open_compactions([*history, *own], services.sealer, owner, own=len(history))
    turn = Turn(
        items=with_thoughts(context),
        results=await kept_results([*history, *own], services.store, owner),
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
    )
    response = _skeleton(request, model, sampling, store=store)
    return Plan(
        model=model,
        response=response,
        input=own,
        history=history,
        turn=turn,
        toolset=toolset,
        sampling=sampling,
        store=store,
        stream=bool(request.stream),
        background=bool(request.background),
        conversation_id=request.conversation_id,
        wants_logprobs=logprobs is not None,
        seals_reasoning="reasoning.encrypted_content" in (request.include or ()),
        summarizes_reasoning=_summarizes(reasoning, model),
        owner=owner,
        previous_response_id=request.previous_response_id,
        max_tool_calls=request.max_tool_calls,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        trace_headers=trace_headers,
        hints=hints_of(request),
        truncate=request.truncation == "auto",
        size=size,
        include=request.include or (),
        listings=new_listings(requested, turn.items),
        approved=approved_calls(own, history, toolset.listed),
        generates=_generates(request),
        compaction=_compaction(request, model),
    )


def _refuse(request: ResponseRequest, services: Services, *, goes_on: bool) -> None:
    """Refuse what cannot be honoured, by itself or together. `goes_on`: the previous response is at hand."""
    for name, message in _REFUSED.items():
        if getattr(request, name, None):
            raise Unsupported(message, param=name)
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
    """A later completion window is for background responses that nobody follows (`background_options` of the OpenAI API)."""
    window = request.background_options.completion_window if request.background_options else None
    if window in (None, "soonest"):
        return
    if not request.background or request.stream:
        raise InvalidRequest(
            f"A completion window of {window} is for background responses without a stream. "
            "Send background: true and leave stream out, or ask for 'soonest'.",
            param="background_options.completion_window",
            code="invalid_value",
        )


def _history_param(conversation_id: str | None) -> str:
    """The parameter that brings the items before the request's own."""
    return "previous_response_id" if conversation_id is None else "conversation"


def _compaction(request: ResponseRequest, model: ServedModel) -> WantedCompaction | None:
    wanted = wanted_compaction(request, model)
    if wanted is not None and wanted.threshold is not None and not _generates(request):
        return None  # there is no prompt to be too long
    return wanted


def _generates(request: ResponseRequest) -> bool:
    cache = request.prompt_cache_options
    return request.generate is not False and not (cache is not None and cache.prewarm)


def _text_format(request: ResponseRequest) -> TextFormat:
    config = request.text.format if request.text is not None else None
    if config is None:
        return TextFormat()
    match config.type:
        case "json_schema":
            return TextFormat(
                kind="json_schema",
                name=config.name,
                schema=config.schema or {},
                strict=bool(config.strict),
                description=config.description,
            )
        case "json_object":
            return TextFormat(kind="json_object")
        case _:
            return TextFormat()


def _summarizes(reasoning: Reasoning | None, model: ServedModel) -> bool:
    asked = reasoning is not None and reasoning.asked_summary is not None
    return asked and model.config.reasoning_summary == "full"


def _logprobs(request: ResponseRequest) -> int | None:
    """How many alternatives per token, or None where log probabilities were not asked for."""
    if request.top_logprobs:
        return request.top_logprobs
    return 0 if "message.output_text.logprobs" in (request.include or ()) else None


def _skeleton(
    request: ResponseRequest, model: ServedModel, sampling: Sampling, *, store: bool
) -> Response:
    """The response before anything is generated, with every field that the API promises."""
    return Response(
        id=new_id("resp_"),
        background=bool(request.background),
        conversation=(
            ConversationReference(id=request.conversation_id) if request.conversation_id else UNSET
        ),
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
        tools=without_credentials(request.tools or ()),
        top_logprobs=request.top_logprobs or 0,
        truncation=request.truncation or "disabled",
        user=request.user,
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
