"""A gateway that is told to end: background responses that nobody has seen are run by another one, or by its successor."""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from tests.e2e.background_reruns import (
    ended,
    post,
    rerun_config,
    said,
    until_output,
    until_running,
    with_other_words,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def config(any_shared_store: Any, tmp_path: Path) -> str:
    return rerun_config(any_shared_store, tmp_path)


@pytest.mark.parametrize("together", [True, False], ids=["another runs", "its successor"])
@pytest.mark.parametrize("rerun", [True, False], ids=["rerun_lost", "default"])
def test_what_nobody_has_seen_is_run_again_after_a_stop(
    start_server: Any, config: str, tmp_path: Path, rerun: bool, together: bool
) -> None:
    configured = config.replace("RERUN", str(rerun).lower()).replace(
        "max_running = 1", "max_running = 5"
    )
    configured += "[tools.python]\n"
    others = with_other_words(configured, tmp_path)
    first = start_server(configured, grace=0.5)
    second = start_server(others) if together else None
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    plain = post(first.url, "take your time")
    streams = [post(first.url, "think", stream=True) for _ in range(2)]
    told = post(first.url, "take your time", stream=True)
    with_tools = post(first.url, "take your time", tools=tools)  # none was called
    until_output(first.url, told)
    until_running(first.url, plain, *streams, with_tools)
    waiting = [post(first.url, "take your time", stream=number % 2 == 0) for number in range(4)]
    first.stop(signal.SIGTERM)
    second = second or start_server(others)
    for each in (plain, *streams, with_tools, *waiting):
        response = ended(second.url, each)
        assert response["status"] == "completed", response["error"]
        assert said(response).startswith("other words")
    failed = ended(second.url, told)
    assert failed["status"] == "failed"
    assert "shut down" in failed["error"]["message"]
    for each in (*streams, told, waiting[0]):
        replayed = httpx.get(f"{second.url}/v1/responses/{each}", params={"stream": "true"})
        assert fold(parse_sse(replayed.content)) == ended(second.url, each)


def test_what_can_end_within_the_grace_period_does(start_server: Any, config: str) -> None:
    configured = config.replace("RERUN", "false").replace("max_running = 1", "")
    first = start_server(configured, grace=60)
    running = post(first.url, "at leisure")
    until_running(first.url, running)
    first.stop(signal.SIGTERM)
    second = start_server(configured)
    assert said(ended(second.url, running)).startswith("leisurely")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_what_waits_in_the_foreground_is_told_to_retry(
    start_server: Any, config: str, stream: bool, path: str
) -> None:
    """Nothing was sent of what waits: it gets the status of a server that stops."""
    first = start_server(config.replace("RERUN", "false"), grace=0.5)
    post(first.url, "at length")
    said = {"input": "hi"} if path == "/v1/responses" else {"messages": [{"role": "user", "content": "hi"}]}  # fmt: skip
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.post,
            f"{first.url}{path}",
            json={"model": "scripted", "stream": stream, **said},
            timeout=60,
        )
        wait_until(
            lambda: 'gateway_waiting_requests{model="scripted"} 1.0' in httpx.get(f"{first.url}/metrics").text,
            "it waits",
        )  # fmt: skip
        first.stop(signal.SIGTERM)
        answer = asked.result()
    if stream and path == "/v1/responses":
        assert answer.status_code == 200  # its first event was sent
        assert '"code":"server_error"' in answer.text
    else:
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_shutting_down")
        assert float(answer.headers["retry-after"]) > 0
