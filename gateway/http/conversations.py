"""/v1/conversations."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from functools import partial

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.answers.responses.appending import add_items
from gateway.answers.responses.own_items import with_unique_ids
from gateway.base.errors import ConversationFull, InvalidRequest, NotFound
from gateway.http.answers import json_answer
from gateway.http.body import read_body
from gateway.http.counted import counts
from gateway.http.pages import PAGED_BY, page_query, unknown_item
from gateway.http.queries import include_of, unknown_in
from gateway.http.state import HttpRequest, owner_of, services_of, store_of
from gateway.http.unknown import note_unknown
from gateway.items.included import as_listed
from gateway.tools.credentials import items_without_credentials
from gateway.wire.ids import new_id
from gateway.wire.item_lists import with_ids
from gateway.wire.items import Item, ItemReference
from gateway.wire.large_bodies import decode_body
from gateway.wire.listing import Deleted, listing
from gateway.wire.request import decode_conversation_request
from gateway.wire.response import Conversation

MAX_ITEMS = 20
"""Maximum number of items added by one request (OpenAI's limit)."""


@post("/v1/conversations", status_code=200)
@counts
async def create_conversation(request: HttpRequest) -> ASGIApp:
    """Create a conversation, with its initial items."""
    store, services, owner = store_of(request), services_of(request), owner_of(request)
    body = await read_body(request, services, may_be_empty=True)
    decoded = await decode_body(body or b"{}", decode_conversation_request)
    items = _new_items(decoded.items or [])
    conversation = Conversation(
        id=new_id("conv_"), created_at=int(time.time()), metadata=decoded.metadata or {}
    )
    await store.put_conversation(conversation, owner=owner)
    if items:
        bounds = services.conversation_bounds
        try:
            await add_items(store, conversation.id, items, owner=owner, bounds=bounds)
        except ConversationFull:
            await store.delete_conversation(conversation.id, owner=owner)
            raise
    return json_answer(conversation)


@get("/v1/conversations/{conversation_id:str}")
async def retrieve_conversation(request: HttpRequest, conversation_id: FromPath[str]) -> ASGIApp:
    """Retrieve a conversation, without its items."""
    return json_answer(await _conversation(request, conversation_id))


@post("/v1/conversations/{conversation_id:str}", status_code=200)
@counts
async def update_conversation(request: HttpRequest, conversation_id: FromPath[str]) -> ASGIApp:
    """Replace a conversation's metadata."""
    body = await read_body(request, services_of(request))
    decoded = await decode_body(body, partial(decode_conversation_request, require="metadata"))
    # Loaded last: a conversation that is deleted while the body arrives must not be stored again.
    conversation = await _conversation(request, conversation_id)
    changed = msgspec.structs.replace(conversation, metadata=decoded.metadata or {})
    await store_of(request).put_conversation(changed, owner=owner_of(request))
    return json_answer(changed)


@delete("/v1/conversations/{conversation_id:str}", status_code=200)
@counts
async def delete_conversation(request: HttpRequest, conversation_id: FromPath[str]) -> ASGIApp:
    """Delete a conversation and its items."""
    deleted = await store_of(request).delete_conversation(conversation_id, owner=owner_of(request))
    if not deleted:
        raise _unknown(conversation_id)
    return json_answer(Deleted(id=conversation_id, object="conversation.deleted"))


@post("/v1/conversations/{conversation_id:str}/items", status_code=200)
@counts
async def create_items(request: HttpRequest, conversation_id: FromPath[str]) -> ASGIApp:
    """Append items to a conversation."""
    await _conversation(request, conversation_id)
    include = _include(request)
    services = services_of(request)
    body = await read_body(request, services)
    decoded = await decode_body(body, partial(decode_conversation_request, require="items"))
    store, owner = store_of(request), owner_of(request)
    added = await add_items(
        store,
        conversation_id,
        _new_items(decoded.items or []),
        owner=owner,
        bounds=services.conversation_bounds,
    )
    if added is None:
        raise _unknown(conversation_id)
    return json_answer(listing(await _item_list(request, added, include), has_more=False))


@get("/v1/conversations/{conversation_id:str}/items")
async def list_items(request: HttpRequest, conversation_id: FromPath[str]) -> ASGIApp:
    """List a page of a conversation's items."""
    await _conversation(request, conversation_id)
    include = _include(request, PAGED_BY)
    query = page_query(request.query_params, default_order="desc")
    page = await store_of(request).list_items(
        conversation_id,
        after=query.after,
        limit=query.limit,
        order=query.order,
        owner=owner_of(request),
    )
    if page is None:
        raise unknown_item(query.after) if query.after else _unknown(conversation_id)
    shown = await _item_list(request, page.items, include)
    return json_answer(listing(shown, has_more=page.has_more))


@get("/v1/conversations/{conversation_id:str}/items/{item_id:str}")
async def retrieve_item(
    request: HttpRequest, conversation_id: FromPath[str], item_id: FromPath[str]
) -> ASGIApp:
    """Retrieve one item of a conversation."""
    include = _include(request)
    item = await store_of(request).get_item(conversation_id, item_id, owner=owner_of(request))
    if item is None:
        raise _unknown_item(item_id)
    (shown,) = await _item_list(request, [item], include)
    return json_answer(shown)


@delete("/v1/conversations/{conversation_id:str}/items/{item_id:str}", status_code=200)
@counts
async def delete_item(
    request: HttpRequest, conversation_id: FromPath[str], item_id: FromPath[str]
) -> ASGIApp:
    """Delete one item of a conversation. Answers with the conversation."""
    owner = owner_of(request)
    if not await store_of(request).delete_item(conversation_id, item_id, owner=owner):
        raise _unknown_item(item_id)
    return json_answer(await _conversation(request, conversation_id))


def _new_items(sent: list[Item]) -> list[Item]:
    if len(sent) > MAX_ITEMS:
        raise InvalidRequest(
            f"At most {MAX_ITEMS} items can be added at once, and these are {len(sent)}. Send several requests.",
            param="items",
            code="array_above_max_length",
        )
    for index, item in enumerate(sent):
        if isinstance(item, ItemReference):
            raise InvalidRequest(
                "Item references cannot be added to a conversation. Send the items themselves.",
                param=("items", index),
            )
    return with_unique_ids(with_ids(items_without_credentials(sent), new_id))


def _include(request: HttpRequest, known: Collection[str] = ()) -> frozenset[str]:
    """The query's `include` values; `known` are its other parameters."""
    names = unknown_in(request.query_params, known)
    note_unknown(request, services_of(request), "/v1/conversations", names)
    return include_of(request.query_params)


async def _item_list(
    request: HttpRequest, items: Sequence[Item], include: frozenset[str]
) -> list[Item]:
    sealer = services_of(request).sealer
    return await as_listed(
        items, include, store=store_of(request), sealer=sealer, owner=owner_of(request)
    )


async def _conversation(request: HttpRequest, conversation_id: str) -> Conversation:
    found = await store_of(request).get_conversation(conversation_id, owner=owner_of(request))
    if found is None:
        raise _unknown(conversation_id)
    return found


def _unknown(conversation_id: str) -> NotFound:
    return NotFound(
        f"Conversation with id '{conversation_id[:100]}' not found.", code="conversation_not_found"
    )


def _unknown_item(item_id: str) -> NotFound:
    return NotFound(f"Item with id '{item_id[:100]}' not found.", code="item_not_found")
