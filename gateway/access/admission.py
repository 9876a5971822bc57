"""Admission control: limits on a model's running and queued requests. Requests beyond the limits are rejected
immediately."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import Literal

from gateway.access.fair_queue import INPUT_COST, OUTPUT_COST, FairQueue, QueueClient
from gateway.base.errors import EngineUnavailable, RateLimited
from gateway.engines.process.client import SharedPlace, SharedQueue
from gateway.engines.process.messages import QueueLimits
from gateway.plugins.protocols import Principal

_EVERYBODY = "everybody"
"""Name of the single client in a queue that serves requests in order of arrival."""


class Admission:
    """Admits requests to one model: `max_running` run concurrently, `max_waiting` more wait in a queue, others are
    rejected.

    With `scheduling` "fair", waiting requests are served by priority, and within a priority by a virtual token
    counter per principal (`gateway.access.fair_queue`). With "fifo", they are served in order of arrival.

    Background work, for which no client waits, has a positive priority of the request itself. It is served after all
    other requests. It leaves an eighth of the running slots free (at least one, if there are several), so that a
    client's next request need not wait for background work to end. Waiting background work does not count against the
    queue limits of other requests.
    """

    def __init__(
        self,
        name: str,
        *,
        max_running: int,
        max_waiting: int,
        scheduling: Literal["fair", "fifo"] = "fair",
        max_waiting_per_key: int | None = None,
        several: Callable[[], bool] = bool,
        on_idle: Callable[[], None] | None = None,
    ) -> None:
        """`max_waiting_per_key`: maximum number of waiting requests of one principal; None: as many as there are free
        places for others. `several`: returns whether there is more than one principal; a single principal may use the
        whole queue. `on_idle` is called when the last request has ended or was cancelled."""
        self._name = name
        self._on_idle = on_idle
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._fair = scheduling == "fair"
        self._max_waiting_per_key = max_waiting_per_key
        self._several = several
        self._queue: FairQueue[Reservation] = FairQueue()
        self._later: FairQueue[Reservation] = FairQueue()
        """The queue of background work."""
        self._waiting_of: dict[tuple[str, bool], int] = {}
        """Number of waiting requests by owner and whether they are background work."""
        self._waiting_later = 0
        """Number of requests in `waiting` that are background work."""
        self._mean_seconds = 1.0
        self.shared: SharedQueue | None = None
        """The common queue of all server processes, if several share the engine. A request needs a place there too."""
        self.is_open = True
        """Whether requests are admitted: the model is loaded."""
        self.running = 0
        self.waiting = 0
        self._most = 0

    def most_running(self) -> int:
        """The maximum number of concurrently running requests since the last call."""
        most, self._most = self._most, self.running
        return most

    def resize(
        self,
        max_running: int,
        max_waiting: int,
        *,
        scheduling: Literal["fair", "fifo"] = "fair",
        max_waiting_per_key: int | None = None,
    ) -> None:
        """Change the limits and the scheduling. Requests that already run or wait are kept."""
        self._max_running, self._max_waiting = max_running, max_waiting
        self._fair, self._max_waiting_per_key = scheduling == "fair", max_waiting_per_key
        self._next()
        if self.shared is not None:
            self.shared.resize(self.limits)

    @property
    def limits(self) -> QueueLimits:
        """The limits and the scheduling."""
        return QueueLimits(
            max_running=self._max_running,
            max_waiting=self._max_waiting,
            max_waiting_per_key=self._max_waiting_per_key,
            scheduling="fair" if self._fair else "fifo",
        )

    async def _claim(
        self, principal: Principal | None, prompt: int, priority: int
    ) -> SharedPlace | None:
        """Reserve a place in the common queue of all server processes; None if there is only one."""
        shared = self.shared
        if shared is None:
            return None
        return await shared.reserve(principal, prompt, several=self._several(), priority=priority)

    def reserve(
        self, principal: Principal | None = None, *, prompt: int = 0, priority: int = 0
    ) -> Reservation:
        """Reserve a place, running or queued, for a prompt of `prompt` tokens.

        `priority` is added to the principal's priority; a positive value marks background work, also with
        `scheduling` "fifo". The reservation must be entered or cancelled. Raises `RateLimited` with `retry_after` if
        no place is free, and `EngineUnavailable` if the model was unloaded. The method is synchronous, so that a
        rejection is sent as HTTP 429 before the answer begins.
        """
        if not self.is_open:
            raise EngineUnavailable(
                f"The model '{self._name}' has just been unloaded. Send the request again: it is loaded again then."
            )
        later = priority > 0
        waiting = self.waiting if later else self.waiting - self._waiting_later
        queued = self.running + waiting - self._max_running
        if queued >= self._max_waiting:
            raise RateLimited(
                f"The model '{self._name}' is at its limit of {self._max_running} running and {self._max_waiting} "
                "waiting requests. Retry later.",
                retry_after=self._retry_after(waiting),
            )
        owner = "" if principal is None else principal.name
        own = self._waiting_of.get((owner, False), 0)
        if later:
            own += self._waiting_of.get((owner, True), 0)
        if queued >= 0 and own and self._several():
            most = self._max_waiting_per_key or max(1, self._max_waiting - queued)
            if own >= most:
                raise RateLimited(
                    f"The API key '{owner}' has {own} requests waiting for the model '{self._name}'; the other places are for "
                    "other keys. Retry later.",
                    retry_after=self._retry_after(own),
                )
        self.waiting += 1
        self._waiting_later += later
        self._waiting_of[owner, later] = self._waiting_of.get((owner, later), 0) + 1
        return Reservation(self, principal, owner, prompt, priority)

    def _retry_after(self, ahead: int) -> int:
        waves = ahead / self._max_running + 1
        return max(1, min(60, math.ceil(self._mean_seconds * waves)))

    def _left(self, reservation: Reservation) -> None:
        """Update the counts for a reservation that no longer waits."""
        later = reservation.priority > 0
        self.waiting -= 1
        self._waiting_later -= later
        left = self._waiting_of[reservation.owner, later] - 1
        if left:
            self._waiting_of[reservation.owner, later] = left
        else:
            del self._waiting_of[reservation.owner, later]

    @property
    def _most_later(self) -> int:
        """The number of running requests below which background work may begin."""
        most = self._max_running
        return most - max(1, most // 8) if most > 1 else most

    def _queue_of(self, reservation: Reservation) -> FairQueue[Reservation]:
        # If the common queue of all server processes has let it start, holding it back here would waste its slot.
        held_back = reservation.priority > 0 and reservation._place is None
        return self._later if held_back else self._queue

    def _client_of(self, reservation: Reservation, queue: FairQueue[Reservation]) -> QueueClient:
        principal = reservation.principal
        if principal is None or not self._fair:
            return queue.client(_EVERYBODY, reservation.priority)
        # The prefix distinguishes names of principals from `_EVERYBODY`.
        name = f"={principal.name}"
        return queue.client(name, principal.priority + reservation.priority, principal.weight)

    def _begin(self, reservation: Reservation) -> asyncio.Future[None] | None:
        """Take a running slot if one is free, otherwise enter the queue. Returns None, or the future for `_wait`."""
        queue = self._queue_of(reservation)
        client = self._client_of(reservation, queue)
        most = self._max_running if queue is self._queue else self._most_later
        reservation.client = client
        cost = INPUT_COST * reservation.prompt + OUTPUT_COST * client.expected_output
        reservation.cost = cost
        queue.request_arrived(client)
        if self.running < most and not queue.size:
            queue.serve(client, cost)
            self._start(client, reservation)
            return None
        granted = reservation.granted = asyncio.get_running_loop().create_future()
        queue.push(client, reservation, cost)
        return granted

    async def _wait(self, reservation: Reservation, granted: asyncio.Future[None]) -> None:
        """Wait for a running slot."""
        try:
            await granted
        except asyncio.CancelledError:
            client = reservation.client
            assert client is not None, "it has begun to wait"
            if self._queue_of(reservation).discard(client, reservation):
                self._left(reservation)
                self._check_idle()
            elif not granted.cancelled():  # otherwise `_next` has skipped it
                self._end(client, None)
            raise

    def _start(self, client: QueueClient, reservation: Reservation) -> None:
        self._left(reservation)
        self.running += 1
        if self.running > self._most:
            self._most = self.running
        client.running += 1

    def _end(self, client: QueueClient, started: float | None) -> None:
        if started is not None:
            self._mean_seconds += 0.05 * (time.monotonic() - started - self._mean_seconds)
        self.running -= 1
        client.running -= 1
        self._next()
        self._check_idle()

    def _check_idle(self) -> None:
        if self._on_idle is not None and not self.running and not self.waiting:
            self._on_idle()

    def _next(self) -> None:
        """Give free slots to waiting requests."""
        if self._queue.size:
            self._serve(self._queue, self._max_running)
        if self._later.size:
            self._serve(self._later, self._most_later)

    def _serve(self, queue: FairQueue[Reservation], most: int) -> None:
        while queue.size and self.running < most:
            client, reservation = queue.pop()
            granted = reservation.granted
            if granted is None or granted.done():
                # It was cancelled, but its task has not been resumed yet.
                queue.charge(client, -reservation.cost)
                self._left(reservation)
            else:
                self._start(client, reservation)
                granted.set_result(None)

    def _settle(
        self, reservation: Reservation, client: QueueClient, change: float, output: int
    ) -> None:
        """Correct the client's counter by `change`, the difference of real and expected cost, and its expected
        output."""
        self._queue_of(reservation).charge(client, change)
        client.expected_output += 0.1 * (output - client.expected_output)


class Reservation:
    """A place in a model's queue. Either enter it once, which waits for a slot and holds it until exit, or `cancel()`
    it."""

    __slots__ = (
        "_admission",
        "_place",
        "_running_in",
        "client",
        "cost",
        "granted",
        "owner",
        "principal",
        "priority",
        "prompt",
        "started",
    )

    def __init__(
        self,
        admission: Admission,
        principal: Principal | None,
        owner: str,
        prompt: int,
        priority: int = 0,
    ) -> None:
        self._admission: Admission | None = admission
        """None after the reservation was entered or cancelled."""
        self._running_in = admission
        self._place: SharedPlace | None = None
        self.principal = principal
        self.owner = owner
        """The principal's name; "" for none."""
        self.prompt = prompt
        self.priority = priority
        self.client: QueueClient | None = None
        """The client of the fair queue to which the request belongs; None before it is entered."""
        self.cost = 0.0
        """The cost charged to the client: first the expected one, after `used` the real one."""
        self.started: float | None = None
        self.granted: asyncio.Future[None] | None = None
        """Done when the request gets a slot; None if it did not have to wait."""

    @property
    def admission(self) -> Admission:
        """The admission that the place belongs to."""
        return self._running_in

    async def claim(self) -> None:
        """Reserve a place in the common queue of all server processes now, if there are several. Raises `RateLimited`
        if no place is free.

        If this is not called, entering the reservation does the same.
        """
        if self._place is None and self._running_in.shared is not None:
            self._place = await self._running_in._claim(self.principal, self.prompt, self.priority)

    async def __aenter__(self) -> None:
        admission = self._admission
        if admission is None:
            raise RuntimeError("a reservation is used once")
        if admission.shared is not None:
            await self.claim()
            if self._place is not None:
                await self._place.begin()
        self._admission = None
        try:
            granted = admission._begin(self)  # same module
            if granted is not None:
                await admission._wait(self, granted)
        except BaseException:
            if self._place is not None:
                self._place.end()
            raise
        self.started = time.monotonic()

    async def __aexit__(self, *exc_info: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give back the slot. Same as leaving the context, but synchronous."""
        assert self.client is not None, "it was entered"
        if self._place is not None:
            self._place.end()
        self._running_in._end(self.client, self.started)

    def used(self, prompt: int, output: int) -> None:
        """Report the tokens that the request has used. Call it once, after exit. Does nothing if the request has not
        run."""
        if self.client is not None and self.started is not None:
            cost = INPUT_COST * prompt + OUTPUT_COST * output
            self._running_in._settle(self, self.client, cost - self.cost, output)
            self.cost = cost
            if self._place is not None:
                self._place.used(prompt, output)

    def cancel(self) -> None:
        """Give back the place. Does nothing if the reservation was entered or cancelled before."""
        if self._admission is not None:
            if self._place is not None:
                self._place.end()
            admission, self._admission = self._admission, None
            admission._left(self)
            admission._check_idle()
