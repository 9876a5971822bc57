"""Stores: where responses live."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gateway.wire.items import Item
from gateway.wire.response import Response


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response with all that later requests may ask of it."""

    response: Response
    input: Sequence[Item]
    """The items of this request alone, each with an id."""
    previous_response_id: str | None = None
    owner: str | None = None
    """Who may see it: the owner's key id, or None in anonymous mode."""

    @property
    def id(self) -> str:
        return self.response.id


class ResponseStore(Protocol):
    """Where responses live. Values are immutable; bounded in time and size; an owner sees only what is theirs.

    A miss is None or False, never an exception. A store that does not answer raises `StoreUnavailable`.
    """

    async def put(self, record: StoredResponse) -> None:
        """Keep `record` under its response's id, replacing what was there."""
        ...

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None: ...

    async def history(self, response_id: str, *, owner: str | None = None) -> Sequence[Item] | None:
        """All items up to and including that response's output, oldest first; None where it is not stored.

        A response keeps its ancestors' items alive: evicting or deleting an ancestor does not break its descendants.
        """
        ...

    async def delete(self, response_id: str, *, owner: str | None = None) -> bool:
        """Forget a response, its items and its events; False where there was none."""
        ...

    async def health(self) -> None:
        """Return if the store answers; raise `StoreUnavailable` if not."""
        ...
