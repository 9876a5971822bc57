"""/v1/chat/completions: stored completions (`store: true`)."""

from __future__ import annotations

import re

from litestar import delete, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.base.errors import InvalidRequest, NotFound, ParamPath
from gateway.http.answers import json_answer
from gateway.http.body import read_body
from gateway.http.counted import counts
from gateway.http.pages import page_query
from gateway.http.state import HttpRequest, owner_of, services_of, store_of
from gateway.plugins.protocols import StoredCompletion
from gateway.wire.large_bodies import decode_body
from gateway.wire.listing import Deleted, Listing, listing
from gateway.wire.request import decode_metadata
from gateway.wire.stored_chat import (
    decode_update,
)

_METADATA = re.compile(r"metadata\[(.+)\]", re.DOTALL)


@get("/v1/chat/completions")
async def list_chat_completions(request: HttpRequest) -> ASGIApp:
    """List a page of the stored completions, optionally filtered by model and metadata."""
    params = request.query_params
    query = page_query(params, default_order="asc")
    if params.get("metadata"):
        raise InvalidRequest(
            "Metadata is filtered by one parameter for each key: metadata[key]=value.",
            param="metadata",
            code="invalid_value",
        )
    wanted = {
        found[1]: value for key, value in params.items() if (found := _METADATA.fullmatch(key))
    }
    page = await store_of(request).list_completions(
        after=query.after,
        limit=query.limit,
        order=query.order,
        model=_model(request, params.get("model")),
        metadata=decode_metadata(wanted),
        owner=owner_of(request),
    )
    if page is None:
        raise _unknown(query.after or "", param="after")
    return json_answer(listing(page.completions, has_more=page.has_more))


@get("/v1/chat/completions/{completion_id:str}")
async def retrieve_chat_completion(request: HttpRequest, completion_id: FromPath[str]) -> ASGIApp:
    """Retrieve a stored completion."""
    return json_answer((await _record(request, completion_id)).completion)


@post("/v1/chat/completions/{completion_id:str}", status_code=200)
@counts
async def update_chat_completion(request: HttpRequest, completion_id: FromPath[str]) -> ASGIApp:
    """Replace a stored completion's metadata."""
    metadata = await decode_body(await read_body(request, services_of(request)), decode_update)
    record = await store_of(request).update_completion(
        completion_id, metadata, owner=owner_of(request)
    )
    if record is None:
        raise _unknown(completion_id)
    return json_answer(record.completion)


@delete("/v1/chat/completions/{completion_id:str}", status_code=200)
@counts
async def delete_chat_completion(request: HttpRequest, completion_id: FromPath[str]) -> ASGIApp:
    """Delete a stored completion and its messages."""
    if not await store_of(request).delete_completion(completion_id, owner=owner_of(request)):
        raise _unknown(completion_id)
    return json_answer(Deleted(id=completion_id, object="chat.completion.deleted"))


@get("/v1/chat/completions/{completion_id:str}/messages")
async def list_chat_messages(request: HttpRequest, completion_id: FromPath[str]) -> ASGIApp:
    """List a page of the request messages of a stored completion."""
    query = page_query(request.query_params, default_order="asc")
    messages = list((await _record(request, completion_id)).messages)
    if query.order == "desc":
        messages.reverse()
    ids = [message["id"] for message in messages]
    if query.after is not None:
        if query.after not in ids:
            raise NotFound(
                f"Message with id '{query.after[:100]}' not found.",
                param="after",
                code="message_not_found",
            )
        messages = messages[ids.index(query.after) + 1 :]
    shown = messages[: query.limit]
    return json_answer(
        Listing(
            data=shown,
            first_id=shown[0]["id"] if shown else None,
            last_id=shown[-1]["id"] if shown else None,
            has_more=len(messages) > query.limit,
        )
    )


def _model(request: HttpRequest, name: str | None) -> str | None:
    """The name under which a model's completions are stored: its own name if `name` is an alias, otherwise `name`."""
    if not name:
        return None
    return services_of(request).aliases.get(name, name)


async def _record(request: HttpRequest, completion_id: str) -> StoredCompletion:
    record = await store_of(request).get_completion(completion_id, owner=owner_of(request))
    if record is None:
        raise _unknown(completion_id)
    return record


def _unknown(completion_id: str, *, param: str | ParamPath = ()) -> NotFound:
    return NotFound(
        f"Chat completion with id '{completion_id[:100]}' not found. Only those made with store: true are kept.",
        param=param,
        code="chat_completion_not_found",
    )
