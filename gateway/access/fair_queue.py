"""The order in which waiting requests are served: a virtual token counter per client.

After Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024). The client with the smallest counter is
served next. The cost of each service, divided by the client's weight, is added to the client's counter. When a client
begins to wait, its counter is raised to the smallest counter of the waiting clients, so that no client can save up
service. While two clients wait all the time, the services that they receive (by weight) differ by a bounded amount,
whatever they send.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

INPUT_COST = 1.0
OUTPUT_COST = 2.0
"""Cost of an input token and of an output token, as in the paper."""
_SWEEP = 1024
"""Number of clients at which idle ones are first forgotten; then whenever twice as many as were left have
accumulated."""


class QueueClient:
    """One client of the queue. Clients with a lower `priority` are served first. `weight` is the client's share among
    clients of the same priority."""

    __slots__ = ("counter", "expected_output", "name", "priority", "running", "waiting", "weight")

    def __init__(self, name: str, priority: int, weight: float) -> None:
        self.name = name
        self.priority = priority
        self.weight = weight
        self.counter = 0.0
        self.waiting: OrderedDict[object, float] = OrderedDict()
        """Maps the waiting entries to their costs, oldest first."""
        self.running = 0
        self.expected_output = 0.0
        """Moving average of the output tokens of the client's requests."""


class _Level:
    """The waiting clients of one priority."""

    __slots__ = ("heap", "last", "size")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, QueueClient]] = []
        """Heap of the waiting clients' counters. It may contain outdated entries, which `_smallest` removes."""
        self.last: QueueClient | None = None
        """The client that was served last."""
        self.size = 0


class FairQueue(Generic[T]):
    """A queue of waiting entries, grouped by client. No operation takes time proportional to the number of entries."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, int], QueueClient] = {}
        self._levels: dict[int, _Level] = {}
        self._order: list[int] = []
        """The priorities of the levels, lowest first."""
        self._number = 0
        self.size = 0
        """Number of waiting entries."""
        self._sweep_at = _SWEEP

    def __len__(self) -> int:
        return self.size

    def client(self, name: str, priority: int = 0, weight: float = 1.0) -> QueueClient:
        """Return the client of that name and priority, and set its weight. Creates the client if necessary."""
        found = self._clients.get((name, priority))
        if found is None:
            self._forget_idle()
            found = self._clients[name, priority] = QueueClient(name, priority, weight)
            if priority not in self._levels:
                self._levels[priority] = _Level()
                self._order = sorted(self._levels)
        found.weight = weight
        return found

    def request_arrived(self, client: QueueClient) -> None:
        """Raise the counter of a client that begins to wait. Call this for each request, before `push`, or before
        `serve` if the request does not have to wait."""
        if client.waiting:
            return
        level = self._levels[client.priority]
        smallest = self._smallest(level) if level.size else None
        if smallest is not None:
            client.counter = max(client.counter, smallest.counter)
        elif level.last is not None and not client.running:
            client.counter = max(client.counter, level.last.counter)

    def push(self, client: QueueClient, entry: T, cost: float) -> None:
        """Add `entry`, whose service has the expected `cost`, behind the client's other entries."""
        level = self._levels[client.priority]
        client.waiting[entry] = cost
        level.size += 1
        self.size += 1
        if len(client.waiting) == 1:
            self._note(level, client)

    def pop(self) -> tuple[QueueClient, T]:
        """Remove and return the next entry and its client, and charge the client. Raises `IndexError` if no entry
        waits."""
        for priority in self._order:
            level = self._levels[priority]
            client = self._smallest(level)
            if client is not None:
                entry, cost = client.waiting.popitem(last=False)
                level.size -= 1
                self.size -= 1
                self.serve(client, cost)
                return client, entry  # type: ignore[return-value]  # entries are those that were pushed
        raise IndexError("nothing waits")

    def discard(self, client: QueueClient, entry: T) -> bool:
        """Remove a waiting entry. Returns False if it does not wait."""
        if client.waiting.pop(entry, None) is None:
            return False
        self._levels[client.priority].size -= 1
        self.size -= 1
        return True

    def serve(self, client: QueueClient, cost: float) -> None:
        """Note that the client is served, and add `cost` to its counter."""
        level = self._levels[client.priority]
        level.last = client
        self.charge(client, cost)

    def charge(self, client: QueueClient, cost: float) -> None:
        """Add `cost` to the client's counter. It is negative if a service has cost less than expected."""
        client.counter += cost / client.weight
        if client.waiting:
            self._note(self._levels[client.priority], client)

    def _note(self, level: _Level, client: QueueClient) -> None:
        self._number += 1
        heapq.heappush(level.heap, (client.counter, self._number, client))
        if len(level.heap) > 2 * len(self._clients) + 64:
            waiting = {id(each[2]): each[2] for each in level.heap if each[2].waiting}
            level.heap = [(each.counter, at, each) for at, each in enumerate(waiting.values())]
            heapq.heapify(level.heap)

    def _smallest(self, level: _Level) -> QueueClient | None:
        """The waiting client with the smallest counter; None if none waits."""
        heap = level.heap
        while heap:
            counter, _, client = heap[0]
            if client.waiting and client.counter == counter:
                return client
            heapq.heappop(heap)
        return None

    def _forget_idle(self) -> None:
        """Forget clients without waiting or running requests. Their counters are raised when they return."""
        if len(self._clients) < self._sweep_at:
            return
        for key, client in list(self._clients.items()):
            last = self._levels[client.priority].last
            if not client.waiting and not client.running and client is not last:
                del self._clients[key]
        for priority in [each for each, level in self._levels.items() if not level.size]:
            if not any(client.priority == priority for client in self._clients.values()):
                del self._levels[priority]
        self._order = sorted(self._levels)
        self._sweep_at = max(_SWEEP, 2 * len(self._clients))
