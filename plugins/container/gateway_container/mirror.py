"""The files of a running sandbox and those that are kept, made equal before a call and after it."""

from __future__ import annotations

import sqlite3
import tempfile
from typing import IO

from msgspec import Struct

from gateway.errors import InvalidRequest
from gateway_container.config import ContainersConfig
from gateway_container.kept import files
from gateway_container.kept.database import Database
from gateway_container.kept.objects import ContainerFile
from gateway_container.sandbox.answers import Found, Part, Stat, Written
from gateway_container.sandbox.process import Sandbox, SandboxEnded

_SECONDS = 20.0
"""For one request to the agent; each is about one file, or a part of one."""
_IN_MEMORY = 1_048_576


class _Known(Struct):
    """A file that is kept and in the sandbox."""

    id: str
    revision: int
    stat: Stat | None


class Mirror:
    """What one sandbox has of a container's files. One at a time calls its methods.

    Between calls, what is kept goes before what the sandbox has: other processes and the API change it. Hidden files, and
    links, are the sandbox's own.
    """

    def __init__(
        self,
        database: Database,
        config: ContainersConfig,
        owner: str,
        container_id: str,
        sandbox: Sandbox,
    ) -> None:
        self._database = database
        self._config = config
        self._owner = owner
        self._container_id = container_id
        self._sandbox = sandbox
        self._version: int | None = None
        self._known: dict[str, _Known] = {}
        self._refused: dict[str, Stat] = {}
        """What could not be kept, as it was then."""

    async def fill(self) -> None:
        """Bring into the sandbox what has been kept since. Raises `SandboxEnded`."""
        container_id = self._container_id
        version, rows = await self._database.read(
            lambda c: (files.version_of(c, container_id), files.all_of(c, container_id))
        )
        if version is None:
            raise SandboxEnded("The container was deleted, or has expired.")
        if version == self._version:
            return
        paths = {row["path"] for row in rows}
        for path in [each for each in self._known if each not in paths]:
            _check(await self._sandbox.ask("remove", Written, seconds=_SECONDS, path=path), path)
            del self._known[path]
        for row in rows:
            known = self._known.get(row["path"])
            if known is None or (known.id, known.revision) != (row["id"], row["revision"]):
                stat = await self._write(row)
                self._known[row["path"]] = _Known(row["id"], row["revision"], stat)
        self._version = version

    async def _write(self, row: sqlite3.Row) -> Stat | None:
        stat: Stat | None = None
        for number in files.parts(row["bytes"]) if row["bytes"] else (0,):
            data = await self._database.read(
                lambda c, number=number: files.part(c, row["seq"], number)  # type: ignore[misc]
            )
            written = await self._sandbox.ask(
                "write",
                Written,
                seconds=_SECONDS,
                path=row["path"],
                offset=number * files.PART,
                data=data,
            )
            _check(written, row["path"])
            stat = written.file
        return stat

    async def keep(self) -> tuple[list[ContainerFile], list[str]]:
        """Keep what has changed in the sandbox: these files, and sentences on what could not be kept.

        Raises `SandboxEnded`.
        """
        limit = self._config.max_files
        found = await self._sandbox.ask("files", Found, seconds=_SECONDS, limit=limit)
        if found.failed is not None:
            raise SandboxEnded(f"The container's files cannot be listed: {found.failed}.")
        kept: list[ContainerFile] = []
        notes: list[str] = []
        if found.more:
            notes.append(f"The container has more than {limit} files: not all of them are kept.")
        for stat in found.files[:limit]:  # the agent may say anything
            path = stat[0]
            known = self._known.get(path)
            if not files.is_path(path) or stat in (known and known.stat, self._refused.get(path)):
                continue
            try:
                kept.append(await self._keep(stat))
            except InvalidRequest as error:
                self._refused[path] = stat
                notes.append(f"{files.ROOT}{path} could not be kept. {error.message}")
        if not found.more:
            await self._forget({stat[0] for stat in found.files})
        return kept, notes

    async def _keep(self, stat: Stat) -> ContainerFile:
        path, size = stat[0], stat[2]
        if size > self._config.max_disk_bytes:
            raise InvalidRequest(
                f"Files of this server's containers have up to {self._config.max_disk_bytes} bytes."
            )
        with tempfile.SpooledTemporaryFile(_IN_MEMORY) as content:
            await self._read(path, size, content)
            row = await self._database.write(
                lambda c: files.put(
                    c,
                    self._owner,
                    self._container_id,
                    path,
                    content,
                    source="assistant",
                    config=self._config,
                )
            )
        self._known[path] = _Known(row["id"], row["revision"], stat)
        self._refused.pop(path, None)
        self._now_at(row["version"])
        return files.told(row)

    async def _read(self, path: str, size: int, content: IO[bytes]) -> None:
        offset = 0
        while offset < size:
            part = await self._sandbox.ask(
                "read", Part, seconds=_SECONDS, path=path, offset=offset, size=files.PART
            )
            if part.failed is not None or not part.data:
                return  # it was taken away meanwhile, or cut: what is left behind by the call still runs
            content.write(part.data)
            offset += len(part.data)

    async def _forget(self, present: set[str]) -> None:
        """What the code has deleted is deleted."""
        lost = [path for path in self._known if path not in present and not _is_hidden(path)]
        if not lost:
            return
        gone = [(known.id, known.revision) for known in map(self._known.pop, lost)]
        version = await self._database.write(lambda c: files.forget(c, self._container_id, gone))
        if version is not None:
            self._now_at(version)

    def _now_at(self, version: int) -> None:
        """After a change of ours. If another came between, what it was is found before the next call."""
        if self._version is not None and version == self._version + 1:
            self._version = version


def _is_hidden(path: str) -> bool:
    """Whether the agent does not list it; such files come by uploads alone."""
    return any(step.startswith(".") or step == "__pycache__" for step in path.split("/"))


def _check(written: Written, path: str) -> None:
    if written.failed is not None:
        raise SandboxEnded(
            f"{files.ROOT}{path} cannot be put into the container: {written.failed}."
        )
