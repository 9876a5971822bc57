"""Stores: where responses, their event logs, conversations and chat completions live.

Values are immutable. Everything is bounded in time and size: a response goes with its items and its events together, and
never while it is queued or in progress. An owner sees only what is theirs: what another stored is a miss. A miss is None
or False, never an exception; a store that does not answer raises `StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.errors import StoreUnavailable
from gateway.protocols.prompt import CallRecord
from gateway.wire.common import JsonObject
from gateway.wire.items import Item
from gateway.wire.response import Conversation, Response, ResponseStatus
from gateway.wire.stored_chat import StoredChatCompletion

Order: TypeAlias = Literal["asc", "desc"]

UNFINISHED: Final[frozenset[ResponseStatus]] = frozenset(("queued", "in_progress"))
"""The statuses of a response that is still being made."""


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response with all that later requests may ask of it."""

    response: Response
    input: Sequence[Item]
    """The items of this request alone, each with an id."""
    previous_response_id: str | None = None
    conversation_id: str | None = None
    owner: str | None = None
    """Who may see it: the owner's key id, or None in anonymous mode."""
    streamed: bool = False
    """Made with `stream: true` in the background: it has an event log that may be read."""
    request: bytes | None = None
    """The request's body, where an orphan may have to be run again."""
    attempt: int = 0
    """How often it was begun anew, because the owner of its run had died. An owner that was taken for dead and is not has an
    attempt that is over: the store takes nothing more from it."""
    results: Mapping[str, CallRecord] = {}
    """By item id: what the model wrote and read of those calls of this response whose items do not show it."""

    @property
    def id(self) -> str:
        return self.response.id


class ItemPage(Struct, frozen=True, kw_only=True):
    """A part of a list of items, in the order asked for."""

    items: Sequence[Item]
    has_more: bool


class StoredCompletion(Struct, frozen=True, kw_only=True):
    """A chat completion that was made with `store: true`."""

    completion: StoredChatCompletion
    messages: Sequence[JsonObject]
    """Of its request, each with an id, as they are listed."""
    owner: str | None = None
    """Who may see it: the owner's key id, or None in anonymous mode."""

    @property
    def id(self) -> str:
        return self.completion.id


class CompletionPage(Struct, frozen=True, kw_only=True):
    """A part of a list of completions, in the order asked for."""

    completions: Sequence[StoredChatCompletion]
    has_more: bool


class Responses(Protocol):
    """Responses and their histories."""

    async def put(self, record: StoredResponse) -> None:
        """Keep `record` under its response's id, replacing what was there."""
        ...

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        """Replace the stored record if its status is among `expected`, and its attempt is `attempt` (by default the new
        record's), atomically; False, and no change, if not.

        It is how a response reaches a terminal status exactly once, whoever tries.
        """
        ...

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None: ...

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        """All items up to and including that response's output, oldest first; None where it is not stored.

        Costs time in proportion to its length, in a bounded number of round trips. A response keeps its ancestors'
        items alive: evicting or deleting an ancestor does not break its descendants. A response of a conversation has
        its own input and output alone here: what came before is the conversation's.
        """
        ...

    async def find_items(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, Item]:
        """Items of stored responses, inputs and outputs alike, by their ids; what is not found is left out.

        For `item_reference`, with which clients name what they have seen in any stored response. A bounded number of
        round trips.
        """
        ...

    async def find_results(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, CallRecord]:
        """The `results` of stored responses for these items; what is not found is left out.

        As with their items, a response keeps the results of its ancestors' calls: they are found until the last response
        that goes on from them is gone. A response that nothing goes on from, or that is of a conversation, takes its
        own along. Finding keeps: the responses live on as if they were got. A bounded number of round trips.
        """
        ...

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        """Forget a response, its items and its events; False where there was none. Readers of its events are ended."""
        ...


