"""With several workers, any of them shows the requests of all, and cancels them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from tests.waiting import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="workers need Unix sockets"),
]

CONFIG = """
[server]
port = {port}
workers = 2
store = "none"
grace_period = 1

[models.m]
engine = "scripted"
scripted = { rules = [{ when = "forever", delay_ms = 25, repeat = 1000000, pieces = [{ text = "more " }] }] }
"""
TIMEOUT = 60


@pytest.fixture
def server(start_server: Any) -> Any:
    made = start_server(CONFIG)
    wait_until(lambda: made.log.count("Started server process") == 2)
    return made


def lists(server: Any) -> Iterator[dict[str, Any]]:
    """Lists on connections of their own, which the kernel gives to one worker or the other."""
    for _ in range(8):
        answer = httpx.get(f"{server.url}/v1/gateway/runs", timeout=TIMEOUT)
        assert answer.status_code == 200, answer.text
        yield answer.json()


def test_every_worker_shows_and_cancels_the_runs_of_all(server: Any) -> None:
    body = {"model": "m", "input": "forever", "stream": True}
    with ExitStack() as stack, ThreadPoolExecutor(16) as pool:

        def opened() -> Any:
            return stack.enter_context(
                httpx.stream("POST", f"{server.url}/v1/responses", json=body, timeout=TIMEOUT)
            )

        streams = [opened() for _ in range(4)]

        def both() -> set[int]:
            # The kernel chooses: another request, until each worker has one.
            found = next(lists(server))
            processes = {run["process"] for run in found["running"]}
            if len(processes) < 2 and len(streams) < 60:
                streams.append(opened())
            return processes if len(processes) == 2 else set()

        processes = wait_until(both)

        def shown() -> list[str]:
            for found in lists(server):
                assert (found["workers"], found["answered"], found["silent"]) == (2, 2, [])
                assert found["total"] == len(found["running"]) == len(streams)
                assert {run["process"] for run in found["running"]} == processes
                assert len({run["id"] for run in found["running"]}) == len(streams)
            return [run["id"] for run in found["running"]]

        ids = wait_until(shown)  # one that is slow to answer is left out for once

        def cancel(run: str) -> int:
            url = f"{server.url}/v1/gateway/runs/{run}/cancel"
            return httpx.post(url, timeout=TIMEOUT).status_code

        assert set(pool.map(cancel, ids)) == {200}
        for stream in streams:
            stream.read()  # it ends

        def all_ended() -> bool:
            found = next(lists(server))
            assert (found["answered"], found["total"]) == (2, 0)
            assert {run["id"] for run in found["ended"]} == set(ids)
            assert {run["state"] for run in found["ended"]} == {"cancelled"}
            return True

        wait_until(all_ended)
        assert cancel(ids[0]) == 404
