"""Fair sharing of limited resources between owners: threads, helper processes, lookups, sandboxes.

An owner is the name of the principal whose request is served (`current_owner`), never a name that a request chooses.
A resource has a number of slots. A free slot goes to the waiting owner that holds the fewest slots. By default an owner
may hold three quarters of the slots, rounded up. The number of waiting pieces of work may be limited for each owner: an
owner that exceeds the limit is rejected, and others are not affected.

How to use it:

- **Threads:** `await asyncio.to_thread(...)` in a running gateway: the threads of its event loop are `FairThreads`.
  For a separate pool of threads, use `FairThreads(4)` in place of `ThreadPoolExecutor(4)`.
- **Processes:** `gateway.base.process_pool.ProcessPool`.
- **Anything else:** `async with Shares(8).slot(): ...`
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, Generic, ParamSpec, TypeVar

from msgspec import Struct

T = TypeVar("T")
P = ParamSpec("P")

OWNER: ContextVar[str] = ContextVar("gateway.owner", default="")
"""The owner for which the current task runs. Set together with the context of each request."""


def current_owner() -> str:
    """The owner for which the current task runs. Empty in anonymous mode and for the gateway's own work."""
    return OWNER.get()


class ShareExceeded(Exception):
    """An owner has as many waiting pieces of work as it is allowed."""


class FairSlots(Generic[T]):
    """A fair queue of pieces of work for a limited number of slots. Not thread-safe.

    A free slot goes to the waiting owner that holds the fewest slots, and fewer than `each`; if several hold equally
    few, to the one that has waited longest since it was last served. Owners that always have work waiting therefore
    hold equal numbers of slots.
    """

    def __init__(
        self, places: int, *, each: int | None = None, max_waiting: int | None = None
    ) -> None:
        """`places`: number of slots. `each`: maximum number of slots of one owner, by default three quarters; work
        without an owner may hold all slots. `max_waiting`: maximum number of waiting pieces of one owner; None: no
        limit."""
        self._places = places
        self._each = max(1, places - places // 4) if each is None else each
        self._max_waiting = max_waiting
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        self._running: Counter[str] = Counter()
        self._taken = 0

    @property
    def are_waiting(self) -> int:
        """Number of waiting pieces of work."""
        return sum(map(len, self._waiting.values()))

    def held_by(self, owner: str) -> int:
        """Number of slots that the owner holds."""
        return self._running.get(owner, 0)

    def most_of(self, owner: str) -> int:
        """Maximum number of slots that the owner may hold."""
        return self._each if owner else self._places

    def add(self, owner: str, piece: T) -> None:
        """Add a piece of work to the queue. Raises `ShareExceeded` if the owner has too many."""
        waiting = self._waiting.get(owner)
        if self._max_waiting is not None:
            pieces = self._running[owner] + (len(waiting) if waiting else 0)
            if pieces >= self.most_of(owner) + self._max_waiting:
                raise ShareExceeded
        if waiting is None:
            waiting = self._waiting[owner] = deque()
        waiting.append(piece)

    def take(self, owner: str) -> bool:
        """Take a slot without waiting, if one is free, the owner may have it, and nothing of the owner waits.

        Returns whether a slot was taken. `leave` gives it back.
        """
        if (
            self._taken >= self._places
            or self._running[owner] >= self.most_of(owner)
            or owner in self._waiting
        ):
            return False
        self._taken += 1
        self._running[owner] += 1
        return True

    def next(self, fits: Callable[[str, T], bool] | None = None) -> tuple[str, T] | None:
        """Remove the next piece of work from the queue and give it a slot. Returns the owner and the piece, or None
        if no piece may run now. `leave` gives the slot back.

        `fits` returns whether an owner's first piece can get the other resources that it needs. If not, the owner is
        skipped.
        """
        if self._taken >= self._places:
            return None
        owner, fewest = None, self._places
        for each, pieces in self._waiting.items():
            running = self._running.get(each, 0)
            if running < min(fewest, self.most_of(each)) and (
                fits is None or fits(each, pieces[0])
            ):
                owner, fewest = each, running
                if not running:
                    break
        if owner is None:
            return None
        waiting = self._waiting[owner]
        piece = waiting.popleft()
        if waiting:
            self._waiting.move_to_end(owner)
        else:
            del self._waiting[owner]
        self._taken += 1
        self._running[owner] += 1
        return owner, piece

    def leave(self, owner: str) -> None:
        """Give back a slot of the owner."""
        self._taken -= 1
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]

    def remove(self, owner: str, piece: T) -> None:
        """Remove a waiting piece of work."""
        waiting = self._waiting[owner]
        waiting.remove(piece)
        if not waiting:
            del self._waiting[owner]

    def clear(self) -> list[T]:
        """Remove all waiting pieces of work, and return them."""
        all_of_them = [piece for waiting in self._waiting.values() for piece in waiting]
        self._waiting.clear()
        return all_of_them


