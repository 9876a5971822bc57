"""The resource `containers`: those of one gateway, for all tools and routes that use them."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from weakref import WeakValueDictionary

from gateway.errors import NotFound, StoreUnavailable
from gateway_container.config import ContainersConfig
from gateway_container.container import Container, Work
from gateway_container.kept import files, records, uploads
from gateway_container.kept.database import Database
from gateway_container.kept.objects import Deleted
from gateway_container.kept.records import Wish
from gateway_container.memory import bytes_of
from gateway_container.mirror import Mirror
from gateway_container.sandbox.choice import choose_isolation, limits_of
from gateway_container.sandbox.isolation import Isolation
from gateway_container.sandbox.process import Sandbox, SandboxEnded, start_sandbox

logger = logging.getLogger("gateway.container")

_LOOK_SECONDS = 5.0
"""How often what has expired, or was deleted by another process, is looked for."""


class Containers:
    """Made by `open_containers`."""

    def __init__(
        self, config: ContainersConfig, isolation: Isolation, database: Database, locks: Path
    ) -> None:
        self.config = config
        self.database = database
        self._isolation = isolation
        self._locks = locks
        self._here: dict[str, Container] = {}
        """Those that this process uses, or that have a sandbox."""
        self._known: WeakValueDictionary[str, Container] = WeakValueDictionary()
        """Also those that a request has found and not used yet, so that there is one object for each."""
        self._starting = 0
        self._ends: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """How many sandboxes there are in this process, or are being started."""
        return self._starting + sum(bool(each.sandbox) for each in self._here.values())

    def find(self, container_id: str, owner: str | None, param: str) -> Container:
        """A container that was made for `owner` and has not expired. Raises `NotFound`."""
        row = self.database.now(lambda c: records.find(c, owner or "", container_id, param))
        found = self._known.get(container_id)
        if found is None:
            limits = limits_of(self.config, bytes_of(row["memory"]))
            found = Container(row["owner"], limits, self._locks, container_id=row["id"])
            self._known[container_id] = found
        return found

    def earlier(self, container_id: str, owner: str | None, wish: Wish) -> Container | None:
        """A container of an earlier call, where it serves for `wish`: it has not expired, and has the memory."""
        try:
            found = self.find(container_id, owner, "")
        except NotFound:
            return None
        limits = limits_of(self.config, bytes_of(wish.memory))
        return found if wish.memory is None or found.limits == limits else None

    def new(self, owner: str | None, wish: Wish | None = None) -> Container:
        """A container for `owner`, which costs nothing before it is used."""
        wish = wish or Wish(minutes=self.config.expiry_minutes)
        limits = limits_of(self.config, bytes_of(wish.memory))
        made = Container(owner or "", limits, self._locks, wish=wish)
        self._known[made.id] = made
        return made

    @asynccontextmanager
    async def used(self, container: Container, file_ids: Sequence[str] = ()) -> AsyncIterator[None]:
        """A response uses `container`, which is kept from now on. Its processes are, for a while, if the configuration
        says so. Of `file_ids` those are copied whose names no file of it has yet."""
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
            if container.users == 0 and (self._expired(container) or not container.sandbox):
                await self.end(container)

    async def make(self, container: Container) -> None:
        """Keep a new container, with the files that were wished for. Raises `GatewayError`."""
        async with container.making:
            wish = container.wish
            if wish is None:
                return
            owner, container_id = container.owner, container.id
            await self.database.write(
                lambda c: records.insert(c, owner, container_id, wish, self.config)
            )
            try:
                for file_id in wish.file_ids:
                    await self.add_upload(owner, container_id, file_id)
            except BaseException:
                await self.database.write(lambda c: records.delete(c, owner, container_id))
                raise
            container.wish = None

    async def add_upload(
        self, owner: str, container_id: str, file_id: str, *, anew: bool = True
    ) -> str:
        """Copy an uploaded file into a container that is kept; the copy's id. Raises `GatewayError`.

        `anew`: also where a file of its name is there already.
        """
        async with uploads.opened(owner, file_id) as (name, content):

            def put(connection: sqlite3.Connection) -> sqlite3.Row:
                there = [
                    row for row in files.all_of(connection, container_id) if row["path"] == name
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
    async def working(self, container: Container) -> AsyncIterator[Work]:
        """A call works in a container that is used: its sandbox has all files that are kept, and afterwards what it has
        changed is kept. Calls of other processes wait. Raises `SandboxEnded` where there can be no sandbox."""
        async with container.turn.taken():
            work = Work(await self._sandbox(container))
            if container.begun_anew:
                container.begun_anew = False
                work.notes.append(
                    "The container's processes were started anew: earlier variables and sessions are lost, files are kept."
                )
            yield work
            async with container.mirroring:
                if container.mirror is not None and container.sandbox is work.sandbox:
                    work.files, notes = await container.mirror.keep()
                    work.notes += notes

    async def delete(self, container_id: str, owner: str) -> Deleted:
        """Delete a container, with what runs in it. Raises `NotFound`."""
        deleted = await self.database.write(lambda c: records.delete(c, owner, container_id))
        if found := self._here.get(container_id):
            await self.end(found)
        return deleted

    async def end(self, container: Container) -> None:
        """End what runs in a container, and wait until it is gone. What is kept of it stays."""
        if container.users == 0:
            self._here.pop(container.id, None)
        await self._end_sandbox(container)

    async def end_all(self) -> None:
        for container in list(self._here.values()):
            await self.end(container)
        await asyncio.gather(*self._ends, return_exceptions=True)

    async def watch(self) -> None:
        """End what nobody has used for too long, or nobody keeps any more. Never returns."""
        keep = self.config.keep_running
        pause = min(_LOOK_SECONDS, max(0.1, keep / 4)) if keep else _LOOK_SECONDS
        while True:
            await asyncio.sleep(pause)
            here = list(self._here.values())
            for container in here:
                if container.users == 0 and self._expired(container):
                    await self.end(container)
            with suppress(StoreUnavailable, OSError):  # it is looked at again soon
                await self._look(here)

    async def _look(self, here: list[Container]) -> None:
        used = [each.id for each in here if each.users and each.wish is None]
        if used:
            await self.database.write(lambda c: records.touch(c, used))
        kept = {each.id: each for each in here if each.wish is None}
        for container_id in await self.database.read(lambda c: records.gone(c, list(kept))):
            await self.end(kept[container_id])
        if await self.database.read(records.due):
            await self.database.write(records.sweep)
            await asyncio.to_thread(self._sweep_locks)

    def _sweep_locks(self) -> None:
        """Remove the locks of containers that are no more."""
        ids = [path.name for path in self._locks.iterdir()]
        gone = self.database.now(
            lambda c: [name for name in ids if files.version_of(c, name) is None]
        )
        for each in gone:
            if each not in self._here:
                (self._locks / each).unlink(missing_ok=True)

    def _expired(self, container: Container) -> bool:
        """Whether its processes are kept no longer."""
        now = time.monotonic()
        return (
            now - container.last_used >= self.config.keep_running
            or now - container.started > self.config.max_lifetime
        )

    async def _sandbox(self, container: Container) -> Sandbox:
        """A sandbox with all that is kept."""
        async with container.starting:
            if container.sandbox is None or not container.sandbox.alive:
                await self._end_sandbox(container)
                await self._make_room()
                self._starting += 1
                try:
                    container.sandbox = await self._start(container)
                finally:
                    self._starting -= 1
                container.started = time.monotonic()
                starts = await self.database.write(lambda c: records.started(c, container.id))
                container.begun_anew = starts > 1
                container.mirror = Mirror(
                    self.database, self.config, container.owner, container.id, container.sandbox
                )
            sandbox, mirror = container.sandbox, container.mirror
        async with container.mirroring:
            if mirror is not None:
                await mirror.fill()
        return sandbox

    async def _start(self, container: Container) -> Sandbox:
        """Started by a task of its own: a call that is cancelled meanwhile leaves nothing half-made."""
        starting = asyncio.create_task(
            start_sandbox(
                self._isolation,
                f"litegate-{container.id[5:21]}",
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

    async def _make_room(self) -> None:
        """Raises `SandboxEnded` where the machine is full of containers in use; else one that is only kept goes."""
        while self.running >= self.config.max_running:
            idle = [each for each in self._here.values() if not each.users and each.sandbox]
            if not idle:
                raise SandboxEnded(
                    f"All {self.config.max_running} containers of this server are in use. Try again later."
                )
            await self.end(min(idle, key=lambda each: each.last_used))

    async def _end_sandbox(self, container: Container) -> None:
        sandbox, container.sandbox, container.mirror = container.sandbox, None, None
        if sandbox is None:
            return
        closing = asyncio.create_task(sandbox.close())
        self._ends.add(closing)  # waited for at shutdown, also where this task is cancelled now
        closing.add_done_callback(self._ends.discard)
        await asyncio.shield(closing)


@asynccontextmanager
async def open_containers(config: ContainersConfig) -> AsyncIterator[Containers]:
    """The containers of one gateway. Raises `ConfigurationError` where code cannot be kept apart."""
    isolation = await choose_isolation(config)
    async with AsyncExitStack() as stack:
        folder = Path(config.path)
        if not config.path:
            made = tempfile.TemporaryDirectory(prefix="gateway-containers-")
            folder = Path(stack.enter_context(made))
            logger.info(
                "containers: their files are in a temporary folder of this process, and are gone with it; "
                "resources.containers.path names a folder to keep and to share"
            )
        database = await asyncio.to_thread(Database, folder)
        stack.callback(database.close)
        locks = folder / "locks"
        locks.mkdir(exist_ok=True, mode=0o700)
        containers = Containers(config, isolation, database, locks)
        watching = asyncio.create_task(containers.watch())
        try:
            yield containers
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await containers.end_all()
