"""Planning: turns a decoded request into the plan of one response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec import Struct

from gateway.answers.hints import hints_of
from gateway.answers.parameter_checks import (
    check_continuation,
    check_engine_parameters,
    check_response_request,
)
from gateway.answers.request_settings import settings_of, with_prompt_parameters
from gateway.answers.responses.configuration_updates import with_updates
from gateway.answers.responses.context_management import CompactionSettings, compaction_settings
from gateway.answers.responses.conversation import conversation_of
from gateway.answers.responses.initial_response import initial_response
from gateway.answers.responses.stored_prompts import with_prompt
from gateway.answers.responses.text_output import logprobs_of, text_format_of
from gateway.generation.error_params import ResponseParams, tool_params
from gateway.generation.generation import GenerationSettings
from gateway.generation.sampling import sampling_of
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import SessionContext, Turn
from gateway.services import Services
from gateway.tools.approved import ApprovedCall, approved_calls
from gateway.tools.credentials import server_addresses, without_credentials
from gateway.tools.requested import list_request_tools, new_listings
from gateway.tools.toolset import NO_REQUEST_TOOLS, Toolset, build_toolset
from gateway.wire import items
from gateway.wire.request import ResponseRequest
from gateway.wire.response import Response
from gateway.wire.tools import Tool


class Plan(Struct, kw_only=True):
    """Everything that is decided about a response before it runs."""

    model: ServedModel
    response: Response
    """The response as `response.created` shows it."""
    input: Sequence[items.Item]
    """The request's own items, each with an id."""
    history: Sequence[items.Item]
    """The items that the request continues from, oldest first."""
    turn: Turn
    toolset: Toolset
    settings: GenerationSettings
    params: ResponseParams
    """A context in which errors about the turn name the parameters of the request."""
    store: bool
    stream: bool
    shows_times: bool
    """Whether the response shows how long it took."""
    background: bool
    conversation_id: str | None
    wants_logprobs: bool
    shows_ids: bool
    """Whether the tokens of log probabilities are shown by their ids."""
    seals_reasoning: bool
    """Whether reasoning items contain `encrypted_content`."""
    summarizes_reasoning: bool
    """Whether reasoning items also contain their text as a summary."""
    owner: str | None
    previous_response_id: str | None
    max_tool_calls: int | None
    truncate: bool
    """Whether the oldest turns may be dropped from a prompt that is too long."""
    listings: Sequence[items.McpListTools] = ()
    """Tool lists that the response shows first. They have no ids yet."""
    include: Sequence[str] = ()
    """The request's `include` values."""
    approved: Sequence[ApprovedCall] = ()
    """Calls that are run before the first generation."""
    addresses: Mapping[str, str] = {}
    """See `server_addresses`."""
    has_credentials: bool = False
    """Whether the request contains credentials of tools, which are not stored."""
    body: bytes | None = None
    """The request body, if it is stored with the response."""
    kept_body: bytes | None = None
    """The request body of a background response. It is stored if the response is handed over because this process
    stops. None if it contains credentials, which are not stored."""
    generates: bool = True
    """Whether the model is called. If not, the response only extends the conversation."""
    compaction: CompactionSettings | None = None
    """The condition under which the response compacts its history; None if it never does."""
    preamble: int = 0
    """Number of items that a stored prompt adds to the turn before the conversation."""


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
    """Plan a response with the model `model_name`, by default the model that the request names. Raises a `GatewayError`
    that names the invalid parameter.

    `unstored` maps ids of responses that are not stored, but that the request may continue from, to their histories.
    """
    known = (unstored or {}).get(request.previous_response_id or "")
    extended = check_response_request(request, services, goes_on=known is not None)
    model = services.lookup.model(model_name or request.model)
    if extended:
        check_engine_parameters(request, model)
    prompt = None
    if request.prompt is not None:
        request, prompt = await with_prompt(request, services, owner)
    preamble = () if prompt is None else prompt.messages
    conversation = await conversation_of(request, services, model, owner, known, size=size)
    history, own, kinds = conversation.history, conversation.own, conversation.kinds
    again = conversation.again if request.conversation is None else 0
    if items.ConfigurationUpdate in kinds:
        request = with_updates(request, conversation.items)
    conversation_id, reasoning = request.conversation_id, request.reasoning
    logprobs, (text_format, text_param) = (
        logprobs_of(request),
        text_format_of(request, extended=extended),
    )
    offered, tools = services.tools_of(model), request.tools or ()
    context = SessionContext(owner=owner, items=conversation.items)
    requested = NO_REQUEST_TOOLS
    if offered.choices:
        requested = await list_request_tools(
            tools, offered.choices, context, builtins=offered.by_type
        )
    toolset = build_toolset(
        tools,
        request.tool_choice,
        offered,
        requested,
        conversation.tools,
        renderer=model.renderer,
        context=context,
    )
    if toolset.omitted:
        services.omitted_tools.report(toolset.omitted)
    sampling = sampling_of(request, model, max_tokens=request.max_output_tokens, logprobs=logprobs)
    store = request.store is not False and services.store is not None
    turn = Turn(
        items=[*preamble, *conversation.read] if preamble else conversation.read,
        results=conversation.results,
        instructions=request.instructions,
        tools=toolset.definitions,
        tool_choice=toolset.choice,
        parallel_tool_calls=request.parallel_tool_calls is not False,
        reasoning_effort=reasoning.effort if reasoning else None,
        text_format=text_format,
        chat_template_kwargs=model.config.chat_template_kwargs,
    )
    if extended:
        turn = with_prompt_parameters(turn, request)
    if turn.continue_final_message:
        last = turn.items[-1] if turn.items else None
        check_continuation(request, isinstance(last, items.Message) and last.role == "assistant")
    shown: list[Tool] = []
    addresses: Mapping[str, str] = {}
    if tools:
        addresses, shown = server_addresses(tools), without_credentials(tools)
    approved: Sequence[ApprovedCall] = ()
    if items.McpApprovalResponse in kinds:
        approved = approved_calls(
            own,
            history,
            toolset.listed,
            partial(services.approvals.check, owner=owner, addresses=addresses),
        )
    compaction = None
    triggered = items.CompactionTrigger in kinds
    if triggered or request.context_management:
        compaction = compaction_settings(request, model, triggered=triggered)
    return Plan(
        model=model,
        response=initial_response(
            request, model.name, sampling, shown, conversation_id, prompt, store=store
        ),
        # Each item is in one of the two. A conversation recognizes items that were sent again by their ids.
        input=own[again:],
        history=[*history, *own[:again]] if again else history,
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
            tool_params=tool_params(shown) if shown else {},
            extended=extended,
        ),
        params=ResponseParams(
            len(turn.items) - len(own),
            len(own),
            source="previous_response_id" if conversation_id is None else "conversation",
            logprobs="top_logprobs" if request.top_logprobs else "include",
            text=text_param,
            preamble=len(preamble),
        ),
        store=store,
        stream=bool(request.stream),
        shows_times=bool(request.timings_per_token),
        background=bool(request.background),
        conversation_id=conversation_id,
        wants_logprobs=logprobs is not None,
        shows_ids=bool(request.return_tokens_as_token_ids),
        seals_reasoning="reasoning.encrypted_content" in (request.include or ()),
        summarizes_reasoning=(
            reasoning is not None
            and reasoning.requested_summary is not None
            and model.config.reasoning_summary == "full"
        ),
        owner=owner,
        previous_response_id=request.previous_response_id,
        max_tool_calls=request.max_tool_calls,
        truncate=request.truncation == "auto",
        include=request.include or (),
        listings=new_listings(requested, turn.items) if requested.named else (),
        approved=approved,
        has_credentials=conversation.has_credentials or shown != [*tools],
        addresses=addresses,
        generates=request.generates,
        compaction=compaction,
        preamble=len(preamble),
    )
