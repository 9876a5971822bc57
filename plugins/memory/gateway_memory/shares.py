"""Resource usage per owner, and the choice of the owner to evict from."""

from __future__ import annotations

from collections.abc import Callable


class OwnerUsage:
    """Amount of one resource that each owner uses."""

    def __init__(self) -> None:
        self._used: dict[str | None, int] = {}
        self.total = 0

    def add(self, owner: str | None, amount: int) -> None:
        """Add `amount` to the usage of `owner`; it may be negative."""
        self.total += amount
        now = self._used.get(owner, 0) + amount
        if now:
            self._used[owner] = now
        else:
            self._used.pop(owner, None)

    def owner_over_share(
        self, most: int, is_evictable: Callable[[str | None], bool]
    ) -> list[str | None]:
        """The owner to evict from if the total exceeds `most`: the one with the highest usage among those who exceed
        an equal share and can give something.

        Returns a list of one owner, or an empty list, because None is a valid owner.
        """
        if self.total <= most:
            return []
        share = most / len(self._used)
        over = [each for each, used in self._used.items() if used > share and is_evictable(each)]
        return [max(over, key=self._used.__getitem__)] if over else []
