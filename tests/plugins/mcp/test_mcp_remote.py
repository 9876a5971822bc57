"""Servers that a request names by their URL."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from gateway.base.process_pool import ProcessPool
from gateway.wire.tools import McpTool
from gateway_mcp.config import RemoteServersConfig
from gateway_mcp.guard import RemoteGuard
from gateway_mcp.links import ClosingConnections
from gateway_mcp.remote import KEPT_LISTS, RemoteServers
from gateway_testing.grammar import fold, parse_sse

HERE = {"enabled": True, "allow_hosts": ["127.0.0.1"], "allow_private": True}
StartGateway = Callable[..., Any]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *args: Any) -> None:
        pass  # a client that does not wait for the answer


class Recorder:
    """An HTTP server that is no MCP server: it notes what it is sent and answers as it is told."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.answer: tuple[int, dict[str, str], bytes] = (401, {}, b"")
        self.delay = 0.0
        recorder = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.answer()

            def do_GET(self) -> None:
                self.answer()

            def do_DELETE(self) -> None:
                self.answer()

            def answer(self) -> None:
                recorder.headers.append({k.lower(): v for k, v in self.headers.items()})
                self.rfile.read(int(self.headers.get("content-length", 0)))
                time.sleep(recorder.delay)
                status, headers, body = recorder.answer
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/mcp"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    server = Recorder()
    yield server
    server.close()


def ask(
    gateway: Any, entry: dict[str, Any], text: str = "please add", **body: Any
) -> httpx.Response:
    tool = {"type": "mcp", "server_label": "far", "require_approval": "never", **entry}
    body = {"model": "m", "input": text, "tools": [tool], **body}
    return httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60)


@pytest.mark.parametrize("transport", ["streamable", "sse"])
def test_a_remote_server_is_listed_and_called(
    mcp_gateway: StartGateway, transport: str, request: pytest.FixtureRequest
) -> None:
    gateway = mcp_gateway(remote=HERE)
    url = request.getfixturevalue(transport).url
    answer = ask(gateway, {"server_url": url}, stream=True)
    response = fold(parse_sse(answer.content))
    assert [item["type"] for item in response["output"]] == [
        "mcp_list_tools",
        "mcp_call",
        "message",
    ]
    assert response["output"][1]["output"] == "The sum is 5."
    metrics = httpx.get(gateway.base_url.removesuffix("/v1") + "/metrics").text
    assert 'tool="remote mcp"' in metrics


def test_a_remote_servers_calls_are_approved_unless_the_request_says_otherwise(
    mcp_gateway: StartGateway, streamable: Any
) -> None:
    gateway = mcp_gateway(remote=HERE)
    tool: Any = {"type": "mcp", "server_label": "far", "server_url": streamable.url}
    with gateway.client() as client:
        first = client.responses.create(model="m", input="please add", tools=[tool])
        assert first.output[1].type == "mcp_approval_request"
        approval: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": first.output[1].id,
            "approve": True,
        }
        second = client.responses.create(
            model="m", input=[approval], tools=[tool], previous_response_id=first.id
        )
        assert second.output_text == "It is five."


def test_credentials_reach_the_server_and_nobody_else(
    mcp_gateway: StartGateway, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = mcp_gateway(remote=HERE, server={"log_level": "debug"})
    caplog.set_level(logging.DEBUG)
    entry = {
        "server_url": recorder.url + "?key=QUERYSECRET",
        "authorization": "TOKENSECRET",
        "headers": {"X-Api-Key": "HEADERSECRET"},
    }
    brought = {"type": "additional_tools", "role": "developer", "tools": []}
    brought["tools"] = [{"type": "mcp", "server_label": "far", **entry}]
    refused = ask(gateway, entry, input=[{"role": "user", "content": "hello"}, brought])
    assert refused.status_code == 400, "an item cannot bring a server's tools"
    started = ask(gateway, entry, background=True, stream=True)
    assert started.status_code == 200, started.text
    response = fold(parse_sse(started.content))
    assert recorder.headers[0]["authorization"] == "Bearer TOKENSECRET"
    assert recorder.headers[0]["x-api-key"] == "HEADERSECRET"
    assert response["output"][0]["error"], "a 401 is a failed list"
    [shown] = response["tools"]
    assert shown["server_url"] == recorder.url
    base = f"{gateway.base_url}/responses/{response['id']}"
    stored = httpx.get(base).text + httpx.get(f"{base}/input_items").text
    stored += httpx.get(f"{base}?stream=true").text
    for place in (refused.text, started.text, stored, caplog.text):
        for secret in ("TOKENSECRET", "HEADERSECRET", "QUERYSECRET"):
            assert secret not in place


@pytest.mark.parametrize(
    ("remote", "entry", "status", "param"),
    [
        ({}, {}, 400, "server_url"),
        ({"enabled": True}, {}, 403, "server_url"),
        ({"enabled": True, "allow_hosts": ["127.0.0.1"]}, {}, 403, "server_url"),
        (HERE, {"server_url": "file:///etc/passwd"}, 400, "server_url"),
        (HERE, {"server_url": "http://localhost:1/"}, 403, "server_url"),
        (HERE, {"headers": {"Host": "inner"}}, 400, "headers"),
        (HERE, {"headers": {"X": "a\r\nY: b"}}, 400, "headers"),
        (HERE, {"headers": {"authorization": "a"}, "authorization": "b"}, 400, "authorization"),
    ],
)
def test_what_is_not_allowed_is_refused_before_anything_is_sent(
    mcp_gateway: StartGateway,
    recorder: Recorder,
    remote: dict[str, Any],
    entry: dict[str, Any],
    status: int,
    param: str,
) -> None:
    answer = ask(mcp_gateway(remote=remote), {"server_url": recorder.url, **entry})
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, f"tools[0].{param}")


