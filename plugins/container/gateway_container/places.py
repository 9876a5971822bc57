"""The places of containers that are in use: shared between owners, who wait for them in turns."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import Any, NamedTuple

from gateway.sdk.processes import FairSlots, ShareExceeded
from gateway_container.config import ContainersConfig
from gateway_container.container import Container
from gateway_container.sandbox.budget import Budget, BudgetExceeded
from gateway_container.sandbox.isolation import Isolation
from gateway_container.sandbox.process import SandboxEnded

logger = logging.getLogger("gateway.container")

_LOOK_SECONDS = 0.5
"""Interval at which a call that waits looks for memory that other processes have given back."""


class _Waiter:
    def __init__(self, container: Container, memory: int) -> None:
        self.container = container
        self.memory = memory
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Held(NamedTuple):
    """What a sandbox that is being closed holds until then."""

    owner: str
    has_place: bool
    reserved: int | None


class Places:
    """A container in use has one of `max_running` places, and the memory of its sandbox is reserved. One that is idle has no place, and
    its sandbox is ended where another one needs room."""

    def __init__(
        self,
        config: ContainersConfig,
        isolation: Isolation,
        budget: Budget,
        containers: Callable[[], Collection[Container]],
        end: Callable[[Container], Coroutine[Any, Any, None]],
    ) -> None:
        """`containers`: those that have a sandbox or a place, and maybe others. `end` ends the sandbox of one."""
        self._config = config
        self._isolation = isolation
        self._budget = budget
        self._containers = containers
        self._end = end
        self._slots = FairSlots[_Waiter](config.max_running, max_waiting=config.max_waiting)
        self._ending: set[asyncio.Task[None]] = set()
        """Idle sandboxes that are ended to make room."""
        self._closing = 0
        """Sandboxes that are being closed."""

    @property
    def running(self) -> int:
        """Number of sandboxes in this process, including those that are starting or being closed."""
        return self._closing + sum(
            each.has_place or each.sandbox is not None for each in self._containers()
        )

    async def take(self, container: Container) -> None:
        """Wait for a place for a container that has none, and for the memory of its sandbox if it has none.

        Raises `SandboxEnded` if there is none within the time that a call may wait, or if too many calls of its owner wait.
        """
        waiter = _Waiter(container, self._isolation.memory(container.limits))
        try:
            self._slots.add(container.owner, waiter)
        except ShareExceeded:
            raise SandboxEnded(
                f"{self._reason(container)}, and as many calls as may wait for one are waiting. Try again later."
            ) from None
        self.serve()
        try:
            # A place that can be had at once is had, whatever the time limit.
            if not waiter.woken.done():
                async with asyncio.timeout(self._config.max_wait):
                    while not waiter.woken.done():
                        await asyncio.wait((waiter.woken,), timeout=_LOOK_SECONDS)
                        self.serve()
        except TimeoutError:
            if not waiter.woken.done():
                raise SandboxEnded(
                    f"{self._reason(container)}, and none became free within {self._config.max_wait:g} seconds. "
                    "Try again later."
                ) from None
        except BaseException:
            if waiter.woken.done():
                self.leave(container)
            raise
        finally:
            if not waiter.woken.done():
                self._slots.remove(container.owner, waiter)

    def leave(self, container: Container) -> None:
        """The container is idle from now on. Memory that is reserved without a sandbox is given back."""
        if container.sandbox is None and container.reserved is not None:
            self._budget.release(container.reserved)
            container.reserved = None
        if container.has_place:
            container.has_place = False
            self._slots.leave(container.owner)
        self.serve()

    def close(self, container: Container) -> Held:
        """The sandbox of the container is being closed. What it holds is given back by `closed`."""
        held = Held(container.owner, container.has_place, container.reserved)
        container.has_place, container.reserved = False, None
        self._closing += 1
        return held

    def closed(self, held: Held) -> None:
        """A sandbox has been closed."""
        self._closing -= 1
        if held.reserved is not None:
            self._budget.release(held.reserved)
        if held.has_place:
            self._slots.leave(held.owner)
        self.serve()

    def serve(self) -> None:
        """Give free places to those whose turn it is."""
        full = False

        def fits(owner: str, waiter: _Waiter) -> bool:
            nonlocal full
            if full:
                return False
            fitting = self._fits(waiter)
            # What is free next is the first one's: smaller ones do not overtake it for ever.
            full = fitting is None
            return bool(fitting)

        while (found := self._slots.next(fits)) is not None:
            _, waiter = found
            waiter.container.has_place = True
            waiter.woken.set_result(None)

    def _fits(self, waiter: _Waiter) -> bool | None:
        """Whether the container can have a place now; if so, memory is reserved. None if nobody can."""
        container = waiter.container
        if container.sandbox is not None:
            return True
        if self.running >= self._config.max_running:
            self._make_room("")
            return None
        try:
            container.reserved = self._budget.reserve(waiter.memory, container.owner)
        except BudgetExceeded as exceeded:
            self._make_room(container.owner if exceeded.of_owner else "")
            return False if exceeded.of_owner else None
        except OSError as error:  # nobody's call ends for it, and those that wait try again
            logger.warning("memory of a container could not be reserved: %s", error)
            return None
        return True

    def _make_room(self, owner: str) -> None:
        """Begin to end an idle sandbox, of the owner if one is given."""
        if len(self._ending) >= self._slots.are_waiting:
            return
        running = [each for each in self._containers() if each.sandbox is not None]
        idle = [each for each in running if not each.has_place and owner in ("", each.owner)]
        if not idle:
            return
        # One of the owner who has the most, so that one heavy user does not end the kept processes of others.
        had = Counter(each.owner for each in running)
        ended = min(idle, key=lambda each: (-had[each.owner], each.last_used))
        task = asyncio.create_task(self._end(ended))
        self._ending.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled() and (error := task.exception()):
            logger.warning("an idle container could not be ended: %r", error)
        self.serve()

    def _reason(self, container: Container) -> str:
        """Why there is no place."""
        owner, turns = container.owner, self._slots
        if (
            turns.held_by(owner) >= turns.most_of(owner)
            and turns.most_of(owner) < self._config.max_running
        ):
            return (
                f"{turns.held_by(owner)} of the {self._config.max_running} containers of this server are in use by you, "
                "which is the most that you may use at once"
            )
        if self.running >= self._config.max_running:
            return f"All {self._config.max_running} containers of this server are in use"
        return "The containers in use take all the memory that this server has for them, or all that you may use"
