"""`rerun_lost`: what a process that died has left, and of which nobody has seen any output, is run by another."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
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
from tests.e2e.conftest import running_requests
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def config(any_shared_store: Any, tmp_path: Path) -> str:
    return rerun_config(any_shared_store, tmp_path)


@pytest.mark.parametrize("rerun", [True, False])
def test_what_waited_is_run_and_what_ran_has_failed(
    start_server: Any, config: str, rerun: bool
) -> None:
    configured = config.replace("RERUN", str(rerun).lower())
    first = start_server(configured)
    running = post(first.url, "at length", stream=True)
    waiting = [post(first.url, "briefly", stream=number % 2 == 0) for number in range(6)]
    until_output(first.url, running)
    first.stop(signal.SIGKILL)
    second = start_server(configured)
    lost = ended(second.url, running)
    assert lost["status"] == "failed"
    assert "owner_lost" in lost["error"]["message"]
    for number, each in enumerate(waiting):
        response = ended(second.url, each)
        assert response["status"] == ("completed" if rerun else "failed")
        if rerun:
            assert response["output"][0]["content"][0]["text"] == "brief words"
        if number % 2 == 0:
            replayed = httpx.get(f"{second.url}/v1/responses/{each}", params={"stream": "true"})
            assert fold(parse_sse(replayed.content)) == response


@pytest.mark.parametrize("rerun", [True, False])
def test_what_ran_unseen_is_run_again(
    start_server: Any, config: str, tmp_path: Path, rerun: bool
) -> None:
    """Plain, whatever was made; streamed, before any output was told. What has tools that may have been called is not."""
    configured = config.replace("RERUN", str(rerun).lower()).replace("max_running = 1", "")
    configured += "[tools.python]\n"
    first = start_server(configured)
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    plain = post(first.url, "take your time")
    streams = [post(first.url, "think", stream=True) for _ in range(2)]
    told = post(first.url, "take your time", stream=True)
    calling = post(first.url, "take your time", tools=tools)
    until_output(first.url, told)
    until_running(first.url, plain, *streams, calling)
    first.stop(signal.SIGKILL)
    second = start_server(with_other_words(configured, tmp_path))
    for each in (plain, *streams):
        response = ended(second.url, each)
        assert response["status"] == ("completed" if rerun else "failed")
        if rerun:
            assert said(response).startswith("other words")
    for each in (told, calling):
        assert ended(second.url, each)["status"] == "failed"
    for each in (*streams, told):
        replayed = httpx.get(f"{second.url}/v1/responses/{each}", params={"stream": "true"})
        assert fold(parse_sse(replayed.content)) == ended(second.url, each)


class Gate:
    """A server of a model that says `own words` to each request, once it is opened."""

    def __init__(self) -> None:
        self.opened = Event()
        self.asked = 0
        gate = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer(b'{"object": "list", "data": [{"id": "m", "object": "model"}]}')

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                gate.asked += 1
                gate.opened.wait(600)
                chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
                delta = {"role": "assistant", "content": "own words"}
                choice = {"index": 0, "delta": delta, "finish_reason": "stop"}
                said = json.dumps({**chunk, "choices": [choice]})
                with suppress(OSError):  # it has been cancelled
                    self.answer(f"data: {said}\n\ndata: [DONE]\n\n".encode(), "text/event-stream")

            def answer(self, body: bytes, kind: str = "application/json") -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made
    made.opened.set()
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def begun_stream(answer: httpx.Response) -> tuple[str, bytes, Iterator[bytes]]:
    """The id of the response of a stream, what was read to learn it, and the rest."""
    rest = answer.iter_bytes()
    head = b""
    while (found := re.search(rb'"id":"(resp_\w+)"', head)) is None:
        head += next(rest)
    return found[1].decode(), head, rest


def test_who_wakes_up_late_changes_nothing(
    start_server: Any, config: str, any_shared_store: Any, tmp_path: Path, gate: Gate
) -> None:
    """Its clients read on where they were: what the other one has made. Its model says nothing before it is stopped, however long that
    takes, and has something to say once it goes on; by then the other one has ended all."""
    configured = config.replace("RERUN", "true").replace("max_running = 1", "")
    upstream = configured.replace('engine = "scripted"', 'engine = "openai"')
    upstream = re.sub(r"(?m)^path = .*reruns\.json.$", f'[models.scripted.openai]\nbase_url = "{gate.url}"\nmodel = "m"', upstream)  # fmt: skip
    first = start_server(upstream)
    plain = [post(first.url, words) for words in ("think", "take your time")]
    with first.http() as http, ExitStack() as streams:
        body = {"model": "scripted", "input": "think", "background": True, "stream": True}
        url = f"{first.url}/v1/responses"
        posts = [
            begun_stream(streams.enter_context(httpx.stream("POST", url, json=body, timeout=300)))
            for _ in range(3)
        ]
        ids = [*plain, *(response_id for response_id, _, _ in posts)]
        until_running(first.url, *ids)
        wait_until(lambda: gate.asked == 5, "all five have asked their model")
        any_shared_store.suspend(first.process)
        second = start_server(with_other_words(configured, tmp_path))
        got = [ended(second.url, each) for each in ids]
        gate.opened.set()
        first.process.send_signal(signal.SIGCONT)
        live = [fold(parse_sse(head + b"".join(rest))) for _, head, rest in posts]
    assert [response["status"] for response in got] == ["completed"] * 5
    assert all(said(response).startswith("other words") for response in got)
    assert live == got[2:]
    with first.http() as http:
        wait_until(lambda: running_requests(http) == 0, "the first one has ended its own")
    for response in got:
        for url in (first.url, second.url):
            assert httpx.get(f"{url}/v1/responses/{response['id']}").json() == response
    for response in live:
        replayed = httpx.get(
            f"{first.url}/v1/responses/{response['id']}", params={"stream": "true"}
        )
        assert fold(parse_sse(replayed.content)) == response


def test_what_loses_every_owner_is_given_up(start_server: Any, config: str) -> None:
    """It may be what kills them."""
    configured = config.replace("RERUN", "true")
    server = start_server(configured)
    running = post(server.url, "at length")
    killed = 0
    # An owner that dies before the store has heard that it began does not count.
    while (made := begun_or_ended(server, running, first=not killed))["status"] == "in_progress":
        assert killed < 8, "it is run for ever"
        server.stop(signal.SIGKILL)
        killed += 1
        server = start_server(configured)
    assert killed >= 3
    assert made["status"] == "failed"
    assert "owner_lost" in made["error"]["message"]


def begun_or_ended(server: Any, response_id: str, *, first: bool) -> dict[str, Any]:
    """The response, once this server runs it, or once it has ended."""

    def found() -> dict[str, Any] | None:
        made: dict[str, Any] = httpx.get(f"{server.url}/v1/responses/{response_id}").json()
        here = first or "is run here" in server.log
        has_ended = made["status"] not in ("queued", "in_progress")
        return made if has_ended or (here and made["status"] == "in_progress") else None

    made = wait_until(found, "the response is run here")
    assert made is not None
    return made


def test_one_that_is_slow_and_not_dead_is_not_run_twice(
    start_server: Any, config: str, any_shared_store: Any
) -> None:
    """It stops for longer than its leases last, and goes on: each response is made once, by one of the two."""
    configured = config.replace("RERUN", "true")
    first = start_server(configured)
    running = post(first.url, "at length", stream=True)
    waiting = [post(first.url, "briefly", stream=number % 2 == 0) for number in range(4)]
    until_output(first.url, running)
    any_shared_store.suspend(first.process)
    second = start_server(configured)
    got = [ended(second.url, each) for each in (running, *waiting)]
    first.process.send_signal(signal.SIGCONT)
    assert [response["status"] for response in got] == ["failed", *["completed"] * 4]

    def shown(server: Any, response_id: str) -> Any:
        return httpx.get(f"{server.url}/v1/responses/{response_id}", timeout=60).json()

    def agree(response_id: str) -> bool:
        assert shown(first, response_id) == shown(second, response_id)
        return True

    for response in got:
        # The first one learns that it has lost its responses when it renews their leases. The output of the one that has failed comes
        # after its status.
        wait_until(lambda each=response["id"]: agree(each), "the same response from both")  # type: ignore[misc]
        assert shown(first, response["id"])["status"] == response["status"]
    for each in waiting[::2]:
        replayed = httpx.get(f"{first.url}/v1/responses/{each}", params={"stream": "true"})
        fold(parse_sse(replayed.content))
