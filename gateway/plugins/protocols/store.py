"""Stores: responses, their event logs, conversations and chat completions.

Values are immutable. Everything is bounded in time and size. A response is evicted together with its items and its
events, and never while it is queued or in progress. Records are visible to their owner only; another owner's record
counts as missing. A miss is None or False, never an exception. A store that does not answer raises `StoreUnavailable`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.base.errors import StoreUnavailable
from gateway.plugins.protocols.prompt import CallRecord
from gateway.wire.common import JsonObject
from gateway.wire.items import Item
from gateway.wire.response import Conversation, Response, ResponseStatus
from gateway.wire.stored_chat import StoredChatCompletion

Order: TypeAlias = Literal["asc", "desc"]

UNFINISHED: Final[frozenset[ResponseStatus]] = frozenset(("queued", "in_progress"))
"""The statuses of a response that is not finished."""


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response with everything that later requests may need."""

    response: Response
    input: Sequence[Item]
    """The items of this request only, each with an id."""
    previous_response_id: str | None = None
    conversation_id: str | None = None
    owner: str | None = None
    """Key id of the owner; None in anonymous mode. Only the owner can see the record."""
    streamed: bool = False
    """Whether it was created with `stream: true` in the background, and so has an event log that can be read."""
    request: bytes | None = None
    """The request's body, if the response may have to be run again after its process died."""
    attempt: int = 0
    """Number of times that the run was restarted because its process was considered dead, plus one once `ending` is
    set. The store accepts nothing from earlier attempts, whose process may still be alive."""
    ending: Response | None = None
    """The final state that an unfinished response gets once its items are in its conversation; without its output,
    which `response` has. If its process dies before that, another process completes it."""
    results: Mapping[str, CallRecord] = {}
    """Records of calls by item id: the calls of this response whose items do not show what the model wrote and read."""

    @property
    def id(self) -> str:
        return self.response.id


class ItemPage(Struct, frozen=True, kw_only=True):
    """Part of a list of items, in the requested order."""

    items: Sequence[Item]
    has_more: bool


class StoredCompletion(Struct, frozen=True, kw_only=True):
    """A chat completion that was created with `store: true`."""

    completion: StoredChatCompletion
    messages: Sequence[JsonObject]
    """The messages of its request, each with an id, as they are listed."""
    owner: str | None = None
    """Key id of the owner; None in anonymous mode. Only the owner can see the record."""

    @property
    def id(self) -> str:
        return self.completion.id


class CompletionPage(Struct, frozen=True, kw_only=True):
    """Part of a list of completions, in the requested order."""

    completions: Sequence[StoredChatCompletion]
    has_more: bool


class ItemsPresent(Exception):
    """Items that should be new to a conversation have ids that it already contains. Nothing was added."""

    def __init__(self, ids: Collection[str]) -> None:
        super().__init__(f"{len(ids)} ids are in the conversation already")
        self.ids = frozenset(ids)


class ConversationBounds(Struct, frozen=True):
    """Size limits of one conversation."""

    items: int
    bytes: int
    """Total size of all items as the store counts it; approximately their size as JSON."""


class Responses(Protocol):
    """Responses and their histories."""

    async def put(self, record: StoredResponse) -> None:
        """Store `record` under its response's id, replacing any earlier one."""
        ...

    async def advance(
        self,
        record: StoredResponse,
        *,
        expected: Collection[ResponseStatus],
        attempt: int | None = None,
    ) -> bool:
        """Atomically replace the stored record if its status is among `expected` and its attempt is `attempt` (default:
        the new record's). Returns False, without a change, otherwise.

        This ensures that a response reaches a terminal status exactly once, whichever process sets it.
        """
        ...

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None: ...

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        """All items up to and including that response's output, oldest first; None if the response is not stored.

        Takes time proportional to the length, in a bounded number of round trips. A response keeps its ancestors' items
        alive: evicting or deleting an ancestor does not break its descendants. For a response of a conversation only
        its own input and output are returned; earlier items belong to the conversation.
        """
        ...

    async def find_items(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, Item]:
        """Items of stored responses, inputs and outputs alike, by id. Ids that are not found are left out.

        Resolves `item_reference`, with which clients name items of any stored response. A bounded number of round
        trips.
        """
        ...

    async def find_results(
        self, item_ids: Collection[str], *, owner: str | None = None
    ) -> Mapping[str, CallRecord]:
        """The `results` of stored responses for these items. Ids that are not found are left out.

        Like items, results of ancestors' calls are kept until the last response that continues from them is gone. The
        results of a response that has no descendants, or that belongs to a conversation, are removed together with it.
        A lookup renews the responses' lifetime, as getting them does. A bounded number of round trips.
        """
        ...

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        """Delete a response, its items and its events; False if there was none. Ends the readers of its events."""
        ...


class EventLogs(Protocol):
    """The events of background responses, as encoded JSON, in the order of their sequence numbers from 0."""

    async def append_events(
        self, response_id: str, events: Sequence[bytes], *, last: bool = False, attempt: int = 0
    ) -> bool:
        """Append events to a response's log in one round trip; `last` marks the end of the log.

        Returns False, without a change, if the response was deleted, its log has ended, or the stored attempt is not
        `attempt`. The same holds if the response has a terminal status and these events are not the last: a process
        that was considered dead can then only end the log.
        """
        ...

    async def count_events(self, response_id: str) -> int:
        """Number of events in the log, which is the sequence number of the next one."""
        ...

    def read_events(
        self, response_id: str, *, after: int = -1
    ) -> AsyncGenerator[Sequence[bytes], None]:
        """Events with a sequence number above `after`: the logged ones, then new ones as they are appended.

        There are no gaps or duplicates; available events come in one batch. Ends after the log's last event, or when
        the response is deleted. Waits without polling. Any number of concurrent readers.
        """
        ...


