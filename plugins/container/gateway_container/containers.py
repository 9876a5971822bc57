"""The containers of one gateway: whose they are, how many, and how long they live."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gateway.wire.ids import new_id
from gateway_container.config import SandboxConfig
from gateway_container.jail.spec import Limits
from gateway_container.sandbox.choice import choose_isolation, limits_of
from gateway_container.sandbox.isolation import Isolation
from gateway_container.sandbox.process import Sandbox, SandboxEnded, start_sandbox

logger = logging.getLogger("gateway.container")


class Container:
    """One container: its sandbox is started when it is needed, and anew where it has died."""

    def __init__(self, owner: str | None, limits: Limits) -> None:
        self.id = new_id("cntr_")
        self.owner = owner
        self.limits = limits
        self.created = self.last_used = time.monotonic()
        self.users = 0
        """Responses that use it now."""
        self.cells = asyncio.Lock()
        """Held by the cell that runs."""
        self.sandbox: Sandbox | None = None
        self.starting = asyncio.Lock()


class Containers:
    """Made by `open_containers`."""

    def __init__(self, config: SandboxConfig, isolation: Isolation) -> None:
        self._config = config
        self._isolation = isolation
        self._containers: dict[str, Container] = {}
        self._starting = 0
        self._ends: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many sandboxes there are, or are being started."""
        return self._starting + sum(bool(each.sandbox) for each in self._containers.values())

    def find(self, container_id: str, owner: str | None) -> Container | None:
        """A container that was made for `owner` and has not expired."""
        found = self._containers.get(container_id)
        if found is None or found.owner != owner or self._expired(found):
            return None
        return found

    @asynccontextmanager
    async def used(self, container: Container) -> AsyncIterator[None]:
        """A response uses `container`. Afterwards it is kept for a while, if the configuration says so; else it ends."""
        self._containers[container.id] = container
        container.users += 1
        try:
            yield
        finally:
            container.users -= 1
            container.last_used = time.monotonic()
            if container.users == 0 and (
                self._config.keep_seconds == 0 or self._expired(container) or not container.sandbox
            ):
                await self.end(container)

    def new(self, owner: str | None, memory: int | None = None) -> Container:
        """A container for `owner`, which costs nothing before it is used. `memory` in bytes."""
        return Container(owner, limits_of(self._config, memory))

    async def sandbox(self, container: Container) -> Sandbox:
        """The sandbox of a container that is used. Raises `SandboxEnded` where there can be none."""
        async with container.starting:
            if container.sandbox is not None and container.sandbox.alive:
                return container.sandbox
            await self._end_sandbox(container)
            await self._make_room()
            self._starting += 1
            try:
                container.sandbox = await self._start(container)
            finally:
                self._starting -= 1
            return container.sandbox

    async def end(self, container: Container) -> None:
        """End a container, and wait until it is gone."""
        self._containers.pop(container.id, None)
        await self._end_sandbox(container)

    async def end_all(self) -> None:
        for container in list(self._containers.values()):
            await self.end(container)
        await asyncio.gather(*self._ends, return_exceptions=True)

    async def expire(self) -> None:
        """End what nobody has used for too long. Never returns."""
        while True:
            await asyncio.sleep(min(5.0, max(0.1, self._config.keep_seconds / 4)))
            for container in list(self._containers.values()):
                if container.users == 0 and self._expired(container):
                    await self.end(container)

    def _expired(self, container: Container) -> bool:
        if container.users > 0:
            return False
        now = time.monotonic()
        return (
            now - container.last_used > self._config.keep_seconds
            or now - container.created > self._config.max_lifetime
        )

    async def _start(self, container: Container) -> Sandbox:
        """Started by a task of its own: a call that is cancelled meanwhile leaves nothing half-made."""
        starting = asyncio.create_task(
            start_sandbox(
                self._isolation,
                f"litegate-{container.id[5:21]}",
                container.limits,
                seconds=self._config.start_timeout,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.cancel()
            with suppress(asyncio.CancelledError, SandboxEnded):
                await (await starting).close()
            raise

    async def _make_room(self) -> None:
        """Raises `SandboxEnded` where the machine is full of containers in use; else one that is only kept goes."""
        while self.running >= self._config.max_containers:
            idle = [each for each in self._containers.values() if not each.users and each.sandbox]
            if not idle:
                raise SandboxEnded(
                    f"All {self._config.max_containers} containers of this server are in use. Try again later."
                )
            await self.end(min(idle, key=lambda each: each.last_used))

    async def _end_sandbox(self, container: Container) -> None:
        sandbox, container.sandbox = container.sandbox, None
        if sandbox is None:
            return
        closing = asyncio.create_task(sandbox.close())
        self._ends.add(closing)  # waited for at shutdown, also where this task is cancelled now
        closing.add_done_callback(self._ends.discard)
        await asyncio.shield(closing)


@asynccontextmanager
async def open_containers(config: SandboxConfig, tool: str) -> AsyncIterator[Containers]:
    """The containers of the tool of that name. Raises `ConfigurationError` where code cannot be kept apart."""
    containers = Containers(config, await choose_isolation(config, tool))
    expiry = asyncio.create_task(containers.expire())
    try:
        yield containers
    finally:
        expiry.cancel()
        await asyncio.gather(expiry, return_exceptions=True)
        await containers.end_all()
