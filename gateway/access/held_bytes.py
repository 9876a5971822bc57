"""Memory limits for WebSocket connections, per connection and per owner."""

from __future__ import annotations


class HeldBytes:
    """Counts the bytes of requests and histories that connections hold in this process, per owner."""

    def __init__(self, *, per_connection: int, per_owner: int) -> None:
        self.per_connection = per_connection
        self.per_owner = per_owner
        self._of_owners: dict[str | None, int] = {}

    def connection(self, owner: str | None) -> ConnectionBytes:
        """The counter of a new connection of `owner`. All anonymous connections share the owner None."""
        return ConnectionBytes(self, owner)

    def _add(self, owner: str | None, size: int) -> None:
        total = self._of_owners.get(owner, 0) + size
        if total:
            self._of_owners[owner] = total
        else:
            self._of_owners.pop(owner, None)

    def of(self, owner: str | None) -> int:
        """Total bytes held by the connections of `owner`."""
        return self._of_owners.get(owner, 0)


class ConnectionBytes:
    """The bytes held by one connection."""

    def __init__(self, held: HeldBytes, owner: str | None) -> None:
        self._held = held
        self._owner = owner
        self._size = 0

    def take(self, size: int) -> bool:
        """Add `size` bytes. Returns False, without a change, if that would exceed a limit."""
        held = self._held
        if self._size + size > held.per_connection or held.of(self._owner) + size > held.per_owner:
            return False
        self._change(size)
        return True

    def give_back(self, size: int) -> None:
        """Subtract `size` bytes."""
        self._change(-size)

    def close(self) -> None:
        """Subtract all bytes of the connection."""
        self._change(-self._size)

    def _change(self, size: int) -> None:
        self._size += size
        self._held._add(self._owner, size)  # same module
