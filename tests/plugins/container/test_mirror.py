"""Files between a sandbox and the database: what an agent says of them is doubted, and changes of both sides meet."""

from __future__ import annotations

import asyncio
import io
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigurationError, StoreUnavailable
from gateway.storage.files.contents import content_of
from gateway_container.config import MIB, ContainersConfig
from gateway_container.containers import Containers
from gateway_container.jail.spec import SandboxLimits
from gateway_container.library import files, records
from gateway_container.library.database import ContainerDatabase
from gateway_container.library.records import ContainerSettings
from gateway_container.mirror import Mirror
from gateway_container.sandbox.budget import open_budget
from gateway_container.sandbox.isolation import Isolation, Launch
from gateway_container.sandbox.process import Sandbox, SandboxEnded, start_sandbox
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

CONFIG = ContainersConfig(max_disk_bytes=MIB, max_files=3)
LIMITS = SandboxLimits(memory=256 * MIB, disk=MIB, processes=32, open_files=64, cpu_seconds=20)
ID = "cntr_1"
LIAR = """
import json, sys
print(json.dumps({"id": 0, "ready": True}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    answer = ANSWERS.get(request["do"], {})
    print(json.dumps({"id": request["id"], **answer}), flush=True)
"""

Mirrored = AbstractAsyncContextManager[tuple[Mirror, Sandbox, ContainerDatabase]]


class Lying:
    """An agent that answers what a test says, without any sandbox around it."""

    description = "nothing"

    def __init__(self, **answers: Any) -> None:
        self._program = f"ANSWERS = {answers!r}\n{LIAR}"

    def launch(self, name: str, limits: SandboxLimits) -> Launch:
        return Launch([sys.executable, "-c", self._program])

    def memory(self, limits: SandboxLimits) -> int:
        return limits.memory


@pytest.fixture
def mirrored(tmp_path: Path) -> Callable[[Isolation], Mirrored]:
    """A mirror of the container `ID`, with its sandbox and its database: `async with mirrored(isolation)`."""

    @asynccontextmanager
    async def opened(
        isolation: Isolation,
    ) -> AsyncIterator[tuple[Mirror, Sandbox, ContainerDatabase]]:
        database = ContainerDatabase(tmp_path / "kept")
        await database.write(
            lambda c: records.insert(c, "", ID, ContainerSettings(minutes=20), CONFIG)
        )
        sandbox = await start_sandbox(
            isolation, f"litegate-{tmp_path.name}"[:60], LIMITS, seconds=60
        )
        try:
            yield Mirror(database, CONFIG, "", ID, sandbox), sandbox, database
        finally:
            await sandbox.close()
            database.close()

    return opened


async def put(database: ContainerDatabase, path: str, data: bytes) -> None:
    await database.write(
        lambda c: files.put(c, "", ID, path, io.BytesIO(data), source="user", config=CONFIG)
    )


async def kept(database: ContainerDatabase) -> dict[str, bytes]:
    """All that is kept, by path."""

    def read(connection: Any) -> dict[str, bytes]:
        return {
            row["path"]: content_of(connection, row["seq"]) for row in files.rows_of(connection, ID)
        }

    return await database.read(read)


@pytest.mark.parametrize(
    "path",
    ["../evil", "/etc/evil", "a/../../evil", "a//b", "", ".", "a/", "nul\0", "line\nbreak", "\u202ex", "x" * 2000],
)  # fmt: skip
async def test_a_path_that_is_none_is_passed_over(
    mirrored: Callable[[Isolation], Mirrored], path: str
) -> None:
    liar = Lying(files={"files": [[path, 1, 3, 1], ["good", 2, 3, 1]]}, read={"data": "eHh4"})
    async with mirrored(liar) as (mirror, _, database):
        await mirror.fill()
        found, notes = await mirror.store_changes()
        assert ([each.path for each in found], notes) == (["/mnt/data/good"], [])
        assert await kept(database) == {"good": b"xxx"}


