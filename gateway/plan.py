"""From a decoded request to what has to be run: the plan of one response."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from msgspec import UNSET, Struct

from gateway.errors import InvalidRequest, NotFound, Unsupported
from gateway.protocols import ResponseStore, Sampling, StoredResponse, TextFormat, Turn
from gateway.request_tools import (
    ApprovedCall,
    approved_calls,
    items_without_credentials,
    list_request_tools,
    new_listings,
    without_credentials,
)
from gateway.sampling import sampling_of
from gateway.sealing import open_items
from gateway.served import ServedModel, Services
from gateway.toolset import Toolset, build_toolset
from gateway.wire import items
from gateway.wire.ids import new_id
from gateway.wire.request import ResponseRequest
from gateway.wire.response import ConversationReference, Response
from gateway.wire.text import TextConfig


class Plan(Struct, kw_only=True):
    """All that is decided about a response before it runs."""

    model: ServedModel
    response: Response
    """As `response.created` will show it."""
    input: Sequence[items.Item]
    """This request's own items, each with an id."""
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
    owner: str | None
    previous_response_id: str | None
    max_tool_calls: int | None
    cache_salt: str | None
    priority: int
    trace_headers: Mapping[str, str] | None
    truncate: bool
    """Whether the oldest turns may be left out of a prompt that is too long."""
    size: int
    """Bytes of the request's body: a hint of how long rendering takes."""
    listings: Sequence[items.McpListTools] = ()
    """Tool lists that the response shows before anything else; without ids."""
    approved: Sequence[ApprovedCall] = ()
    """Calls that are run before the model is asked."""


# What is known and would change the answer if it were passed over.
_REFUSED = {
    "prompt": "Prompt templates are not stored on this server. Send the instructions and input themselves.",
    "moderation": "Moderation is not available on this server. Leave the parameter out.",
    "context_management": "Context management is not available on this server. Leave it out.",
}


async def make_plan(
    request: ResponseRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
) -> Plan:
    """Decide everything about a response. Raises what the client must be told, with the parameter that is at fault."""
    _refuse(request, services)
    model = services.model(request.model)
    sent = items_without_credentials(assign_ids(request.input or ()))
    own = open_items(sent, services.sealer, owner)
    history = await _history(request, services, owner)
    own = await resolve_references(own, history, services.store, owner)
    offered, tools = services.offered_tools, request.tools or ()
    requested = await list_request_tools(tools, offered.choices, owner=owner)
    toolset = build_toolset(tools, request.tool_choice, offered, requested)
    text_format = _text_format(request)
    logprobs = _logprobs(request)
    sampling = sampling_of(request, model, max_tokens=request.max_output_tokens, logprobs=logprobs)
    store = request.store is not False and services.store is not None
    reasoning = request.reasoning
    turn = Turn(
        items=[*history, *own],
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
        turn=turn,
        toolset=toolset,
        sampling=sampling,
        store=store,
        stream=bool(request.stream),
        background=bool(request.background),
        conversation_id=request.conversation_id,
        wants_logprobs=logprobs is not None,
        seals_reasoning="reasoning.encrypted_content" in (request.include or ()),
        owner=owner,
        previous_response_id=request.previous_response_id,
        max_tool_calls=request.max_tool_calls,
        cache_salt=request.cache_salt,
        priority=request.priority or 0,
        trace_headers=trace_headers,
        truncate=request.truncation == "auto",
        size=size,
        listings=new_listings(requested, turn.items),
        approved=approved_calls(own, history, toolset.listed),
    )


def _refuse(request: ResponseRequest, services: Services) -> None:
    """Refuse what cannot be honoured, by itself or together."""
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
    if services.store is None:
        for name in ("background", "conversation", "previous_response_id"):
            if getattr(request, name):
                raise Unsupported(
                    f"This server stores nothing (store = \"none\"), so '{name}' cannot be honoured. "
                    "Send all items as input.",
                    param=name,
                )


def assign_ids(sent: Sequence[items.Item]) -> list[items.Item]:
    """The items of a request, each with an id and a status: the client's own where it sent them."""
    return [items.with_id(item, new_id) for item in sent]


async def resolve_references(
    own: Sequence[items.Item],
    history: Sequence[items.Item],
    store: ResponseStore | None,
    owner: str | None,
) -> list[items.Item]:
    """Replace each `item_reference` by the item that it names: of this response's history, or of any stored response."""
    wanted = {item.id for item in own if isinstance(item, items.ItemReference)}
    if not wanted:
        return list(own)
    known: dict[str, items.Item] = {item.id: item for item in history if item.id in wanted}
    if store is not None and (missing := wanted - known.keys()):
        known.update(await store.find_items(missing, owner=owner))
    resolved: list[items.Item] = []
    for index, item in enumerate(own):
        if not isinstance(item, items.ItemReference):
            resolved.append(item)
        elif item.id in known:
            resolved.append(known[item.id])
        else:
            raise NotFound(
                f"Item with id '{item.id}' not found. Send the item itself; items are known only of responses that are "
                "stored.",
                param=f"input[{index}].id",
                code="item_not_found",
            )
    return resolved


async def _history(
    request: ResponseRequest, services: Services, owner: str | None
) -> Sequence[items.Item]:
    store = services.store
    if store is None:
        return ()
    if request.conversation_id is not None:
        return await conversation_history(store, request.conversation_id, owner)
    previous = request.previous_response_id
    if previous is None:
        return ()
    parent: StoredResponse | None = await store.get(previous, owner=owner)
    history = None
    if parent is not None:
        if parent.response.status in ("queued", "in_progress"):
            raise InvalidRequest(
                f"Response '{previous}' is still {parent.response.status}. Wait until it has ended.",
                param="previous_response_id",
                code="previous_response_not_finished",
            )
        history = await store.history(previous, owner=owner)
    if history is None:
        raise NotFound(
            f"Previous response with id '{previous}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return history


async def conversation_history(
    store: ResponseStore, conversation_id: str, owner: str | None
) -> Sequence[items.Item]:
    """All items of a conversation, oldest first."""
    page = await store.list_items(conversation_id, owner=owner)
    if page is None:
        raise NotFound(
            f"Conversation with id '{conversation_id}' not found.",
            param="conversation",
            code="conversation_not_found",
        )
    return page.items


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
    )
