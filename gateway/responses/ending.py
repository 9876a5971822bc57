"""The end of a response: what its conversation keeps of it, and how it is stored until that is kept."""

from __future__ import annotations

import msgspec

from gateway.errors import (
    ConversationFull,
    GatewayError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
)
from gateway.protocols import ConversationBounds, Conversations, StoredResponse
from gateway.responses.appending import add_items
from gateway.wire.response import mark_failed, snapshot

KEPT_IN_CONVERSATION = ("completed", "incomplete")
"""Statuses whose items a conversation keeps. Failed and cancelled responses add nothing to it."""


def goes_into_conversation(record: StoredResponse) -> bool:
    """Whether a conversation keeps the items of this ended response."""
    return record.conversation_id is not None and record.response.status in KEPT_IN_CONVERSATION


async def add_to_conversation(
    store: Conversations, record: StoredResponse, bounds: ConversationBounds | None
) -> StoredResponse:
    """Add an ended response to its conversation, unless that does not keep it. May be repeated.

    Returns the response as it is in the conversation: its input has other ids if somebody else has added items with the same
    ones. Raises `ConversationFull`, without adding anything, if the conversation would exceed `bounds`.
    """
    if record.conversation_id is None or not goes_into_conversation(record):
        return record
    own = len(record.input)
    kept = await add_items(
        store,
        record.conversation_id,
        [*record.input, *record.response.output],
        owner=record.owner,
        bounds=bounds,
        adder=record.id,
    )
    return record if kept is None else msgspec.structs.replace(record, input=kept[:own])


def as_ending(record: StoredResponse) -> StoredResponse:
    """An ended response as it is stored until its conversation has its items: in progress, with its `ending`.

    Its attempt is increased, so that a process with an earlier record cannot end it in another way.
    """
    response = snapshot(record.response)
    response.status = "in_progress"
    response.completed_at = response.incomplete_details = response.usage = None
    return msgspec.structs.replace(
        record,
        response=response,
        ending=msgspec.structs.replace(record.response, output=[]),
        attempt=record.attempt + 1,
    )


async def completed_ending(
    store: Conversations, record: StoredResponse, bounds: ConversationBounds | None
) -> StoredResponse:
    """Do what is left to do for a record with an `ending`; returns the record of the ended response. May be repeated."""
    assert record.ending is not None
    response = msgspec.structs.replace(record.ending, output=record.response.output.copy())
    ended = msgspec.structs.replace(record, response=response, ending=None)
    try:
        return await add_to_conversation(store, ended, bounds)
    except ConversationFull as error:
        mark_failed(response, failure_code(error), error.message)
    return ended


def failure_code(error: GatewayError) -> str:
    """The `error.code` of a failed response, out of those that the API knows (`ResponseError.code`)."""
    match error:
        case RateLimited():
            return "rate_limit_exceeded"
        case InvalidRequest() | NotFound() | PayloadTooLarge():
            return "invalid_prompt"
        case _:
            return "server_error"