class Shares:
    """A semaphore with slots that are shared fairly between owners. Thread-safe, and not bound to an event loop."""

    def __init__(
        self, places: int, *, each: int | None = None, max_waiting: int | None = None
    ) -> None:
        """See `FairSlots`."""
        self._slots = FairSlots[_Waiter](places, each=each, max_waiting=max_waiting)
        self._lock = threading.Lock()

    @asynccontextmanager
    async def slot(self, owner: str | None = None) -> AsyncIterator[None]:
        """Wait for a slot for the owner (by default the current one), and hold it within the context. Raises
        `ShareExceeded`."""
        owner = await self.take(owner)
        try:
            yield
        finally:
            self.leave(owner)

    async def take(self, owner: str | None = None) -> str:
        """Like `slot`, but the slot is held until `leave` is called. Returns the owner, for `leave`."""
        if owner is None:
            owner = current_owner()
        with self._lock:
            if self._slots.take(owner):
                return owner
            waiter = _Waiter(asyncio.get_running_loop().create_future())
            self._slots.add(owner, waiter)
        self._serve()
        if waiter.has_place:
            return owner
        try:
            await waiter.woken
        except asyncio.CancelledError:
            with self._lock:
                if not waiter.has_place:
                    self._slots.remove(owner, waiter)
                    raise
            self.leave(owner)
            raise
        return owner

    def take_free(self) -> str | None:
        """Take a slot for the current owner without waiting, until `leave`. Returns the owner; None if no slot is
        free for it."""
        owner = current_owner()
        with self._lock:
            return owner if self._slots.take(owner) else None

    def leave(self, owner: str) -> None:
        """Give back a slot. May be called in any thread."""
        with self._lock:
            self._slots.leave(owner)
        self._serve()

    def leave_all(self, owners: Iterable[str]) -> None:
        """Give back one slot for each of `owners`. May be called in any thread."""
        with self._lock:
            for owner in owners:
                self._slots.leave(owner)
        self._serve()

    def _serve(self) -> None:
        """Give the free slots to the next waiters."""
        while True:
            with self._lock:
                found = self._slots.next()
                if found is None:
                    return
                owner, waiter = found
                waiter.has_place = True
            try:
                waiter.woken.get_loop().call_soon_threadsafe(_wake, waiter.woken)
            except RuntimeError:  # the waiter's event loop is closed
                with self._lock:
                    self._slots.leave(owner)


class _Waiter:
    __slots__ = ("has_place", "woken")

    def __init__(self, woken: asyncio.Future[None]) -> None:
        self.woken = woken
        self.has_place = False


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


SHARE_THREADS: Final = "shared"
"""Prefix of the names of an event loop's default threads (`share_threads`)."""


class FairThreads(ThreadPoolExecutor):
    """A thread pool that is shared fairly between owners. A submitted call belongs to the owner of the submitting
    task."""

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        *,
        each: int | None = None,
        max_waiting: int | None = None,
    ) -> None:
        """See `ThreadPoolExecutor` and `FairSlots`. With `max_waiting`, `submit` raises `ShareExceeded`."""
        if max_workers is None:
            max_workers = min(32, (os.cpu_count() or 1) + 4)
        super().__init__(max_workers, thread_name_prefix)
        self._slots = FairSlots[_Work](max_workers, each=each, max_waiting=max_waiting)
        self._lock = threading.Lock()
        self._ended = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """See `ThreadPoolExecutor`."""
        future: Future[T] = Future()
        with self._lock:
            if self._ended:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._slots.add(current_owner(), _Work(future, fn, args, kwargs))
            found = self._slots.next()
            if found is not None:
                try:
                    super().submit(self._work, *found)
                except RuntimeError:
                    self._slots.leave(found[0])
                    raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `ThreadPoolExecutor`."""
        with self._lock:
            self._ended = True
            dropped = self._slots.clear() if cancel_futures else []
        for work in dropped:
            work.future.cancel()
        super().shutdown(wait)

    def _work(self, owner: str, work: _Work) -> None:
        """Run a piece of work, then the next ones from the queue until none may run."""
        while True:
            work.run()
            del work  # keep no reference while the thread is idle
            with self._lock:
                self._slots.leave(owner)
                found = self._slots.next()
            if found is None:
                return
            owner, work = found
            del found


class _Work(Struct, eq=False):
    """A submitted call and the future of its result."""

    future: Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function(*self.arguments, **self.options)
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)


def share_threads() -> None:
    """Share the threads of the running event loop (`asyncio.to_thread`) fairly between owners."""
    asyncio.get_running_loop().set_default_executor(FairThreads(thread_name_prefix=SHARE_THREADS))
