"""The conversation of a request: its history, its own items, and the items as the model reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct

from gateway.access.sealing import open_items
from gateway.answers.responses.history import check_room, history_of, resolve_references
from gateway.answers.responses.input_checks import check_outputs, check_pairs
from gateway.answers.responses.model_context import read_by_model
from gateway.answers.responses.own_items import count_sent_again, own_items, with_unique_ids
from gateway.base.errors import ParamPath
from gateway.generation.error_params import ResponseParams
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import CallRecord
from gateway.services import Services
from gateway.tools.client_functions import BRINGS_TOOLS, ClientFunction, client_tools_of
from gateway.tools.credentials import items_without_credentials
from gateway.wire.items import Item, ItemReference, Message, Reasoning
from gateway.wire.large_bodies import threaded_if_large, threaded_if_many
from gateway.wire.request import ResponseRequest

_PLAIN: Final = frozenset({Message})
_ITEM: Final = 32
"""Number of request bytes whose processing takes about as long as an item of the history."""


class Conversation(Struct, frozen=True, kw_only=True):
    """The checked conversation of one request."""

    history: Sequence[Item]
    """The items that the request continues from, oldest first."""
    own: Sequence[Item]
    """The request's own items, each with an id, and without credentials."""
    again: int = 0
    """Number of items at the beginning of `own` that the client has sent again. They were the last items of the
    history, and are not in `history`."""
    items: Sequence[Item]
    """The history and the own items."""
    kinds: frozenset[type[Item]]
    """The types of all items, including items that were sent but removed. Processing of other types can be skipped."""
    read: Sequence[Item]
    """The items as the model reads them."""
    results: Mapping[str, CallRecord] = {}
    """Records by item id: content that the model reads but the item does not show."""
    tools: Sequence[tuple[ParamPath, ClientFunction]] = ()
    """The tools that items define, oldest first, each with its path."""
    has_credentials: bool = False
    """Whether the request's own items were sent with credentials."""


async def conversation_of(
    request: ResponseRequest,
    services: Services,
    model: ServedModel,
    owner: str | None,
    known: Sequence[Item] | None,
    *,
    size: int,
) -> Conversation:
    """Return the conversation of a request to `model`, after checking it. `known` is its history, if the history is not
    in the store. `size` is the size of the request body in bytes.

    Raises a `GatewayError` that names the invalid parameter.
    """
    own, kinds = await threaded_if_many(request.input or (), own_items)
    sent = own
    if not kinds.isdisjoint(BRINGS_TOOLS):
        own = items_without_credentials(own)
    has_credentials = own is not sent and own != sent
    if Reasoning in kinds:
        sealed, sealer = own, services.sealer
        own = await threaded_if_large(
            size, lambda: open_items(sealed, sealer, owner, model=model.name)
        )
    history = known or ()
    continues = request.previous_response_id is not None or request.conversation is not None
    if known is None and continues:
        history = await history_of(request, services.store, owner)
    again = 0
    if history and any(item.id for item in request.input or ()):
        if request.conversation is not None:
            own = await threaded_if_large(
                size + _ITEM * len(history), partial(with_unique_ids, own, history)
            )
        again = await threaded_if_large(size, partial(count_sent_again, own, history))
        history = history[: len(history) - again]
        if history and request.conversation is not None:
            sent_ids = {item.id for item in own if not isinstance(item, ItemReference)}
            if sent_ids.issuperset(item.id for item in history):
                history = ()  # the client has sent the whole history again
    if ItemReference in kinds:
        # An item that is referenced twice becomes two items of this request.
        own = with_unique_ids(await resolve_references(own, history, services.store, owner))
    whole = [*history, *own] if history else own
    if request.conversation is not None:
        check_room(whole, services.conversation_bounds)
    if history or kinds != _PLAIN:
        kinds = kinds.union(map(type, whole))
    if kinds <= _PLAIN:  # the common case
        return Conversation(
            history=history, own=own, again=again, items=whole, kinds=kinds, read=whole
        )
    size += _ITEM * len(history)
    await threaded_if_large(size, partial(_check, own, history, whole, strict=services.strict))
    source = "previous_response_id" if request.conversation is None else "conversation"
    with ResponseParams(len(history), len(own), source=source):
        tools = [] if kinds.isdisjoint(BRINGS_TOOLS) else client_tools_of(whole)
        read, results = await read_by_model(
            whole, kinds, services, model, owner, own=len(history), size=size
        )
    return Conversation(
        history=history,
        own=own,
        again=again,
        items=whole,
        kinds=kinds,
        read=read,
        results=results,
        tools=tools,
        has_credentials=has_credentials,
    )


def _check(
    own: Sequence[Item], history: Sequence[Item], whole: Sequence[Item], *, strict: bool
) -> None:
    if strict:
        check_pairs(own, whole)
    check_outputs(own, history)
