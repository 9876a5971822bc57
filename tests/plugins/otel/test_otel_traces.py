"""Traces of requests, as a receiver of OTLP over HTTP gets them."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="litegate-otel is not installed"
)

from openai import InternalServerError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from websockets.sync.client import connect

import gateway_otel
from gateway import hookimpl
from gateway.sdk.tools import functions
from gateway_testing.server import run_gateway
from tests.e2e.observability.conftest import ReadableLog

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PROMPT = "my secret word is xylophone"
RULES = [
    {"when": "result: 7", "pieces": [{"text": "It is seven."}]},
    {"when": "now throw", "pieces": [{"call": {"name": "roll", "arguments": {}}}]},
    {"when": "traceparent", "pieces": [{"text": "Told."}]},
    {"when": "please tell", "pieces": [{"call": {"name": "tell", "arguments": {}}}]},
    {"when": "break down", "finish": "error", "pieces": [{"text": "It begins"}]},
    {"when": "go slowly", "delay_ms": 20, "repeat": 300, "pieces": [{"text": "slow words "}]},
]


class Receiver:
    """Collects spans."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                    receiver.resources.append(attributes(each.resource))
                    for scope in each.scope_spans:
                        receiver.spans += scope.spans
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def trace(self, trace_id: str = TRACE) -> list[Any]:
        return [span for span in self.spans if span.trace_id.hex() == trace_id]


def attributes(of: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


class Dice:
    """A plugin with a tool, which keeps the trace context of its calls."""

    __name__ = "gateway_dice"

    def __init__(self) -> None:
        self.seen: list[Any] = []

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        def roll() -> str:
            """Roll a die."""
            return "result: 7"

        register("dice", functions("dice", roll))


Start = Callable[..., contextlib.AbstractContextManager[Any]]


@pytest.fixture
def start(receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Start:
    """Start a gateway that exports to the receiver. What it has made is there when its context is left."""
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_SERVICE_NAME", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def started(mcp: Any = None) -> Any:
        config = {
            "models": {
                "m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": RULES}},
                "r": {"engine": "scripted", "scripted": {"task": "rerank", "rules": RULES}},
            },
            "tools": {"dice": {}} if mcp is None else {"mcp": mcp},
        }  # fmt: skip
        return run_gateway(config, tmp_path, plugins=[gateway_otel, Dice()] if not installed() else [Dice()])  # fmt: skip

    return started


def installed() -> bool:
    from importlib.metadata import entry_points

    return "otel" in {each.name for each in entry_points(group="gateway")}