class EventLogs(Protocol):
    """The events of background responses, as encoded JSON, in the order of their sequence numbers from 0."""

    async def append_events(
        self, response_id: str, events: Sequence[bytes], *, last: bool = False, attempt: int = 0
    ) -> bool:
        """Add events to a response's log, in one round trip; `last` says that the log ends with them.

        False, and no change, for a response that was deleted meanwhile, whose log has ended, or that has ended itself, unless these are its last: once a
        response has its terminal status, an owner that was taken for dead adds nothing but what ends the log. Likewise where
        the stored attempt is not `attempt`.
        """
        ...

    async def count_events(self, response_id: str) -> int:
        """How many events the log has: the next one's sequence number."""
        ...

    def read_events(
        self, response_id: str, *, after: int = -1
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """The events whose sequence number is above `after`: those that are logged, then those that come.

        Without gap or duplicate; what is there at once comes in one batch. Ends after the log's last event, or when the
        response is deleted. Waits without polling. Any number of readers at once.
        """
        ...


Append: TypeAlias = Callable[[Sequence[bytes], bool], bool | None]
"""Adds events to one log; the second argument says that they are its last."""
Heard: TypeAlias = Callable[[bool | StoreUnavailable], None]
"""Hears what `append_events` would have returned or raised."""


@runtime_checkable
class AppendsSoon(Protocol):
    """What a store may have beside `append_events`: appending without waiting, which spares a task's step for each token."""

    def open_log(self, response_id: str, heard: Heard, *, attempt: int = 0) -> Append:
        """What adds events to the log of a stored response, as `append_events` does: for the one who runs it.

        It returns True or False where that is done at once. Else None, and `heard` is called once from the event loop, in
        the order of the calls. Where one fails, those that wait behind it fail with it, and are not written. `advance`,
        `append_events` and `count_events` of the same response wait until all is heard of.
        """
        ...


class Leases(Protocol):
    """Who runs what: so that a replica can tell a dead owner from a slow one."""

    async def lease(self, holder: str, response_ids: Collection[str], *, seconds: float) -> None:
        """`holder` runs these responses, for `seconds` from now unless it says so again. One round trip."""
        ...

    async def release(self, holder: str, response_id: str) -> None:
        """`holder` runs this response no more."""
        ...

    async def take_orphans(
        self, holder: str, *, seconds: float, limit: int = 100
    ) -> Sequence[StoredResponse]:
        """Responses whose lease has run out, each leased to `holder` from now on: no two callers get one.

        Unfinished ones, and streamed ones that have ended while their log has not.
        """
        ...

    async def request_cancel(self, response_id: str) -> None:
        """Ask whoever runs the response to cancel it."""
        ...

    def cancel_requests(self) -> AsyncGenerator[str, None]:
        """Ids of responses that anybody asks to cancel, from the first `anext` on; endless. One reader per process."""
        ...


class Conversations(Protocol):
    """Conversations and their items."""

    async def put_conversation(
        self, conversation: Conversation, *, owner: str | None = None
    ) -> None:
        """Keep a conversation, new or changed; its items stay as they are."""
        ...

    async def get_conversation(
        self, conversation_id: str, *, owner: str | None = None
    ) -> Conversation | None: ...

    async def delete_conversation(self, conversation_id: str, *, owner: str | None = None) -> bool:
        """Forget a conversation and its items."""
        ...

    async def append_items(
        self, conversation_id: str, items: Sequence[Item], *, owner: str | None = None
    ) -> bool:
        """Add items at the end, all of them next to each other; False where there is no such conversation.

        An item whose id is in the conversation already is not added twice.
        """
        ...

    async def list_items(
        self,
        conversation_id: str,
        *,
        after: str | None = None,
        limit: int | None = None,
        order: Order = "asc",
        owner: str | None = None,
    ) -> ItemPage | None:
        """A page of a conversation's items: those that follow the item `after`, in `order`; all where `limit` is None.

        None where there is no such conversation, or no item `after` in it.
        """
        ...

    async def get_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> Item | None: ...

    async def delete_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> bool: ...


class Completions(Protocol):
    """Chat completions that their clients asked to keep."""

    async def put_completion(self, record: StoredCompletion) -> None:
        """Keep `record` under its completion's id, replacing what was there; it is then the latest."""
        ...

    async def get_completion(
        self, completion_id: str, *, owner: str | None = None
    ) -> StoredCompletion | None: ...

    async def update_completion(
        self, completion_id: str, metadata: Mapping[str, str], *, owner: str | None = None
    ) -> StoredCompletion | None:
        """Replace a completion's metadata, atomically; the completion as it is then. Its place in lists stays."""
        ...

    async def delete_completion(self, completion_id: str, *, owner: str | None = None) -> bool: ...

    async def list_completions(
        self,
        *,
        after: str | None = None,
        limit: int = 20,
        order: Order = "asc",
        model: str | None = None,
        metadata: Mapping[str, str] | None = None,
        owner: str | None = None,
    ) -> CompletionPage | None:
        """A page of an owner's completions that follow the one named `after`, by the time at which they were put.

        Only those of `model`, and only those whose metadata has all pairs of `metadata`. Costs time in proportion to how
        many it passes over. None where there is no completion `after`.
        """
        ...


class ResponseStore(Responses, EventLogs, Leases, Conversations, Completions, Protocol):
    """Everything that a gateway keeps."""

    @property
    def shared(self) -> bool:
        """Whether other processes see what this one stores."""
        ...

    async def health(self) -> None:
        """Return if the store answers; raise `StoreUnavailable` if not. Cheap; polled."""
        ...
