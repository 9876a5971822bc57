"""Synchronizes the files of a running sandbox with the stored ones, before and after each call."""

from __future__ import annotations

import sqlite3
from typing import IO

from msgspec import Struct

from gateway.sdk import InvalidRequest, StoreUnavailable
from gateway.sdk.files import PART, part_of, temporary_file
from gateway_container.config import ContainersConfig
from gateway_container.library import files
from gateway_container.library.database import ContainerDatabase
from gateway_container.library.objects import ContainerFile
from gateway_container.sandbox.answers import FileListing, Part, Stat, WriteResult
from gateway_container.sandbox.process import Sandbox, SandboxEnded

_SECONDS = 20.0
"""Time limit of one request to the agent, in seconds. Each concerns one file, or part of one."""
_IN_MEMORY = 1_048_576
_SHOWN = 100
"""Characters of a path shown in a note."""


class _SyncedFile(Struct):
    """A file that is both stored and in the sandbox."""

    id: str
    revision: int
    stat: Stat | None


class Mirror:
    """Synchronizes one sandbox with a container's files. Its methods must not run concurrently.

    Between calls, stored files take precedence over those of the sandbox, because other processes and the API may
    change them. Hidden files and links are not synchronized.
    """

    def __init__(
        self,
        database: ContainerDatabase,
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
        self._known: dict[str, _SyncedFile] = {}
        self._refused: dict[str, Stat] = {}
        """Files that could not be stored, with their state at that time."""

    async def fill(self) -> None:
        """Copy files into the sandbox that were stored since the last call. Raises `SandboxEnded`."""
        container_id = self._container_id
        version, rows = await self._database.read(
            lambda c: (files.version_of(c, container_id), files.rows_of(c, container_id))
        )
        if version is None:
            raise SandboxEnded("The container was deleted, or has expired.")
        if version == self._version:
            return
        paths = {row["path"] for row in rows}
        for path in [each for each in self._known if each not in paths]:
            _check(
                await self._sandbox.ask("remove", WriteResult, seconds=_SECONDS, path=path), path
            )
            del self._known[path]
        for row in rows:
            known = self._known.get(row["path"])
            if known is None or (known.id, known.revision) != (row["id"], row["revision"]):
                stat = await self._write(row)
                self._known[row["path"]] = _SyncedFile(row["id"], row["revision"], stat)
        self._version = version

    async def _write(self, row: sqlite3.Row) -> Stat | None:
        stat: Stat | None = None
        offset = number = 0
        while number == 0 or offset < row["bytes"]:
            data = await self._database.read(
                lambda c, number=number: part_of(c, row["seq"], number)  # type: ignore[misc]
            )
            if number and not data:
                break  # deleted or changed meanwhile
            written = await self._sandbox.ask(
                "write",
                WriteResult,
                seconds=_SECONDS,
                path=row["path"],
                offset=offset,
                data=data,
            )
            _check(written, row["path"])
            stat = written.file
            offset += len(data)
            number += 1
        return stat

    async def store_changes(self) -> tuple[list[ContainerFile], list[str]]:
        """Store files that changed in the sandbox. Returns them, and sentences about files that could not be stored.

        Raises `SandboxEnded`.
        """
        limit = self._config.max_files
        found = await self._sandbox.ask("files", FileListing, seconds=_SECONDS, limit=limit)
        if found.failed is not None:
            raise SandboxEnded(f"The container's files cannot be listed: {found.failed}.")
        kept: list[ContainerFile] = []
        notes: list[str] = []
        if found.more:
            notes.append(f"The container has more than {limit} files: not all of them are kept.")
        if found.unread is not None:
            notes.append(
                f"{files.ROOT}{found.unread[:_SHOWN]} could not be listed: folders that cannot be read, or lie more than "
                f"{files.MAX_DEPTH} deep, are not kept."
            )
        for stat in found.files[:limit]:  # the agent is not trusted
            path = stat[0]
            known = self._known.get(path)
            if not files.is_path(path) or stat in (known and known.stat, self._refused.get(path)):
                continue
            try:
                kept.append(await self._store_file(stat))
            except InvalidRequest as error:
                self._refused[path] = stat
                notes.append(f"{files.ROOT}{path} could not be kept. {error.message}")
            except StoreUnavailable as error:  # tried again after the next call
                notes.append(f"{files.ROOT}{path} could not be kept. {error.message}")
        if not found.more and found.unread is None:
            await self._forget({stat[0] for stat in found.files})
        return kept, notes

    async def _store_file(self, stat: Stat) -> ContainerFile:
        path, size = stat[0], stat[2]
        if size > self._config.max_disk_bytes:
            raise InvalidRequest(
                f"Files of this server's containers have up to {self._config.max_disk_bytes} bytes."
            )
        with temporary_file(_IN_MEMORY) as content:
            await self._read(path, size, content)
            content.flush()
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
        self._known[path] = _SyncedFile(row["id"], row["revision"], stat)
        self._refused.pop(path, None)
        self._advance_to(row["version"])
        return files.file_object(row)

    async def _read(self, path: str, size: int, content: IO[bytes]) -> None:
        offset = 0
        while offset < size:
            part = await self._sandbox.ask(
                "read", Part, seconds=_SECONDS, path=path, offset=offset, size=PART
            )
            if part.failed is not None or not part.data:
                return  # removed or truncated meanwhile, by a process that is still running
            content.write(part.data)
            offset += len(part.data)

    async def _forget(self, present: set[str]) -> None:
        """Delete stored files that the code has deleted."""
        lost = [path for path in self._known if path not in present and not _is_hidden(path)]
        if not lost:
            return
        gone = [(known.id, known.revision) for known in map(self._known.pop, lost)]
        version = await self._database.write(lambda c: files.forget(c, self._container_id, gone))
        if version is not None:
            self._advance_to(version)

    def _advance_to(self, version: int) -> None:
        """Advance to `version` after a change made here. If another change came in between, it is found before the
        next call."""
        if self._version is not None and version == self._version + 1:
            self._version = version


def _is_hidden(path: str) -> bool:
    """Whether the agent does not list the file; such files come from uploads only."""
    return any(step.startswith(".") or step == "__pycache__" for step in path.split("/"))


def _check(written: WriteResult, path: str) -> None:
    if written.failed is not None:
        raise SandboxEnded(
            f"{files.ROOT}{path} cannot be put into the container: {written.failed}."
        )