def by_name(spans: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for span in spans:
        found.setdefault(span.name, []).append(span)
    return found


def post(gateway: Any, path: str = "responses", **body: Any) -> httpx.Response:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-request-id": "req-seen"}
    body = {"model": "m", **body}
    return httpx.post(f"{gateway.base_url}/{path}", json=body, headers=headers, timeout=60)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_with_a_tool_is_one_trace_below_the_client_s_span(
    start: Start, receiver: Receiver, stream: bool
) -> None:
    with start() as gateway:
        assert "seven" in post(gateway, input=f"now throw; {PROMPT}", stream=stream).text
    found = by_name(receiver.trace())
    assert {name: len(spans) for name, spans in found.items()} == {
        "POST /v1/responses": 1, "queue": 1, "render": 2, "chat m": 2, "execute_tool roll": 1, "store": 1,
    }  # fmt: skip
    [request] = found["POST /v1/responses"]
    assert request.parent_span_id.hex() == PARENT
    for name, spans in found.items():
        for span in spans:
            if name != "POST /v1/responses":
                assert span.parent_span_id == request.span_id
            assert request.start_time_unix_nano - 5_000_000 <= span.start_time_unix_nano
            assert span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= request.end_time_unix_nano + 5_000_000
    said = attributes(request)
    assert said["gateway.request_id"] == "req-seen"
    assert said["http.response.status_code"] == 200
    assert said["gateway.run.status"] == "completed"
    generation = attributes(found["chat m"][0])
    assert generation["gen_ai.operation.name"] == "chat"
    assert generation["gen_ai.provider.name"] == "scripted"
    assert generation["gen_ai.request.model"] == "m"
    assert generation["gen_ai.usage.input_tokens"] > 0
    assert generation["gen_ai.usage.output_tokens"] > 0
    assert generation["gen_ai.response.id"] == said["gen_ai.response.id"]
    assert [event.name for event in found["chat m"][0].events] == ["first_token"]
    tool = attributes(found["execute_tool roll"][0])
    assert (tool["gen_ai.operation.name"], tool["gen_ai.tool.name"]) == ("execute_tool", "roll")
    assert receiver.resources[0]["service.name"] == "litegate"


def test_spans_have_no_texts_and_no_keys(start: Start, receiver: Receiver) -> None:
    with start() as gateway:
        post(gateway, input=PROMPT)
        post(gateway, input=5)
    assert len(receiver.trace()) > 4
    everything = "".join(str(span) for span in receiver.spans)
    assert "xylophone" not in everything


@pytest.mark.parametrize(
    ("path", "body", "name"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": "hello"}]}, "chat m"),
        ("completions", {"prompt": "hello"}, "text_completion m"),
        ("messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}, "chat m"),
    ],
)  # fmt: skip
def test_the_other_apis_are_traced(
    start: Start, receiver: Receiver, path: str, body: Any, name: str
) -> None:
    with start() as gateway:
        assert post(gateway, path, **body).status_code == 200
    found = by_name(receiver.trace())
    assert {f"POST /v1/{path}", "queue", name} <= set(found)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("embeddings", {"input": ["one", PROMPT]}),
        ("rerank", {"model": "r", "query": PROMPT, "documents": ["one", "two"]}),
        ("score", {"model": "r", "text_1": PROMPT, "text_2": "two"}),
    ],
)
def test_embeddings_and_scores_are_traced(
    start: Start, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, path: str, body: Any
) -> None:
    """The engine gets the context of its span, and the span has no texts."""
    name = body.get("model", "m")
    asked: list[Any] = []
    with start() as gateway:
        engine = gateway.services.models[name].engine
        method = "embed" if path == "embeddings" else "score"
        work = getattr(engine, method)

        async def seen(request: Any) -> Any:
            asked.append(request.trace_headers)
            return await work(request)

        monkeypatch.setattr(engine, method, seen)
        assert post(gateway, path, **body).status_code == 200
    found = by_name(receiver.trace())
    assert found.keys() == {f"POST /v1/{path}", "queue", f"{path} {name}"}
    [request], [work_span] = found[f"POST /v1/{path}"], found[f"{path} {name}"]
    assert work_span.parent_span_id == request.span_id
    assert work_span.kind == 3  # client
    said = attributes(work_span)
    assert said["gen_ai.operation.name"] == path
    assert said["gen_ai.request.model"] == name
    assert said["gen_ai.usage.input_tokens"] > 0
    [headers] = asked
    assert headers["traceparent"] == f"00-{TRACE}-{work_span.span_id.hex()}-01"
    assert "xylophone" not in "".join(str(span) for span in receiver.spans)


def test_a_failed_score_is_a_failed_span(start: Start, receiver: Receiver) -> None:
    with start() as gateway:
        body = {"model": "r", "query": "one", "documents": ["break down"]}
        assert post(gateway, "rerank", **body).status_code == 500
    [span] = by_name(receiver.trace())["rerank r"]
    assert span.status.code == 2
    assert attributes(span)["error.type"] == "unfinished"


def test_errors_are_those_of_the_spans(start: Start, receiver: Receiver) -> None:
    with start() as gateway:
        post(gateway, input="break down", stream=True)
        post(gateway, input="x", model="none")
    failed, refused = by_name(receiver.trace())["POST /v1/responses"]
    assert attributes(failed)["error.type"] == "server_error"
    assert attributes(refused)["error.type"] == "model_not_found"
    [generation] = by_name(receiver.trace())["chat m"]
    assert generation.status.code == 2


def test_a_client_that_leaves_ends_the_trace(start: Start, receiver: Receiver) -> None:
    with start() as gateway:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        body = {"model": "m", "input": "go slowly", "stream": True}
        with httpx.stream("POST", f"{gateway.base_url}/responses", json=body, headers=headers) as answer:  # fmt: skip
            next(answer.iter_lines())
    [request] = by_name(receiver.trace())["POST /v1/responses"]
    assert attributes(request)["gateway.client_left"]
    assert attributes(request)["gateway.run.status"] == "cancelled"


def test_a_background_run_goes_on_in_the_same_trace(start: Start, receiver: Receiver) -> None:
    with start() as gateway:
        made = post(gateway, input="hello", background=True).json()
        end = time.monotonic() + 60
        while httpx.get(f"{gateway.base_url}/responses/{made['id']}").json()["status"] != "completed":  # fmt: skip
            assert time.monotonic() < end
            time.sleep(0.02)
    found = by_name(receiver.trace())
    [background], [generation] = found["background"], found["chat m"]
    assert generation.parent_span_id == background.span_id
    assert background.parent_span_id == found["POST /v1/responses"][0].span_id


