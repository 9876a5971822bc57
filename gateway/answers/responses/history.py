"""The history of a response: earlier items that its request continues from or refers to."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.errors import ConversationFull, InvalidRequest, NotFound
from gateway.plugins.protocols import (
    UNFINISHED,
    ConversationBounds,
    ResponseStore,
    StoredResponse,
)
from gateway.wire import items
from gateway.wire.common import encode
from gateway.wire.request import ResponseRequest


def check_room(context: Sequence[items.Item], bounds: ConversationBounds) -> None:
    """Raise `ConversationFull` if a conversation with the items of `context` has no room for a response. Called before
    the model is called."""
    number, size = len(context), sum(len(encode(item)) for item in context)
    if number >= bounds.items or size > bounds.bytes:
        error = ConversationFull.beyond(bounds.items, bounds.bytes)
        error.at = ("conversation",)
        raise error


async def resolve_references(
    own: Sequence[items.Item],
    history: Sequence[items.Item],
    store: ResponseStore | None,
    owner: str | None,
) -> list[items.Item]:
    """Replace each `item_reference` by its item, from `history` or any stored response. Raises `NotFound` for unknown
    items."""
    wanted = {item.id for item in own if isinstance(item, items.ItemReference)}
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
                f"Item with id '{item.id[:100]}' not found. Send the item itself; items are known only of responses that are "
                "stored.",
                param=("input", index, "id"),
                code="item_not_found",
            )
    return resolved


async def history_of(
    request: ResponseRequest, store: ResponseStore | None, owner: str | None
) -> Sequence[items.Item]:
    """Return the items that the request continues from, oldest first. Raises `InvalidRequest` or `NotFound` if the
    previous response or the conversation does not exist, or if the response has not ended."""
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
        # OpenAI answers 400 here, and 404 only if a URL path names a response that does not exist.
        raise InvalidRequest(
            f"Previous response with id '{previous[:100]}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return history


async def _conversation_history(
    store: ResponseStore, conversation_id: str, owner: str | None
) -> Sequence[items.Item]:
    """Return all items of a conversation, oldest first. Raises `NotFound`."""
    page = await store.list_items(conversation_id, owner=owner)
    if page is None:
        raise NotFound(
            f"Conversation with id '{conversation_id[:100]}' not found.",
            param="conversation",
            code="conversation_not_found",
        )
    return page.items
