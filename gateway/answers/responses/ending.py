"""Ending a response: adding its items to its conversation, and the form in which it is stored until they are added."""

from __future__ import annotations

import msgspec

from gateway.answers.responses.appending import add_items
from gateway.base.errors import (
    ConversationFull,
    GatewayError,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
)
from gateway.plugins.protocols import ConversationBounds, Conversations, StoredResponse
from gateway.wire.response import mark_failed, snapshot

KEPT_IN_CONVERSATION = ("completed", "incomplete")
"""Statuses of responses whose items are added to the conversation. Failed and cancelled responses add nothing."""


def goes_into_conversation(record: StoredResponse) -> bool:
    """Whether the items of this ended response are added to a conversation."""
    return record.conversation_id is not None and record.response.status in KEPT_IN_CONVERSATION


async def add_to_conversation(
    store: Conversations, record: StoredResponse, bounds: ConversationBounds | None
) -> StoredResponse:
    """Add the items of an ended response to its conversation, if `goes_into_conversation`. May be repeated.

    Returns the record with the input as the conversation has it: items have new ids if the conversation already had
    other items with their ids. Raises `ConversationFull`, without adding anything, if the conversation would exceed
    `bounds`.
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
    """Return the record of an ended response for the time until its conversation has its items: in progress, with an
    `ending`.

    Its attempt is increased, so that a process with an earlier record cannot end the response differently.
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
    """Add the items of a record with an `ending` to its conversation. Returns the record of the ended response, which
    has failed if the conversation is full. May be repeated."""
    assert record.ending is not None
    response = msgspec.structs.replace(record.ending, output=record.response.output.copy())
    ended = msgspec.structs.replace(record, response=response, ending=None)
    try:
        return await add_to_conversation(store, ended, bounds)
    except ConversationFull as error:
        mark_failed(response, failure_code(error), error.message)
    return ended


def failure_code(error: GatewayError) -> str:
    """Return the `error.code` of a response that failed with `error`: one of the codes of the API
    (`ResponseError.code`)."""
    match error:
        case RateLimited():
            return "rate_limit_exceeded"
        case InvalidRequest() | NotFound() | PayloadTooLarge():
            return "invalid_prompt"
        case _:
            return "server_error"