async def test_a_size_that_is_none_is_refused_before_it_is_read(
    mirrored: Callable[[Isolation], Mirrored],
) -> None:
    liar = Lying(files={"files": [["huge", 1, 2**60, 1]]}, read={"data": "eHh4"})
    async with mirrored(liar) as (mirror, _, _database):
        found, [note] = await mirror.store_changes()
        assert found == []
        assert "/mnt/data/huge could not be kept" in note
        assert await mirror.store_changes() == ([], []), "it is said once"


async def test_a_file_that_the_disk_has_no_room_for_is_tried_again(
    mirrored: Callable[[Isolation], Mirrored], monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = {"files": [["small", 1, 3, 1], ["large", 2, 6, 1]]}
    liar = Lying(files=listing, read={"data": "eHh4"})
    monkeypatch.setattr("gateway_container.mirror._IN_MEMORY", 4)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: SIM115
    async with mirrored(liar) as (mirror, _, database):
        [file], [note] = await mirror.store_changes()
        assert file.path == "/mnt/data/small"
        assert "/mnt/data/large could not be kept. The server cannot keep this file now" in note
        monkeypatch.undo()
        [file], notes = await mirror.store_changes()
        assert (file.path, notes) == ("/mnt/data/large", [])
        assert await kept(database) == {"small": b"xxx", "large": b"xxxxxx"}


async def test_a_file_that_gives_nothing_ends(
    mirrored: Callable[[Isolation], Mirrored],
) -> None:
    liar = Lying(files={"files": [["empty", 1, 1000, 1]]}, read={"data": ""})
    async with mirrored(liar) as (mirror, _, _database):
        [file], _ = await mirror.store_changes()
        assert file.bytes == 0


async def test_more_files_than_allowed_are_not_looked_at(
    mirrored: Callable[[Isolation], Mirrored],
) -> None:
    listed = [[f"f{n}", n, 3, 1] for n in range(5000)]
    async with mirrored(Lying(files={"files": listed}, read={"data": "eHh4"})) as (
        mirror,
        _,
        database,
    ):
        await mirror.store_changes()
        assert len(await kept(database)) == CONFIG.max_files


@pytest.mark.parametrize(
    "answers",
    [
        {"files": {"files": [["x", "1", 3, 1]]}},
        {"files": {"files": [["x", 1, -3, 1]]}},
        {"files": {"files": 7}},
        {"files": {"failed": "no"}},
        {"files": {"files": [["x", 1, 3, 1]]}, "read": {"data": "%%"}},
        {"files": {"files": [["x", 1, 3, 1]]}, "read": {"data": 7}},
    ],
)
async def test_nonsense_ends_the_sandbox(
    mirrored: Callable[[Isolation], Mirrored], answers: dict[str, Any]
) -> None:
    async with mirrored(Lying(**answers)) as (mirror, _, database):
        with pytest.raises(SandboxEnded):
            await mirror.store_changes()
        assert await kept(database) == {}


async def test_a_container_that_was_deleted_is_not_worked_in(
    mirrored: Callable[[Isolation], Mirrored],
) -> None:
    async with mirrored(Lying()) as (mirror, _, database):
        await database.write(lambda c: records.delete(c, "", ID))
        with pytest.raises(SandboxEnded, match="deleted"):
            await mirror.fill()


async def test_changes_of_both_sides_meet(
    mirrored: Callable[[Isolation], Mirrored], isolation: Isolation
) -> None:
    from gateway_container.sandbox.answers import CommandResult

    async with mirrored(isolation) as (mirror, sandbox, database):

        async def run(line: str) -> str:
            await mirror.fill()
            command = ["/bin/sh", "-c", line]
            ran = await sandbox.ask("run", CommandResult, seconds=60, command=command, limit=9999)
            await mirror.store_changes()
            return ran.stdout

        big = bytes(range(256)) * 2500
        await put(database, "big", big)
        await put(database, ".hidden", b"h")
        assert await run("wc -c < big; cat .hidden") == f"{len(big)}\nh"
        await run("echo changed >> big; mkdir -p d; echo new > d/n")
        assert await kept(database) == {
            "big": big + b"changed\n",
            ".hidden": b"h",
            "d/n": b"new\n",
        }
        await put(database, "big", b"from outside")
        assert await run("cat big; rm d/n") == "from outside"
        assert await kept(database) == {"big": b"from outside", ".hidden": b"h"}
        await put(database, "big", b"")
        assert await run("wc -c < big; ln -s /etc/passwd link; mkfifo pipe") == "0\n"
        assert await kept(database) == {"big": b"", ".hidden": b"h"}
        [gone] = [row["id"] for row in await database.read(lambda c: files.rows_of(c, ID)) if row["path"] == "big"]  # fmt: skip
        await database.write(lambda c: files.delete(c, "", ID, gone))
        assert await run("ls") == "d\nlink\npipe\n"


async def test_what_was_changed_outside_during_a_call_is_seen_by_the_next(
    mirrored: Callable[[Isolation], Mirrored], isolation: Isolation
) -> None:
    from gateway_container.sandbox.answers import CommandResult

    async with mirrored(isolation) as (mirror, sandbox, database):
        await mirror.fill()
        await sandbox.ask(
            "run", CommandResult, seconds=60, command=["/bin/sh", "-c", "echo 1 > own"], limit=99
        )
        await put(database, "other", b"2")
        await mirror.store_changes()
        await mirror.fill()
        ran = await sandbox.ask(
            "run", CommandResult, seconds=60, command=["/bin/cat", "own", "other"], limit=99
        )
        assert ran.stdout == "1\n2"


def test_a_folder_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"^resources\.containers\.path: .*cannot be opened"
    ):
        ContainerDatabase(tmp_path / "file")
    ContainerDatabase(tmp_path / "kept").close()
    with sqlite3.connect(tmp_path / "kept" / "containers.sqlite3") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ConfigurationError, match=r"another version of this plugin \(99\)\.$"):
        ContainerDatabase(tmp_path / "kept")


