"""`gateway conform`: it passes on ourselves, finds what is broken elsewhere, and survives any server."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from gateway.cli import main
from gateway_conform import checks
from gateway_conform.client import HttpClient
from gateway_conform.outcome import Unreachable
from gateway_conform.registry import AREAS, CHECKS, CheckResult, ServerUnderTest, run_checks
from gateway_testing.server import RunningGateway, run_gateway

assert checks
CONFIG = """
[server]
store = "memory"
compatibility = "strict"
[models.tiny]
engine = "llamacpp"
[models.vectors]
engine = "scripted"
[models.vectors.scripted]
task = "embed"
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """A server on loopback. Gives its URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        """Nothing is logged."""

    def read_body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def send(self, status: int, body: bytes, content_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def answering(status: int, body: bytes, content_type: str) -> type[Quiet]:
    class Handler(Quiet):
        def do_POST(self) -> None:
            self.read_body()
            self.send(status, body, content_type)

        do_GET = do_DELETE = do_POST

    return Handler


def through(base_url: str, change: Callable[[str, bytes], bytes]) -> type[Quiet]:
    """A proxy that changes the bodies of answers."""

    class Handler(Quiet):
        def forward(self) -> None:
            body = self.read_body() or None
            headers = {"content-type": self.headers["content-type"]} if body else {}
            url = base_url.removesuffix("/v1") + self.path
            request = Request(url, data=body, headers=headers, method=self.command)
            try:
                answer = urlopen(request, timeout=60)
            except HTTPError as error:
                answer = error
            with answer:
                content, kind = answer.read(), answer.headers["content-type"]
                self.send(answer.status, change(self.path, content), kind)

        do_GET = do_POST = do_DELETE = forward

    return Handler


def run(url: str, *areas: str, embedding_model: str = "vectors") -> list[CheckResult]:
    server = ServerUnderTest(HttpClient(url, "", 60), "tiny", embedding_model)
    chosen = [each for each in CHECKS if not areas or each.area in areas]
    return list(run_checks(server, chosen))


def test_every_area_has_checks_and_their_names_differ() -> None:
    assert {each.area for each in CHECKS} == set(AREAS)
    names = [(each.area, each.name) for each in CHECKS]
    assert len(set(names)) == len(names)


@pytest.mark.slow
def test_the_gateway_passes_every_check(gateway: RunningGateway) -> None:
    results = run(gateway.base_url)
    assert [each for each in results if each.outcome == "fail"] == []
    skipped = [each.name for each in results if each.outcome == "skip"]
    assert set(skipped) <= {"a background response is cancelled"}


@pytest.mark.parametrize("area", ["models", "responses", "streaming", "errors", "embeddings"])
def test_the_gateway_passes_the_quick_areas(gateway: RunningGateway, area: str) -> None:
    assert {each.outcome for each in run(gateway.base_url, area)} == {"pass"}


def _events(change: Callable[[list[dict[str, Any]]], Any]) -> Callable[[str, bytes], bytes]:
    """Change the events of streamed responses."""

    def changed(path: str, body: bytes) -> bytes:
        if not body.startswith(b"event: response."):
            return body
        frames = body.decode().removesuffix("data: [DONE]\n\n").split("\n\n")[:-1]
        events = [json.loads(frame.split("\n")[1].removeprefix("data: ")) for frame in frames]
        events = change(events) or events
        text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
        return text.encode()

    return changed


def _objects(change: Callable[[dict[str, Any]], Any]) -> Callable[[str, bytes], bytes]:
    """Change the plain answers that are objects."""

    def changed(path: str, body: bytes) -> bytes:
        try:
            value = json.loads(body)
        except ValueError:
            return body
        change(value)
        return json.dumps(value).encode()

    return changed


def _set_in_response(name: str, value: Any) -> Callable[[str, bytes], bytes]:
    def change(answer: dict[str, Any]) -> None:
        if answer.get("object") == "response":
            answer[name] = value

    return _objects(change)


def _wrong_total(answer: dict[str, Any]) -> None:
    if answer.get("object") == "response":
        answer["usage"]["total_tokens"] += 1


def _without_param(answer: dict[str, Any]) -> None:
    if isinstance(answer.get("error"), dict):
        answer["error"]["param"] = None


def _renumber(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _lost_delta(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    first = next(each for each in events if each["type"] == "response.output_text.delta")
    return _renumber([each for each in events if each is not first])


MUTANTS: list[tuple[str, Callable[[str, bytes], bytes]]] = [
    ("responses", _set_in_response("status", "done")),
    ("responses", _set_in_response("id", "42")),
    ("responses", _set_in_response("temperature", 1.5)),
    ("responses", _set_in_response("output", [])),
    ("responses", _objects(_wrong_total)),
    ("streaming", _events(lambda events: events[:-1])),
    ("streaming", _events(lambda events: events[1:])),
    ("streaming", _events(lambda events: [*events, events[-1]])),
    ("streaming", _events(lambda events: [{**each, "sequence_number": 7} for each in events])),
    ("streaming", _events(_lost_delta)),
    ("streaming", _events(lambda events: _renumber([e for e in events if "content_part" not in e["type"]]))),
    ("streaming", _events(lambda events: _renumber([e for e in events if "item.done" not in e["type"]]))),
    ("streaming", lambda path, body: body.replace(b"event: response.created", b"event: response.made")),
    ("streaming", lambda path, body: body[:-40] if body.startswith(b"event:") else body),
    ("errors", _objects(_without_param)),
    ("errors", lambda path, body: b"<h1>Not found</h1>"),
    ("errors", lambda path, body: b'{"detail": "wrong"}'),
    ("models", _objects(lambda answer: answer.pop("object", None))),
    ("embeddings", _objects(lambda answer: answer.get("data", [{}])[0].update(index=5))),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MUTANTS)))
def test_a_broken_server_is_found(gateway: RunningGateway, number: int) -> None:
    area, change = MUTANTS[number]
    with serving(through(gateway.base_url, change)) as url:
        results = run(url, area)
    failed = [each for each in results if each.outcome == "fail"]
    assert failed
    assert all(each.detail and each.request.startswith("curl -sS ") for each in failed)


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (200, b"{}", "application/json"),
        (200, b"[]", "application/json"),
        (200, b"null", "application/json"),
        (200, b"", "text/html"),
        (200, b"[" * 100_000, "application/json"),
        (200, b"\xff\xfe", "application/json"),
        (200, b"data: {}\n\n", "text/event-stream"),
        (200, b'event: x\ndata: {"type": "error"}\n\n', "text/event-stream"),
        (200, b"data: 5\n\ndata: [1]\n\n", "text/event-stream"),
        (500, b'{"error": {}}', "application/json"),
        (302, b"", "text/plain"),
    ],
)
def test_no_answer_ends_the_command(status: int, body: bytes, content_type: str) -> None:
    with serving(answering(status, body, content_type)) as url:
        results = run(url)
    assert len(results) == len(CHECKS)
    assert "pass" not in {each.outcome for each in results}


def test_an_endless_answer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Quiet):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                self.close_connection = True

    monkeypatch.setattr("gateway_conform.client.MAX_ANSWER", 1 << 20)
    with serving(Endless) as url:
        [first, *_] = run(url, "models")
    assert first.detail == "the answer has more than 1048576 bytes"


def test_a_server_that_is_gone_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conform", "http://127.0.0.1:1/v1"]) == 2
    assert capsys.readouterr().err.startswith("gateway: http://127.0.0.1:1/v1 cannot be reached: ")
    with pytest.raises(Unreachable):
        run("http://127.0.0.1:1/v1", "models")


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"{}", "refuses requests without a key (status 401); name one with --api-key"),
        (200, b'{"data": []}', "cannot be read (it is empty); name a model with --model"),
        (200, b"\x1b[2J", "cannot be read (status 200 with a body that is no JSON"),
    ],
)
def test_a_list_of_models_that_cannot_be_used_is_one_sentence(
    capsys: pytest.CaptureFixture[str], status: int, body: bytes, said: str
) -> None:
    with serving(answering(status, body, "application/json")) as url:
        assert main(["conform", url]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.rstrip("\n").isprintable()


def test_a_key_that_is_refused_ends_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(answering(401, b"{}", "application/json")) as url:
        assert main(["conform", url, "--model", "m", "--api-key", "very-secret-key"]) == 2
    err = capsys.readouterr().err
    assert "refuses the key (status 401)" in err
    assert "very-secret-key" not in err


@pytest.mark.parametrize("arguments", [["no url"], ["http://127.0.0.1:1", "--only", "nothing"]])
def test_a_wrong_command_line_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert main(["conform", *arguments]) == 2
    assert capsys.readouterr().err.startswith("gateway: ")


def test_the_report(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    asked = ["conform", gateway.base_url, "--only", "models", "--only", "errors"]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["AREA", "PASSED", "FAILED", "SKIPPED"]
    assert lines[1].split() == ["models", "4", "0", "0"]
    assert main([*asked, "--json", "--api-key", "very-secret-key"]) == 0
    out = capsys.readouterr().out
    report = json.loads(out)
    assert report["model"] == "tiny"
    assert {each["outcome"] for each in report["checks"]} == {"pass"}
    assert "very-secret-key" not in out


def test_a_failure_shows_how_to_repeat_it_without_the_key(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(through(gateway.base_url, _objects(_without_param))) as url:
        asked = ["conform", url, "--model", "tiny", "--only", "errors"]
        assert main([*asked, "--api-key", "very-secret-key"]) == 1
    out = capsys.readouterr().out
    assert "FAIL  errors: a number that is a text is refused by name" in out
    assert '-H "authorization: Bearer $OPENAI_API_KEY"' in out
    assert "very-secret-key" not in out


def test_a_server_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    body = b'{"error": "\x1b[2J\x1b]0;gone\x07"}'
    with serving(answering(400, body, "application/json")) as url:
        main(["conform", url, "--model", "m", "--only", "models"])
    out = capsys.readouterr().out
    assert out.replace("\n", "").isprintable()
