"""The resource `containers`: all containers of one gateway, shared by the tools and routes that use them."""

from __future__ import annotations

import asyncio
import logging
import secrets
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from gateway.sdk import NotFound, ParamPath, StoreUnavailable
from gateway.sdk.processes import TemporaryFolder
from gateway.sdk.wire import Deleted
from gateway_container.config import ContainersConfig
from gateway_container.container import Container, SandboxUse
from gateway_container.library import files, records, uploads
from gateway_container.library.database import ContainerDatabase
from gateway_container.library.records import ContainerSettings
from gateway_container.memory import bytes_of
from gateway_container.mirror import Mirror
from gateway_container.places import Held, Places
from gateway_container.sandbox.budget import Budget, open_budget
from gateway_container.sandbox.choice import choose_isolation, limits_of
from gateway_container.sandbox.isolation import Isolation
from gateway_container.sandbox.process import Sandbox, SandboxEnded, start_sandbox

logger = logging.getLogger("gateway.container")

_LOOK_SECONDS = 5.0
"""Interval between checks for containers that expired or were deleted by another process, in seconds."""


class Containers:
    """Made by `open_containers`."""

    def __init__(
        self,
        config: ContainersConfig,
        isolation: Isolation,
        database: ContainerDatabase,
        locks: Path,
        budget: Budget,
    ) -> None:
        self.config = config
        self._places = Places(config, isolation, budget, lambda: self._here.values(), self.end)
        self.database = database
        self._isolation = isolation
        self._locks = locks
        self._here: dict[str, Container] = {}
        """Containers that this process uses or that have a sandbox."""
        self._known: WeakValueDictionary[str, Container] = WeakValueDictionary()
        """Also includes containers that a request has found but not used yet, so that each has exactly one object."""
        self._ends: set[asyncio.Task[None]] = set()

    @property
    def seconds_to_start(self) -> float:
        """How long a call may wait until its container runs, in seconds."""
        return self.config.max_wait + self.config.start_timeout

    def find(self, container_id: str, owner: str | None, param: str | ParamPath) -> Container:
        """An unexpired container of `owner`. Raises `NotFound`."""
        row = self.database.now(lambda c: records.find(c, owner or "", container_id, param))
        found = self._known.get(container_id)
        if found is None:
            limits = limits_of(self.config, bytes_of(row["memory"]))
            found = Container(row["owner"], limits, self._locks, container_id=row["id"])
            self._known[container_id] = found
        return found

    def earlier(
        self, container_id: str, owner: str | None, settings: ContainerSettings
    ) -> Container | None:
        """The container of an earlier call, or None if it cannot be reused: it has expired, or `settings` asks for
        another memory size."""
        try:
            found = self.find(container_id, owner, "")
        except NotFound:
            return None
        limits = limits_of(self.config, bytes_of(settings.memory))
        return found if settings.memory is None or found.limits == limits else None

    def new(self, owner: str | None, settings: ContainerSettings | None = None) -> Container:
        """A new container for `owner`. No resources are allocated before it is used."""
        settings = settings or ContainerSettings(minutes=self.config.expiry_minutes)
        limits = limits_of(self.config, bytes_of(settings.memory))
        made = Container(owner or "", limits, self._locks, settings=settings)
        self._known[made.id] = made
        return made

    @asynccontextmanager
    async def used(self, container: Container, file_ids: Sequence[str] = ()) -> AsyncIterator[None]:
        """Use `container` for a response. It is stored from now on; its processes are kept after the response if the
        configuration says so. Copies the files of `file_ids` whose names do not exist in the container yet."""
        container.users += 1
        try:
            await self.make(container)
            await self.database.write(lambda c: records.touch(c, [container.id]))
            for file_id in file_ids:
                await self.add_upload(container.owner, container.id, file_id, anew=False)
            self._here[container.id] = container
            yield
        finally:
            container.users -= 1
            container.last_used = time.monotonic()
            if container.users == 0:
                if self._expired(container) or not container.sandbox:
                    await self.end(container)
                else:
                    self._places.leave(container)

    async def make(self, container: Container) -> None:
        """Store a new container, with the requested files. Raises `GatewayError`."""
        async with container.making:
            settings = container.settings
            if settings is None:
                return
            owner, container_id = container.owner, container.id
            await self.database.write(
                lambda c: records.insert(c, owner, container_id, settings, self.config)
            )
            try:
                for file_id in settings.file_ids:
                    await self.add_upload(owner, container_id, file_id)
            except BaseException:
                await self.database.write(lambda c: records.delete(c, owner, container_id))
                raise
            container.settings = None

    async def add_upload(
        self, owner: str, container_id: str, file_id: str, *, anew: bool = True
    ) -> str:
        """Copy an uploaded file into a stored container and return the id of the copy. Raises `GatewayError`.

        `anew`: copy it even if a file of that name exists.
        """
        async with uploads.opened(owner, file_id) as (name, content):

            def put(connection: sqlite3.Connection) -> sqlite3.Row:
                there = [
                    row for row in files.rows_of(connection, container_id) if row["path"] == name
                ]
                if there and not anew:
                    return there[0]
                return files.put(
                    connection,
                    owner,
                    container_id,
                    name,
                    content,
                    source="user",
                    config=self.config,
                )

            row = await self.database.write(put)
        copied: str = row["id"]
        return copied

    @asynccontextmanager
    async def working(self, container: Container) -> AsyncIterator[SandboxUse]:
        """Do one call's work in a used container. Stored files are copied into the sandbox before, and changes are
        stored afterwards. Calls of other processes wait. Raises `SandboxEnded` if no sandbox can be started."""
        async with container.lock.held():
            work = SandboxUse(await self._sandbox(container))
            if container.begun_anew:
                container.begun_anew = False
                work.notes.append(
                    "The container's processes were started anew: earlier variables and sessions are lost, files are kept."
                )
            yield work
            async with container.mirroring:
                if container.mirror is not None and container.sandbox is work.sandbox:
                    work.files, notes = await container.mirror.store_changes()
                    work.notes += notes

    async def delete(self, container_id: str, owner: str) -> Deleted:
        """Delete a container and end its processes. Raises `NotFound`."""
        deleted = await self.database.write(lambda c: records.delete(c, owner, container_id))
        if found := self._here.get(container_id):
            await self.end(found)
        return deleted

    async def end(self, container: Container) -> None:
        """End the processes of a container and wait for that. Its stored files are kept."""
        if container.users == 0:
            self._here.pop(container.id, None)
        await self._end_sandbox(container)

    async def end_all(self) -> None:
        for container in list(self._here.values()):
            await self.end(container)
        await asyncio.gather(*self._ends, return_exceptions=True)

    async def watch(self) -> None:
        """End the processes of containers that are idle for too long or were deleted. Never returns."""
        keep = self.config.keep_running
        pause = min(_LOOK_SECONDS, max(0.1, keep / 4)) if keep else _LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                here = list(self._here.values())
                for container in here:
                    if container.users == 0 and self._expired(container):
                        await self.end(container)
                await self._look(here)
            except (StoreUnavailable, OSError) as error:
                logger.debug("containers are looked at again in the next round: %s", error)
            except Exception:
                # Without this task no idle container would be ended any more.
                logger.exception("looking at the containers failed; it continues")

    async def _look(self, here: list[Container]) -> None:
        used = [each.id for each in here if each.users and each.settings is None]
        if used:
            await self.database.write(lambda c: records.touch(c, used))
        kept = {each.id: each for each in here if each.settings is None}
        for container_id in await self.database.read(lambda c: records.expired_ids(c, list(kept))):
            await self.end(kept[container_id])
        if await self.database.read(records.sweep_is_due):
            await self.database.write(records.sweep)
            await asyncio.to_thread(self._sweep_locks)

    def _sweep_locks(self) -> None:
        """Remove the locks of deleted containers."""
        ids = [path.name for path in self._locks.iterdir()]
        gone = self.database.now(
            lambda c: [name for name in ids if files.version_of(c, name) is None]
        )
        for each in gone:
            if each not in self._here:
                (self._locks / each).unlink(missing_ok=True)

    def _expired(self, container: Container) -> bool:
        """Whether the time for which its processes are kept is over."""
        now = time.monotonic()
        return (
            now - container.last_used >= self.config.keep_running
            or now - container.started > self.config.max_lifetime
        )

    async def _sandbox(self, container: Container) -> Sandbox:
        """A sandbox that contains all stored files."""
        async with container.starting:
            if container.sandbox is not None and not container.sandbox.alive:
                await self._end_sandbox(container)
            while not container.has_place:  # until then its kept sandbox may be ended
                await self._places.take(container)
            if container.sandbox is None:
                try:
                    container.sandbox = await self._start(container)
                except BaseException:
                    self._places.leave(container)
                    raise
                container.started = time.monotonic()
                # Before anything else can fail or be cancelled: a sandbox without it would be used without files.
                container.mirror = Mirror(
                    self.database, self.config, container.owner, container.id, container.sandbox
                )
                starts = await self.database.write(lambda c: records.record_start(c, container.id))
                container.begun_anew = starts > 1
            sandbox, mirror = container.sandbox, container.mirror
        async with container.mirroring:
            if mirror is not None:
                await mirror.fill()
        return sandbox

    async def _start(self, container: Container) -> Sandbox:
        """Start the sandbox in a separate task, so that a cancelled call leaves nothing half-started."""
        starting = asyncio.create_task(
            start_sandbox(
                self._isolation,
                # The name is unique: an engine removes the previous container with a delay, and workers have one
                # each.
                f"litegate-{container.id[5:21]}-{secrets.token_hex(4)}",
                container.limits,
                seconds=self.config.start_timeout,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.cancel()
            with suppress(asyncio.CancelledError, SandboxEnded):
                await (await starting).close()
            raise

    async def _end_sandbox(self, container: Container) -> None:
        sandbox, container.sandbox, container.mirror = container.sandbox, None, None
        if sandbox is None:
            return
        held = self._places.close(container)
        closing = asyncio.create_task(self._close(sandbox, held))
        self._ends.add(closing)  # awaited at shutdown, even if this task is cancelled
        closing.add_done_callback(self._ends.discard)
        await asyncio.shield(closing)

    async def _close(self, sandbox: Sandbox, held: Held) -> None:
        try:
            await sandbox.close()
        finally:
            self._places.closed(held)


@asynccontextmanager
async def open_containers(config: ContainersConfig) -> AsyncIterator[Containers]:
    """The containers of one gateway. Raises `ConfigurationError` if code cannot be isolated."""
    # Starting a sandbox needs a folder for temporary files: without one, its error says so.
    (await asyncio.to_thread(TemporaryFolder, "gateway-sandbox")).remove()
    isolation = await choose_isolation(config)
    async with AsyncExitStack() as stack:
        folder = Path(config.path)
        if not config.path:
            made = await asyncio.to_thread(TemporaryFolder, "gateway-containers")
            folder = stack.enter_context(made)
            logger.info(
                "containers: their files are in a temporary folder of this process, and are gone with it; "
                "resources.containers.path names a folder to keep and to share"
            )
        database = await asyncio.to_thread(ContainerDatabase, folder)
        stack.callback(database.close)
        locks = folder / "locks"
        locks.mkdir(exist_ok=True, mode=0o700)
        one = isolation.memory(limits_of(config))
        budget = stack.enter_context(open_budget(config.max_total_memory_bytes, one))
        containers = Containers(config, isolation, database, locks, budget)
        watching = asyncio.create_task(containers.watch())
        try:
            yield containers
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await containers.end_all()