def test_each_response_of_a_websocket_is_traced(start: Start, receiver: Receiver) -> None:
    with start() as gateway:
        url = f"ws{gateway.base_url.removeprefix('http')}/responses"
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        with connect(url, additional_headers=headers) as socket:
            socket.send(json.dumps({"type": "response.create", "model": "m", "input": "hello"}))
            while json.loads(socket.recv())["type"] != "response.completed":
                pass
    assert {"WEBSOCKET /v1/responses", "queue", "chat m"} <= set(by_name(receiver.trace()))


@pytest.mark.parametrize("sent", ["", "garbage", f"00-{'0' * 32}-{PARENT}-01", "00-" + "f" * 100_000])  # fmt: skip
def test_a_hostile_traceparent_begins_a_trace_of_its_own(
    start: Start, receiver: Receiver, sent: str
) -> None:
    with start() as gateway:
        sent = sent[:5000]  # beyond it, the request itself is refused
        headers = {"traceparent": sent, "tracestate": "x=" + "y" * 5000}
        body = {"model": "m", "input": "hello"}
        answer = httpx.post(f"{gateway.base_url}/responses", json=body, headers=headers)
        assert answer.status_code == 200
    [request] = by_name(receiver.spans)["POST /v1/responses"]
    assert not request.parent_span_id
    assert request.trace_state == ""


def test_the_engine_gets_the_context_of_its_span(start: Start, receiver: Receiver) -> None:
    asked: list[Any] = []
    with start() as gateway:
        engine = gateway.services.models["m"].engine
        generate = engine.generate
        engine.generate = lambda request: (asked.append(request), generate(request))[1]
        post(gateway, input="hello")
    [generation] = by_name(receiver.trace())["chat m"]
    [request] = asked
    assert request.trace_headers["traceparent"] == f"00-{TRACE}-{generation.span_id.hex()}-01"


@pytest.mark.slow
def test_an_mcp_server_gets_the_context_of_its_call(
    start: Start, receiver: Receiver, tmp_path: Any
) -> None:
    pytest.importorskip("gateway_mcp")
    command = [sys.executable, str(Path(__file__).parent / "mcp_meta_server.py")]
    with start(mcp={"servers": {"ex": {"command": command}}}) as gateway:
        tools = [{"type": "mcp", "server_label": "ex", "require_approval": "never"}]
        made = post(gateway, input="please tell", tools=tools).json()
    [call] = [item for item in made["output"] if item["type"] == "mcp_call"]
    [span] = by_name(receiver.trace())["execute_tool tell"]
    assert json.loads(call["output"])["traceparent"] == f"00-{TRACE}-{span.span_id.hex()}-01"


def test_without_an_endpoint_nothing_is_traced(
    start: Start, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    with start() as gateway:
        assert gateway.services.tracer is None
        assert post(gateway, input="hello").status_code == 200
    assert receiver.spans == []


def test_a_receiver_that_is_away_disturbs_no_request(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with start() as gateway:
        assert post(gateway, input="hello").status_code == 200


def test_a_failed_request_is_found_by_its_id_in_error_log_trace_and_exemplar(
    start: Start, receiver: Receiver, log: ReadableLog
) -> None:
    """The id that the client's exception has, which the gateway has made."""
    with start() as gateway, gateway.client(timeout=60) as client:
        client.responses.create(model="m", input="another one")
        with pytest.raises(InternalServerError) as failed:
            client.responses.create(model="m", input=f"break down; {PROMPT}")
        request_id = failed.value.request_id
        assert request_id is not None
        assert failed.value.response.headers["x-request-id"] == request_id

        [line] = log.until(1, message="request", request_id=request_id)
        assert (line["status"], line["run"], line["error_code"]) == (500, "failed", "server_error")
        accept = {"accept": "application/openmetrics-text; version=1.0.0"}
        scraped = httpx.get(
            f"{gateway.base_url.removesuffix('/v1')}/metrics", headers=accept, timeout=60
        ).text
        named = {
            line.partition("{")[0] for line in scraped.splitlines() if f'"{request_id}"' in line
        }
        assert named == {
            "gateway_time_to_first_token_seconds_bucket",
            "gateway_e2e_request_latency_seconds_bucket",
        }
    [span] = [
        each for each in receiver.spans if attributes(each).get("gateway.request_id") == request_id
    ]
    assert attributes(span)["error.type"] == "server_error"
    below = [each.name for each in receiver.spans if each.parent_span_id == span.span_id]
    assert {"queue", "chat m"} <= set(below)
