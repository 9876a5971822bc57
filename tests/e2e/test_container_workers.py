"""Containers of several worker processes: the same for all, and left whole by one that dies."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.waiting import wait_until

pytest.importorskip("gateway_python", reason="the plugin python is not installed")
pytestmark = pytest.mark.slow

CONFIG = """
[server]
port = {port}
workers = 2
store = "none"
[models.m]
engine = "scripted"
parser = "qwen3"
[models.m.scripted]
rules = [
  { when = "append", pieces = [{ call = { name = "python", arguments = { code = "APPEND" } } }] },
  { when = "now at", pieces = [{ text = "Done." }] },
  { when = "hang", pieces = [{ call = { name = "python", arguments = { code = "HANG" } } }] },
]
[tools.python]
[resources.containers]
path = "FOLDER"
""".replace(
    "APPEND", "open('n', 'a').write('x'); print('now' + ' at', len(open('n').read()))"
).replace("HANG", "import time; open('lost', 'w').write('x'); time.sleep(50)")


@pytest.fixture
def workers(start_server: Any, tmp_path: Path) -> Iterator[Any]:
    server = start_server(CONFIG.replace("FOLDER", str(tmp_path)))
    if "cannot keep code apart" in server.log:
        pytest.skip("this machine cannot keep code apart")
    yield server
    server.stop()


def ask(server: Any, asked: str, container: str) -> Any:
    """On a connection of its own, so that any worker may answer."""
    tools = [{"type": "code_interpreter", "container": container}]
    body = {"model": "m", "input": asked, "tools": tools}
    return httpx.post(f"{server.url}/v1/responses", json=body, timeout=60)


def working_process(server: Any) -> int | None:
    """The worker of this very server whose sandbox runs a cell that hangs."""
    parents: dict[int, int] = {}
    keepers: list[int] = []
    for entry in filter(lambda each: each.name.isdigit(), Path("/proc").iterdir()):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        if b"jail.keeper" in command:
            keepers.append(int(entry.name))
    above = {parents[each] for each in keepers}
    return next((each for each in above if parents.get(each) == server.process.pid), None)


def test_calls_of_all_workers_take_turns_on_the_same_files(workers: Any) -> None:
    with workers.client() as client:
        container = client.containers.create(name="ours").id
        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(lambda _: ask(workers, "append", container), range(10)))
        assert {answer.status_code for answer in answers} == {200}
        [file] = client.containers.files.list(container).data
        assert file.bytes == 10


def test_a_worker_that_dies_takes_nothing_with_it_but_what_ran(workers: Any) -> None:
    with workers.client() as client:
        container = client.containers.create(name="ours").id
        client.containers.files.create(container, file=("n", b"12345"))
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(ask, workers, "hang", container)
            found = wait_until(lambda: working_process(workers), "a worker runs it")
            assert found is not None
            time.sleep(1)
            os.kill(found, signal.SIGKILL)
            with pytest.raises(httpx.HTTPError):
                hanging.result()

        def appended() -> httpx.Response | None:
            with suppress(httpx.HTTPError):  # what was sent to the dead one is refused
                return ask(workers, "append", container)
            return None

        answer = wait_until(appended, "a worker that lives")
        assert answer is not None
        assert answer.json()["output"][-1]["content"][0]["text"] == "Done."
    with workers.client() as client:
        files = {file.path: file.bytes for file in client.containers.files.list(container)}
    assert files == {"/mnt/data/n": 6}
