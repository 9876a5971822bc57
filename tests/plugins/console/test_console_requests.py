"""`GET /v1/gateway/runs`: what runs now, and what has ended last."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from gateway import hookimpl
from gateway.plugins.protocols import ServerTool, ToolCall, ToolDefinition, ToolResult, ToolServer
from gateway_testing.server import run_gateway
from tests.waiting import wait_until

RULES = [
    {"when": "go on forever", "delay_ms": 50, "repeat": 10_000, "pieces": [{"text": "more words "}]},
    {"when": "look it up", "pieces": [{"text": "I look. "}, {"call": {"name": "look", "arguments": {}}}]},
    {"when": "was found", "pieces": [{"text": "Found."}]},
]  # fmt: skip
TIMEOUT = 60


class Looking(ToolServer):
    """A tool that takes until it is let go."""

    label = "looking"

    def __init__(self) -> None:
        self.let_go = threading.Event()

    async def tools(self) -> Sequence[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name="look"))]

    async def call(self, call: ToolCall) -> ToolResult:
        while not self.let_go.is_set():  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(0.02)
        return ToolResult(text="It was found.")


class Plugin:
    def __init__(self) -> None:
        self.server = Looking()

    @asynccontextmanager
    async def open(self, config: Any) -> AsyncIterator[Looking]:
        yield self.server

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("looking", self.open)


def config(**more: Any) -> dict[str, Any]:
    model = {"engine": "scripted", "max_running": 1, "scripted": {"rules": RULES}}
    slow = {"rules": [{"when": "go on forever", "delay_ms": 3_600_000}]}
    pooled = {
        name: {"engine": "scripted", "scripted": {**slow, "task": task}}
        for name, task in (("e", "embed"), ("r", "rerank"))
    }
    return {"models": {"m": model, **pooled}, "tools": {"looking": {}}, **more}


@pytest.fixture(scope="module")
def plugin() -> Plugin:
    return Plugin()


@pytest.fixture(scope="module")
def url(plugin: Plugin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_gateway(config(), tmp_path_factory.mktemp("requests"), plugins=[plugin]) as running:
        yield running.base_url


def listed(url: str) -> dict[str, Any]:
    answer = httpx.get(f"{url}/gateway/runs", timeout=TIMEOUT)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def states(url: str) -> list[str]:
    return [each["state"] for each in listed(url)["running"]]


def asked(url: str, text: str, stream: bool = True) -> Any:
    body = {"model": "m", "input": text, "stream": stream}
    return httpx.stream("POST", f"{url}/responses", json=body, timeout=TIMEOUT)


def test_running_and_waiting_requests_and_those_whose_client_left(url: str) -> None:
    with asked(url, "go on forever"):
        wait_until(lambda: states(url) == ["decoding"])
        with asked(url, "go on forever, too"):
            wait_until(lambda: states(url) == ["decoding", "queued"])
            running, waiting = listed(url)["running"]
            assert (running["model"], running["api"], running["key"]) == ("m", "responses", None)
            assert running["seconds"] >= waiting["seconds"] > 0
            assert running["first_token_seconds"] > 0
            assert waiting["first_token_seconds"] is waiting["queue_seconds"] is None
            assert (waiting["output_tokens"], waiting["turns"]) == (0, 0)
            before = running["output_tokens"]
            wait_until(lambda: listed(url)["running"][0]["output_tokens"] > before)
    wait_until(lambda: not listed(url)["total"])
    ended = {each["number"]: each for each in listed(url)["ended"]}
    assert ended[running["number"]]["state"] == ended[waiting["number"]]["state"] == "cancelled"
    assert [each["kind"] for each in ended[waiting["number"]]["phases"]] in (
        ["queue"],
        ["queue", "prompt"],
        ["queue", "prompt", "decoding"],
    )


def test_the_timeline_of_a_request_with_a_tool(url: str, plugin: Plugin) -> None:
    plugin.server.let_go.clear()
    try:
        with asked(url, "look it up") as answer:
            wait_until(lambda: states(url) == ["tool"])
            (running,) = listed(url)["running"]
            assert [(each["kind"], each["name"]) for each in running["phases"]] == [
                ("queue", ""), ("prompt", ""), ("decoding", ""), ("tool", "look"),
            ]  # fmt: skip
            plugin.server.let_go.set()
            answer.read()
    finally:
        plugin.server.let_go.set()
    wait_until(lambda: not listed(url)["total"])
    ended = listed(url)["ended"][0]
    assert ended["number"] == running["number"]
    assert (ended["state"], ended["turns"]) == ("completed", 2)
    assert ended["output_tokens"] > 0
    assert [each["kind"] for each in ended["phases"]] == [
        "queue", "prompt", "decoding", "tool", "prompt", "decoding",
    ]  # fmt: skip
    begins = [each["began"] for each in ended["phases"]]
    assert begins == sorted(begins)
    stored = httpx.get(f"{url}/responses/{ended['response_id']}", timeout=TIMEOUT).json()
    assert stored["status"] == "completed"


def test_chat_and_background_are_listed_too(url: str) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    body = {"model": "m", "messages": messages, "n": 2}
    assert httpx.post(f"{url}/chat/completions", json=body, timeout=TIMEOUT).status_code == 200
    wait_until(lambda: listed(url)["ended"][0]["api"] == "chat")
    assert listed(url)["ended"][0]["turns"] == 2
    background = {"model": "m", "input": "go on forever", "background": True}
    made = httpx.post(f"{url}/responses", json=background, timeout=TIMEOUT).json()
    wait_until(lambda: states(url) == ["decoding"])
    assert listed(url)["running"][0]["response_id"] == made["id"]
    httpx.post(f"{url}/responses/{made['id']}/cancel", timeout=TIMEOUT)
    wait_until(lambda: not listed(url)["total"])
    assert listed(url)["ended"][0]["state"] == "cancelled"


@pytest.fixture
def held(url: str) -> Iterator[str]:
    """The gateway while its only place is taken, so that others wait."""
    with asked(url, "go on forever"):
        wait_until(lambda: states(url) == ["decoding"])
        yield url
    wait_until(lambda: not listed(url)["total"])


def cancelled(url: str, run: str) -> httpx.Response:
    return httpx.post(f"{url}/gateway/runs/{run}/cancel", timeout=TIMEOUT)


BODIES: dict[str, dict[str, Any]] = {
    "responses": {"model": "m", "input": "go on forever"},
    "chat/completions": {"model": "m", "messages": [{"role": "user", "content": "go on forever"}]},
    "completions": {"model": "m", "prompt": "go on forever"},
    "messages": {"model": "m", "max_tokens": 100_000, "messages": [{"role": "user", "content": "go on forever"}]},
}  # fmt: skip


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_an_administrator_cancels_a_request_of_any_api(
    url: str, path: str, waits: bool, request: pytest.FixtureRequest
) -> None:
    if waits:
        request.getfixturevalue("held")
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(httpx.post, f"{url}/{path}", json=BODIES[path], timeout=TIMEOUT)
        wanted = "queued" if waits else "decoding"
        wait_until(lambda: states(url)[-1:] == [wanted])
        run = listed(url)["running"][-1]
        answer = cancelled(url, run["id"])
        assert (answer.status_code, answer.json()["id"]) == (200, run["id"])
        got = made.result()
    if path == "responses":
        assert (got.status_code, got.json()["status"]) == (200, "cancelled")
    else:
        assert got.status_code == 403
        assert "administrator" in got.json()["error"]["message"]
    wait_until(lambda: run["id"] in [each["id"] for each in listed(url)["ended"]])
    ended = next(each for each in listed(url)["ended"] if each["id"] == run["id"])
    assert ended["state"] == "cancelled"
    again = cancelled(url, run["id"])
    assert (again.status_code, again.json()["error"]["code"]) == (404, "run_not_found")


def test_a_background_response_and_a_stream_are_cancelled(url: str) -> None:
    background = {"model": "m", "input": "go on forever", "background": True}
    made = httpx.post(f"{url}/responses", json=background, timeout=TIMEOUT).json()
    wait_until(lambda: states(url) == ["decoding"])
    assert cancelled(url, listed(url)["running"][0]["id"]).status_code == 200
    stored = f"{url}/responses/{made['id']}"
    wait_until(lambda: httpx.get(stored, timeout=TIMEOUT).json()["status"] == "cancelled")
    body = {**BODIES["chat/completions"], "stream": True}
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=TIMEOUT) as answer:
        wait_until(lambda: states(url) == ["decoding"])
        cancelled(url, listed(url)["running"][0]["id"])
        answer.read()
    assert '"request_cancelled"' in answer.text


POOLED: dict[str, dict[str, Any]] = {
    "embeddings": {"model": "e", "input": "go on forever"},
    "rerank": {"model": "r", "query": "x", "documents": ["y", "go on forever"]},
    "score": {"model": "r", "text_1": "x", "text_2": "go on forever"},
}


@pytest.mark.parametrize("path", POOLED)
def test_an_administrator_cancels_embeddings_and_scores(url: str, path: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(httpx.post, f"{url}/{path}", json=POOLED[path], timeout=TIMEOUT)
        wait_until(lambda: states(url) == ["working"])
        run = listed(url)["running"][0]["id"]
        assert cancelled(url, run).status_code == 200
        got = made.result()
    assert (got.status_code, got.json()["error"]["code"]) == (403, "request_cancelled")
    wait_until(lambda: not listed(url)["total"])
    assert (listed(url)["ended"][0]["id"], listed(url)["ended"][0]["state"]) == (run, "cancelled")
    assert cancelled(url, run).status_code == 404


def test_a_response_of_a_websocket_is_cancelled_and_the_connection_goes_on(url: str) -> None:
    with connect(f"{url.replace('http', 'ws', 1)}/responses") as socket:

        def ends(text: str) -> dict[str, Any]:
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": text}))
            if text == "go on forever":
                wait_until(lambda: states(url) == ["decoding"])
                assert cancelled(url, listed(url)["running"][0]["id"]).status_code == 200
            while True:
                event: dict[str, Any] = json.loads(socket.recv(TIMEOUT))
                if "response" in event and event["response"]["status"] not in (
                    "queued",
                    "in_progress",
                ):
                    return event

        assert ends("go on forever")["response"]["status"] == "cancelled"
        assert ends("Hello")["response"]["status"] == "completed"


def test_several_choices_are_cancelled_at_once(url: str) -> None:
    body = {**BODIES["chat/completions"], "n": 3, "stream": True}
    with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=TIMEOUT) as answer:
        wait_until(lambda: states(url) == ["decoding"])
        run = listed(url)["running"][0]["id"]
        with ThreadPoolExecutor(3) as pool:
            codes = {each.status_code for each in pool.map(lambda _: cancelled(url, run), range(3))}
        answer.read()
    assert 200 in codes <= {200, 404}
    assert answer.text.count('"request_cancelled"') == 1


@pytest.mark.parametrize("run", ["run_x_1", "1", "%00", "a" * 5000, "run_%2e%2e", "<script>"])
def test_a_run_that_is_not_there_is_not_found(url: str, run: str) -> None:
    assert cancelled(url, run).status_code == 404


def test_nothing_is_kept_where_the_console_is_off(tmp_path: Path) -> None:
    with run_gateway(config(server={"apis": []}), tmp_path, plugins=[Plugin()]) as running:
        url = running.base_url
        with asked(url, "Hello") as answer:
            answer.read()
        wait_until(lambda: not listed(url)["total"])
        assert listed(url)["ended"] == []
        assert running.services.run_history is None