def test_two_entries_of_one_label_are_refused(mcp_gateway: StartGateway, streamable: Any) -> None:
    entry = {"type": "mcp", "server_label": "far", "server_url": streamable.url}
    answer = ask(mcp_gateway(remote=HERE), entry, tools=[entry, entry])
    assert answer.json()["error"]["param"] == "tools[1].server_label"


def failed_list(gateway: Any, url: str) -> str:
    answer = ask(gateway, {"server_url": url})
    assert answer.status_code == 200, answer.text
    response = answer.json()
    assert response["status"] == "completed"
    assert response["output"][0]["type"] == "mcp_list_tools"
    error: str = response["output"][0]["error"]
    return error


def test_a_redirect_to_elsewhere_is_not_followed(
    mcp_gateway: StartGateway, recorder: Recorder
) -> None:
    elsewhere = Recorder()
    try:
        recorder.answer = (307, {"location": elsewhere.url}, b"")
        assert failed_list(mcp_gateway(remote=HERE), recorder.url)
        assert recorder.headers
        assert not elsewhere.headers
    finally:
        elsewhere.close()


def test_a_server_that_hangs_is_given_up(mcp_gateway: StartGateway, recorder: Recorder) -> None:
    recorder.delay = 3
    error = failed_list(mcp_gateway(remote={**HERE, "connect_timeout": 0.3}), recorder.url)
    assert "did not answer within 0.3 seconds" in error


def test_a_server_that_floods_is_given_up(mcp_gateway: StartGateway, recorder: Recorder) -> None:
    recorder.answer = (200, {"content-type": "application/json"}, b'"' + b"x" * 3_000_000)
    gateway = mcp_gateway(remote={**HERE, "max_message_bytes": 100_000})
    assert "could not be listed" in failed_list(gateway, recorder.url)


def test_garbage_is_a_failed_list(mcp_gateway: StartGateway, recorder: Recorder) -> None:
    recorder.answer = (200, {"content-type": "application/json"}, b'{"jsonrpc": "2.0", "id": 0}')
    error = failed_list(mcp_gateway(remote=HERE), recorder.url)
    assert "could not be listed: its answer is not a valid message of the protocol" in error


def test_a_server_with_too_many_tools_is_refused(
    mcp_gateway: StartGateway, streamable: Any
) -> None:
    gateway = mcp_gateway(remote={**HERE, "max_tools": 3})
    assert "more than 3 tools" in failed_list(gateway, streamable.url)


def test_lists_are_kept_apart_by_owner_and_credentials_and_not_for_ever() -> None:
    config = RemoteServersConfig(enabled=True, allow_hosts=["*"])
    servers = RemoteServers(config, RemoteGuard(config), ClosingConnections(), ProcessPool())

    def kept(owner: str | None, token: str) -> object:
        tool = McpTool(server_label="x", server_url="https://a.net/mcp", authorization=token)
        return servers.server(tool, "https://a.net/mcp", owner=owner).tool_list

    first = kept("ada", "1")
    assert kept("ada", "1") is first
    assert kept("bob", "1") is not first
    assert kept("ada", "2") is not first
    for number in range(KEPT_LISTS):
        kept("eve", str(number))
    assert kept("ada", "1") is not first
