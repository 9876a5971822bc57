"""What a response goes on from: the history that its request names, and the items that it refers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.errors import InvalidRequest, NotFound
from gateway.protocols import UNFINISHED, CallRecord, ResponseStore, StoredResponse
from gateway.wire import items
from gateway.wire.content import ReasoningText
from gateway.wire.ids import new_id
from gateway.wire.request import ResponseRequest

_RESULT_APART = items.WebSearchCall | items.CodeInterpreterCall | items.FileSearchCall
"""Calls whose items do not show what the model read."""


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


def with_thoughts(context: Sequence[items.Item]) -> list[items.Item]:
    """A conversation as the model reads it: of reasoning whose text did not come with it, the summary stands for the text."""
    return [
        msgspec.structs.replace(item, content=[ReasoningText(text=summary)])
        if isinstance(item, items.Reasoning)
        and not item.content
        and (summary := "\n\n".join(part.text for part in item.summary if part.text))
        else item
        for item in context
    ]


async def kept_results(
    context: Sequence[items.Item], store: ResponseStore | None, owner: str | None
) -> Mapping[str, CallRecord]:
    """What the model read of those calls in `context` whose items do not show it."""
    wanted = {item.id for item in context if isinstance(item, _RESULT_APART)}
    if not wanted or store is None:
        return {}
    return await store.find_results(wanted, owner=owner)


async def history_of(
    request: ResponseRequest, store: ResponseStore | None, owner: str | None
) -> Sequence[items.Item]:
    """What the request goes on from, oldest first. Raises where there is no such history, or not yet."""
    if store is None:
        return ()
    if request.conversation_id is not None:
        return await _conversation_history(store, request.conversation_id, owner)
    previous = request.previous_response_id
    if previous is None:
        return ()
    parent: StoredResponse | None = await store.get(previous, owner=owner)
    history = None
    if parent is not None:
        if parent.response.status in UNFINISHED:
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


async def _conversation_history(
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