@given(
    st.text(max_size=30), st.lists(st.sampled_from(["..", ".", "", "a", "b c", "é"]), max_size=5)
)
def test_no_path_leads_out_of_the_folder(text: str, steps: list[str]) -> None:
    for path in (text, "/".join(steps)):
        if files.is_path(path):
            whole = Path("/mnt/data", path)
            assert not Path(path).is_absolute()
            assert ".." not in whole.parts
            assert str(whole) == f"/mnt/data/{path}", "it has one spelling"


async def test_a_sandbox_whose_start_could_not_be_recorded_has_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a client leaves at that moment: the next call in the container uses the sandbox that was started."""
    database = ContainerDatabase(tmp_path)
    recorded = records.record_start

    def failing(connection: sqlite3.Connection, container_id: str) -> int:
        monkeypatch.setattr(records, "record_start", recorded)
        raise StoreUnavailable("busy")

    monkeypatch.setattr(records, "record_start", failing)
    with open_budget(4 * CONFIG.max_memory_bytes, MIB) as budget:
        containers = Containers(CONFIG, Lying(), database, tmp_path, budget)
        container = containers.new(None)
        try:
            async with containers.used(container):
                with pytest.raises(StoreUnavailable):
                    async with containers.working(container):
                        pass
                started = container.sandbox
                async with containers.working(container) as work:
                    assert work.sandbox is started
                    assert container.mirror is not None
        finally:
            await containers.end(container)
            await containers.end_all()
            database.close()


async def test_idle_containers_are_looked_for_after_an_error_that_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    async def failing(containers: Containers, here: Any) -> None:
        nonlocal looks
        looks += 1
        raise ValueError("a mistake")

    monkeypatch.setattr(Containers, "_look", failing)
    database, config = ContainerDatabase(tmp_path), ContainersConfig(keep_running=0.1)
    with open_budget(4 * config.max_memory_bytes, MIB) as budget:
        containers = Containers(config, Lying(), database, tmp_path, budget)
        watching = asyncio.create_task(containers.watch())
        try:
            await wait_until_async(lambda: looks > 1, "it is looked again")
        finally:
            watching.cancel()
            await asyncio.wait((watching,))
            database.close()
