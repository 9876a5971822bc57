"""Hostile MCP servers: whatever they send, the gateway goes on answering others, and the model reads an error."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from gateway.tools.probes import ToolProbes
from gateway_mcp.screening import MAX_VALUES, count_values

LONGEST_SILENCE = 15.0
"""Seconds in which `/health` must answer. What these servers send would take from half a minute to for ever."""
Send = Callable[[bytes], None]


class HostileServer:
    """Speaks MCP by streamable HTTP without an SDK, which would refuse to send what this one sends."""

    def __init__(self) -> None:
        self.tools: Any = [{"name": "attack", "inputSchema": {"type": "object"}}]
        self.result: Any = {"content": [{"type": "text", "text": "harmless"}]}
        self.list_result: Callable[[], Any] = lambda: {"tools": self.tools}
        self.call: Callable[[int, Send], None] | None = None
        """Writes the body of an answer to a call, by itself."""
        self.call_type = "text/event-stream"
        self.get: Callable[[Send], None] | None = None
        self.requests: list[tuple[str, str]] = []
        """The method and path of each request."""
        self.lists = 0
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hostile.requests.append(("GET", self.path))
                if hostile.get is None:
                    self.send_error(405)
                else:
                    self.stream("text/event-stream", hostile.get)

            def do_DELETE(self) -> None:
                hostile.requests.append(("DELETE", self.path))
                self.send_error(405)

            def do_POST(self) -> None:
                hostile.requests.append(("POST", self.path))
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                match asked:
                    case {"method": "initialize", "id": id_}:
                        self.tell(
                            id_,
                            {
                                "protocolVersion": "2025-06-18",
                                "capabilities": {"tools": {}},
                                "serverInfo": {"name": "hostile", "version": "1"},
                            },
                        )
                    case {"method": "tools/list", "id": id_}:
                        hostile.lists += 1
                        self.tell(id_, hostile.list_result())
                    case {"method": "tools/call", "id": id_} if hostile.call is not None:
                        answer = hostile.call
                        self.stream(hostile.call_type, lambda send: answer(id_, send))
                    case {"method": "tools/call", "id": id_}:
                        self.tell(id_, hostile.result)
                    case {"id": id_, "method": _}:
                        self.send(
                            {
                                "jsonrpc": "2.0",
                                "id": id_,
                                "error": {"code": -32601, "message": "Method not found"},
                            }
                        )
                    case _:
                        self.send_response(202)
                        self.send_header("content-length", "0")
                        self.end_headers()

            def tell(self, id_: Any, result: Any) -> None:
                self.send({"jsonrpc": "2.0", "id": id_, "result": result})

            def send(self, message: Any) -> None:
                body = json.dumps(message).encode()
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("mcp-session-id", "s")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def stream(self, kind: str, write: Callable[[Send], None]) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True
                with suppress(OSError):
                    write(self.wfile.write)  # type: ignore[arg-type]

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: Any) -> None:
                pass  # the gateway has gone away

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/mcp"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def hostile() -> Iterator[HostileServer]:
    server = HostileServer()
    yield server
    server.close()


@pytest.fixture
def gateway(gateway_server: Any, tmp_path: Any, request: pytest.FixtureRequest) -> Any:
    """A gateway whose model calls `attack`, and then says what it has read. The parameter is the time limit."""
    scenario = tmp_path / "scenario.json"
    pieces = [{"call": {"name": "attack", "arguments": {}}}]
    scenario.write_text(
        json.dumps(
            [
                {"when": "please attack", "pieces": pieces},
                {"when": "</tool_response>", "pieces": [{"text": "So it is."}]},
            ]
        ),
        encoding="utf-8",
    )
    remote = {
        "enabled": True,
        "allow_hosts": ["127.0.0.1"],
        "allow_private": True,
        "time_limit": getattr(request, "param", 30.0),
        "connect_timeout": 30.0,
    }
    return gateway_server(
        {
            "models": {"m": {"engine": "scripted", "path": str(scenario)}},
            "tools": {"mcp": {"remote": remote}},
        }
    )


def attacked(gateway: Any, server: HostileServer) -> dict[str, Any]:
    """Let the model call the server, and ask for `/health` meanwhile. The response."""
    tool = {
        "type": "mcp",
        "server_label": "far",
        "server_url": server.url,
        "require_approval": "never",
    }
    body = {"model": "m", "input": "please attack", "tools": [tool]}
    health = gateway.base_url.removesuffix("/v1") + "/health"
    with ThreadPoolExecutor(1) as threads, httpx.Client(timeout=120) as client:
        client.get(health)
        call = threads.submit(httpx.post, f"{gateway.base_url}/responses", json=body, timeout=120)
        slowest = 0.0
        while not call.done():
            begun = time.monotonic()
            assert client.get(health).status_code == 200
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.02)
        assert slowest < LONGEST_SILENCE, f"/health waited {slowest:.1f} s"
        response = call.result()
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    assert answer["status"] == "completed", answer
    return answer


def error_of(answer: Mapping[str, Any]) -> str:
    """The error of the one call, as text."""
    [call] = [item for item in answer["output"] if item["type"] == "mcp_call"]
    return json.dumps(call["error"]) if call["error"] else ""


def _all_of_bomb(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {"d0": {"type": "object"}}
    for level in range(1, levels):
        below = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"allOf": [below, below]}
    return {"$defs": definitions, "allOf": [{"$ref": f"#/$defs/d{levels - 1}"}]}


EXPENSIVE: dict[str, tuple[dict[str, Any], Any]] = {
    "names by a pattern that backtracks": (
        {"patternProperties": {"^(a+)+$": {}}},
        {"a" * 40 + "b": 1},
    ),
    "unique objects": (
        {"properties": {"a": {"uniqueItems": True}}},
        {"a": [{"k": {"n": number}} for number in range(12_000)]},
    ),
    "a tree of references": (_all_of_bomb(40), {}),
    "an endless reference": ({"$ref": "#"}, {}),
    "a repetition of a repetition": (
        {"properties": {"a": {"pattern": "^((a{1,100}){1,100}){1,100}$"}}},
        {"a": "a" * 40 + "b"},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", EXPENSIVE)
def test_an_output_schema_that_takes_for_ever_is_a_tool_error(
    gateway: Any, hostile: HostileServer, what: str
) -> None:
    schema, content = EXPENSIVE[what]
    hostile.tools[0]["outputSchema"] = {"type": "object", **schema}
    hostile.result = {"content": [], "structuredContent": content}
    assert "outputSchema" in error_of(attacked(gateway, hostile))


def test_an_answer_is_checked_against_its_output_schema(
    gateway: Any, hostile: HostileServer
) -> None:
    hostile.tools[0]["outputSchema"] = {"type": "object", "required": ["n"]}
    hostile.result = {"content": [], "structuredContent": {"n": 1}}
    assert not error_of(attacked(gateway, hostile))
    hostile.result = {"content": [], "structuredContent": {"m": 1}}
    assert "does not fit its outputSchema" in error_of(attacked(gateway, hostile))
    hostile.result = {"content": [{"type": "text", "text": "no structure"}]}
    assert "no structured content" in error_of(attacked(gateway, hostile))


def test_an_output_schema_is_not_evaluated_on_the_event_loop(
    gateway: Any, hostile: HostileServer
) -> None:
    pattern = {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    hostile.tools[0]["outputSchema"] = {"type": "object", **pattern}
    hostile.result = {"content": [], "structuredContent": {"a": "a" * 40 + "b"}}
    assert "could not be checked" in error_of(attacked(gateway, hostile))


def test_a_reference_in_a_schema_is_never_fetched(gateway: Any, hostile: HostileServer) -> None:
    there = f"http://127.0.0.1:{hostile.port}/schema.json"
    hostile.tools[0]["outputSchema"] = {"type": "object", "$ref": there}
    hostile.tools[0]["inputSchema"] = {"type": "object", "properties": {"a": {"$ref": there}}}
    hostile.result = {"content": [], "structuredContent": {"n": 1}}
    assert "leads nowhere" in error_of(attacked(gateway, hostile))
    assert {path for _, path in hostile.requests} == {"/mcp"}


def _message(result: str) -> bytes:
    return f'{{"jsonrpc":"2.0","id":ID,"result":{result}}}'.encode()


LARGE = {
    "parts that are none": _message('{"content":[' + ",".join(["{}"] * 1_000_000) + "]}"),
    "parts": _message(
        '{"content":[' + ",".join(['{"type":"text","text":""}'] * 120_000) + "]}"
    ),
    "few bytes for each part": _message('{"content":[' + ",".join(["{}"] * 20_000) + "]}"),
    "numbers": _message(
        '{"content":[],"structuredContent":{"a":[' + ",".join(["1"] * 2_000_000) + "]}}"
    ),
    "nested": _message(
        '{"content":[],"structuredContent":{"a":' + "[" * 1_000_000 + "]" * 1_000_000 + "}}"
    ),
    "a number": _message('{"content":[],"structuredContent":{"a":' + "9" * 4_000_000 + "}}"),
    "no JSON": b'"' * 4_000_000,
}  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["application/json", pytest.param("text/event-stream", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("what", LARGE)
def test_a_message_that_takes_long_to_parse_is_a_tool_error(
    gateway: Any, hostile: HostileServer, what: str, kind: str
) -> None:
    def answer(id_: int, send: Send) -> None:
        message = LARGE[what].replace(b"ID", str(id_).encode(), 1)
        send(b"data: " + message + b"\n\n" if kind == "text/event-stream" else message)

    hostile.call, hostile.call_type = answer, kind
    assert error_of(attacked(gateway, hostile))


@pytest.mark.parametrize("charset", ["punycode", "utf-7", "idna", "unicode_escape", "hz"])
def test_an_event_stream_is_utf_8_whatever_it_claims(
    gateway: Any, hostile: HostileServer, charset: str
) -> None:
    def answer(id_: int, send: Send) -> None:
        text = "é" * 200_000 + "-" + "z9" * 200_000
        result = {"content": [{"type": "text", "text": text}]}
        message = json.dumps({"jsonrpc": "2.0", "id": id_, "result": result}, ensure_ascii=False)
        send(b"data: " + message.encode() + b"\n\n")

    hostile.call, hostile.call_type = answer, f"text/event-stream; charset={charset}"
    assert not error_of(attacked(gateway, hostile))


def _flood(text: str) -> Callable[[int, Send], None]:
    def answer(id_: int, send: Send) -> None:
        for number in itertools.count():
            send(text.replace("ID", str(number)).encode())

    return answer


FLOODS = {
    "notifications": 'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n',
    "log messages": 'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"error",'
    '"data":"x"}}\n\n',
    "progress": 'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,'
    '"progress":ID}}\n\n',
    "pings": 'data: {"jsonrpc":"2.0","id":"pID","method":"ping"}\n\n',
    "sampling": 'data: {"jsonrpc":"2.0","id":"pID","method":"sampling/createMessage","params":{"messages":[],'
    '"maxTokens":1}}\n\n',
    "elicitation": 'data: {"jsonrpc":"2.0","id":"pID","method":"elicitation/create","params":{"message":"key?",'
    '"requestedSchema":{"type":"object","properties":{"a":{"type":"string"}}}}}\n\n',
    "other answers": 'data: {"jsonrpc":"2.0","id":"pID","result":{}}\n\n',
    "what is not a message": "data: {}\n\n",
    "comments": ": \n" * 1000,
    "empty lines": "\n" * 10_000,
    "a line without end": "x" * 65_536,
    "an event without end": "data: x\n",
    "unknown events": "event: x\ndata: 1\n\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FLOODS)
@pytest.mark.parametrize("gateway", [8.0], indirect=True, ids=["8 s"])
def test_a_flood_of_messages_holds_nobody_up(
    gateway: Any, hostile: HostileServer, what: str
) -> None:
    hostile.call = _flood(FLOODS[what])
    assert error_of(attacked(gateway, hostile)) or what == "other answers"


@pytest.mark.slow
def test_a_stream_that_ends_at_once_is_not_asked_for_without_pause(
    gateway: Any, hostile: HostileServer
) -> None:
    hostile.get = lambda send: send(b"retry: 0\nid: 1\ndata: \n\n")
    hostile.call = lambda id_, send: time.sleep(4)
    attacked(gateway, hostile)
    assert len(hostile.requests) < 400


def test_a_request_for_input_is_declined(gateway: Any, hostile: HostileServer) -> None:
    hostile.result = {"resultType": "input_required", "requestState": "again"}
    assert error_of(attacked(gateway, hostile))


def listing_error(answer: Mapping[str, Any]) -> str:
    [listed] = [item for item in answer["output"] if item["type"] == "mcp_list_tools"]
    return str(listed.get("error") or "")


TOOL = {"name": "attack", "inputSchema": {"type": "object"}}
LISTS: dict[str, Any] = {
    "more tools than a server may have": {
        "tools": [{**TOOL, "name": f"t{number}"} for number in range(300)]
    },
    "very many tools": {"tools": [TOOL] * 20_000},
    "one page after another": {"tools": [], "nextCursor": "more"},
    "a long description": {"tools": [{**TOOL, "description": "x" * 1_000_000}]},
    "a long name": {"tools": [{**TOOL, "name": "x" * 1_000_000}]},
    "a large schema": {
        "tools": [
            {
                **TOOL,
                "inputSchema": {
                    "type": "object",
                    "properties": {"x" * 200 + str(number): {} for number in range(2_000)},
                },
            }
        ]
    },
    "many icons": {"tools": [{**TOOL, "icons": [{"src": "x"}] * 10_000}]},
}


@pytest.mark.parametrize("what", LISTS)
def test_a_list_of_tools_is_bounded(gateway: Any, hostile: HostileServer, what: str) -> None:
    hostile.list_result = lambda: LISTS[what]
    assert listing_error(attacked(gateway, hostile))
    assert hostile.lists <= 110


@pytest.mark.slow
@pytest.mark.parametrize("gateway", [5.0], indirect=True)
def test_a_slow_answer_ends_with_the_time_limit(gateway: Any, hostile: HostileServer) -> None:
    def answer(id_: int, send: Send) -> None:
        for _ in range(600):
            send(b":\n\n")
            time.sleep(0.1)

    hostile.call = answer
    begun = time.monotonic()
    assert "within 5 seconds" in error_of(attacked(gateway, hostile))
    assert time.monotonic() - begun < 60


def test_values_are_counted_outside_of_strings() -> None:
    text = json.dumps({"a": "x,y,{[" * 100_000, "b": [1, 2, {"c": '"\\,'}] * 10})
    assert count_values(text.encode()) <= MAX_VALUES
    assert count_values(b"[" + b"1," * MAX_VALUES + b"1]") > MAX_VALUES
    assert count_values(b'["",' * MAX_VALUES) > MAX_VALUES
    assert count_values(b"{}" * MAX_VALUES * 2) > MAX_VALUES
    assert count_values(b'"\\"' + b"," * MAX_VALUES * 2 + b'"') <= MAX_VALUES
    assert count_values(b'"\\\\"' + b"," * MAX_VALUES * 2) > MAX_VALUES


HTML = "<img src=x onerror=alert(1)>\u202e"
SECRET = "secret-of-the-gateway"
ANY = {"type": "object"}
LISTINGS: dict[str, tuple[Any, str]] = {
    "html": ({"tools": [{"name": HTML, "description": HTML + SECRET, "inputSchema": ANY}]}, ""),
    "large": (
        {"tools": [{"name": f"t{n}", "description": "d" * 900, "inputSchema": ANY} for n in range(900)]},
        "its tools' descriptions and schemas are too large",
    ),
    "endless": ({"tools": [], "nextCursor": "again"}, "its list of tools does not end"),
    "wrong": ({"tools": [{"name": 1}] * 1000}, "it does not hold to the protocol"),
    "text": (SECRET, "its answer is not a valid message of the protocol"),
}  # fmt: skip
"""What servers answer to `tools/list`, and how the reason begins why that is refused."""


def test_a_probe_of_hostile_servers(gateway_server: Any) -> None:
    """Their texts are shown as they are, as JSON; what is wrong is one sentence; the gateway's key for them is not shown."""
    with ExitStack() as stack:
        servers = {}
        for label, (listing, _) in LISTINGS.items():
            hostile = HostileServer()
            stack.callback(hostile.close)
            hostile.list_result = lambda listing=listing: listing  # type: ignore[misc]
            servers[label] = {"url": hostile.url, "headers": {"x-key": SECRET}}
        models = {"m": {"engine": "scripted"}}
        gateway = gateway_server({"models": models, "tools": {"mcp": {"servers": servers}}})
        gateway.services.tool_probes = ToolProbes(seconds=60, all_seconds=60)  # for slow machines
        answer = httpx.post(f"{gateway.base_url}/gateway/tools/probe", timeout=120)
    assert answer.headers["content-type"] == "application/json"
    assert SECRET not in answer.text
    found = {each["label"]: each for each in answer.json()["data"]}
    assert [each["name"] for each in found["html"]["tools"]] == [HTML]
    assert found["html"]["tools"][0]["description"] == f"{HTML}[hidden]"
    for label, (_, reason) in LISTINGS.items():
        if reason:
            assert found[label]["state"] == "unreachable"
            assert found[label]["error"].startswith(reason), found[label]


def test_headers_for_a_server_are_few(gateway_server: Any) -> None:
    """HTTP libraries pass over them many times on the event loop: 300,000 held up other requests for ten seconds."""
    remote = {"enabled": True, "allow_hosts": ["*"]}
    config = {"models": {"m": {"engine": "scripted"}}, "tools": {"mcp": {"remote": remote}}}
    gateway = gateway_server(config)
    tool = {"type": "mcp", "server_label": "far", "server_url": "https://far.example/mcp"}
    headers = {f"x-{number}": "a" for number in range(65)}
    body = {"model": "m", "input": "hi", "tools": [{**tool, "headers": headers}]}
    answer = httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == "tools[0].headers"
    assert "At most 64 headers" in error["message"]