Append: TypeAlias = Callable[[Sequence[bytes], bool], bool | None]
"""Appends events to one log. The second argument marks them as the last."""
Notification: TypeAlias = Callable[[bool | StoreUnavailable], None]
"""Receives what `append_events` would have returned or raised."""


@runtime_checkable
class BufferedAppends(Protocol):
    """Optional addition to `append_events`: appending without awaiting, which saves a task switch per token."""

    def open_log(self, response_id: str, notify: Notification, *, attempt: int = 0) -> Append:
        """Return a function that appends to the log of a stored response, for the process that runs it.

        The function returns True or False, like `append_events`, if the write completes immediately. Otherwise it returns
        None, and `notify` is called once from the event loop, in the order of the calls. If a write fails, those queued
        behind it fail with it and are not written. `advance`, `append_events` and `count_events` of the same response
        wait for all pending writes.
        """
        ...


class Leases(Protocol):
    """Leases on running responses, so that a replica can tell a dead process from a slow one."""

    async def lease(self, holder: str, response_ids: Collection[str], *, seconds: float) -> None:
        """Lease these responses to `holder` for `seconds` from now; renews an existing lease. One round trip."""
        ...

    async def release(self, holder: str, response_id: str) -> None:
        """End `holder`'s lease on this response."""
        ...

    async def take_orphans(
        self, holder: str, *, seconds: float, limit: int = 100
    ) -> Sequence[StoredResponse]:
        """Take over the responses whose lease has expired: each is leased to `holder`, and no two callers get the same
        one.

        Returns unfinished responses, and streamed ones that have ended while their log has not.
        """
        ...

    async def request_cancel(self, response_id: str) -> None:
        """Ask the process that runs the response to cancel it."""
        ...

    def cancel_requests(self) -> AsyncGenerator[str, None]:
        """Ids of responses whose cancellation is requested, starting with the first `anext`. Endless. One reader per
        process."""
        ...


class Conversations(Protocol):
    """Conversations and their items."""

    async def put_conversation(
        self, conversation: Conversation, *, owner: str | None = None
    ) -> None:
        """Store a conversation, new or changed. Its items do not change."""
        ...

    async def get_conversation(
        self, conversation_id: str, *, owner: str | None = None
    ) -> Conversation | None: ...

    async def delete_conversation(self, conversation_id: str, *, owner: str | None = None) -> bool:
        """Delete a conversation and its items."""
        ...

    async def append_items(
        self,
        conversation_id: str,
        items: Sequence[Item],
        *,
        owner: str | None = None,
        bounds: ConversationBounds | None = None,
        new: bool = False,
    ) -> bool:
        """Append items contiguously; False if there is no such conversation.

        An item whose id is already in the conversation is not added twice. With `new`, no id may be in the
        conversation: otherwise raises `ItemsPresent` with those that are, without adding anything. Atomic: of two
        callers with the same id, the later one gets the error. Raises `ConversationFull`, without adding anything, if
        the conversation would exceed `bounds`.
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
        """A page of a conversation's items: those that follow the item `after`, in `order`; all of them if `limit` is
        None.

        None if there is no such conversation, or no item `after` in it.
        """
        ...

    async def get_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> Item | None: ...

    async def delete_item(
        self, conversation_id: str, item_id: str, *, owner: str | None = None
    ) -> bool: ...


class Completions(Protocol):
    """Stored chat completions."""

    async def put_completion(self, record: StoredCompletion) -> None:
        """Store `record` under its completion's id, replacing any earlier one. It becomes the latest."""
        ...

    async def get_completion(
        self, completion_id: str, *, owner: str | None = None
    ) -> StoredCompletion | None: ...

    async def update_completion(
        self, completion_id: str, metadata: Mapping[str, str], *, owner: str | None = None
    ) -> StoredCompletion | None:
        """Atomically replace a completion's metadata and return the completion. Its position in lists does not change."""
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
        """A page of an owner's completions that follow the completion `after`, in the order in which they were stored.

        Only completions of `model` whose metadata has all pairs of `metadata`. Takes time proportional to the number of
        completions scanned. None if there is no completion `after`.
        """
        ...


class SharedValues(Protocol):
    """Small named values, shared by all gateways that use the same store. Used to claim things that may happen only
    once."""

    async def compare_and_set(
        self,
        name: str,
        value: bytes,
        *,
        expected: bytes | None,
        seconds: float,
        owner: str | None = None,
    ) -> bytes | None:
        """Atomically set the value `name` for `seconds` if it is `expected` now (None: not set).

        Returns the value afterwards, which is `value` only if it was set. A value is kept until it expires and is never
        evicted. Does nothing if the owner's values are already too many or too large for another one. Values are not
        empty.
        """
        ...

    async def get_value(self, name: str, *, owner: str | None = None) -> bytes | None:
        """The value `name`; None if it is not set."""
        ...


class ResponseStore(
    Responses, EventLogs, Leases, Conversations, Completions, SharedValues, Protocol
):
    """All storage of a gateway."""

    @property
    def shared(self) -> bool:
        """Whether other processes see the data that this process stores."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether stored data outlasts this process, and is found by another process or the next one with this
        store."""
        ...

    async def health(self) -> None:
        """Return if the store answers; otherwise raise `StoreUnavailable`. Polled, so it must be cheap."""
        ...
