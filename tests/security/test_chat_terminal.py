"""`gateway chat`: what models, tools and servers say never reaches the terminal as control characters, and is bounded."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli import main
from gateway.commands import api_client as client
from gateway.commands.terminal_text import one_line, visible
from gateway_terminal_chat.screen import Screen
from gateway_testing.server import run_gateway

HOSTILE = "a\x1b]0;owned\x07b\x1b[2Jc\x9b31md\x7fe\u202ef\rg\x08h\u2066i\x00"
"""Sets the window's title, clears it, and turns text around."""
OBEYED = ("\x1b", "\x07", "\x9b", "\x7f", "\u202e", "\x08", "\u2066", "\x00")


@given(st.text(), st.integers(0, 50))
def test_nothing_that_a_terminal_obeys_is_left_however_the_text_is_cut(text: str, cut: int) -> None:
    shown = visible(text)
    assert not [
        each for each in shown if each not in "\n\t" and not each.isprintable() and ord(each) < 0xA0
    ]
    assert visible(text[:cut]) + visible(text[cut:]) == shown
    shown.encode()
    assert "\n" not in one_line(text)


def test_readable_text_is_kept() -> None:
    text = "Zürich 東京 🏳️‍🌈 e\u0301 שלום\n\tx"
    assert visible(text) == text
    assert visible(HOSTILE) == "a␛]0;owned␇b␛[2Jc\ufffd31md␡e\ufffdfg␈h\ufffdi␀"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@given(st.lists(st.tuples(st.sampled_from(["text", "reasoning", "note", "line"]), st.text())))
def test_no_way_to_the_screen_is_raw(parts: list[tuple[str, str]]) -> None:
    stream = Terminal()
    screen = Screen(stream, colours=False)
    for way, text in parts:
        getattr(screen, way)(text)
    assert not [each for each in stream.getvalue() if each not in "\n\t" and ord(each) < 0x20]


def test_output_of_a_model_is_harmless_on_a_terminal_and_in_a_pipe(
    tmp_path: Path, on_terminal: Callable[..., Any]
) -> None:
    pieces = [{"reasoning": HOSTILE}, {"text": f"{HOSTILE} end"}]
    rules = [{"when": "", "chunk": 1, "pieces": pieces}]
    config = {"models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}}}
    with run_gateway(config, tmp_path) as running:
        terminal = on_terminal("chat", "--url", running.base_url, TERM="dumb")
        terminal.until("> ")
        terminal.type("Hi\n")
        shown = terminal.until(" end")
        piped = subprocess.run(
            [sys.executable, "-m", "gateway", "chat", "--url", running.base_url, "--once", "Hi"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            env={**os.environ, "TERM": "xterm"},
        ).stdout.decode()
    assert shown.count("␛]0;owned") == 2
    for each in OBEYED:
        assert each not in shown
        assert each not in piped


@contextmanager
def serving(status: int, headers: dict[str, str], body: bytes) -> Iterator[tuple[str, list[Any]]]:
    """A server that answers every request in one way. Gives its address and the requests."""
    requests: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append((self.path, dict(self.headers)))
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *arguments: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


EVENTS = {"content-type": "text/event-stream"}


def events(*each: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in each)


def failed(message: str) -> dict[str, Any]:
    return {"type": "response.failed", "response": {"error": {"message": message}}}


@pytest.mark.parametrize(
    ("status", "headers", "body", "sentence"),
    [
        (400, {}, json.dumps({"error": {"message": HOSTILE}}).encode(), "␛]0;owned"),
        (500, {}, b"\x1b[2J", "answered with the HTTP status 500"),
        (200, {"content-type": "text/html"}, b"<html>", "has no Responses API"),
        (200, EVENTS, events(failed(HOSTILE)), "␛]0;owned"),
        (200, EVENTS, events({"type": "error", "message": HOSTILE}), "␛]0;owned"),
        (200, EVENTS, events({"type": "response.output_text.delta", "delta": 3}), "broke off"),
        (200, EVENTS, events({"type": "response.output_item.done", "item": [[]]}), "broke off"),
        (200, EVENTS, events(failed("m" * 100_000)), "mmm…"),
        (200, EVENTS, b"data: [1]\n\n", "cannot be read"),
        (200, EVENTS, b"data: " + b"[" * 100_000 + b"\n\n", "cannot be read"),
        (200, EVENTS, b"data: \xff\n\n", "cannot be read"),
        (200, EVENTS, b"x" * 300_000, "a line that is too long"),
        (200, EVENTS, b"data: x\n" * 40_000, "a line that is too long"),
    ],
)  # fmt: skip
def test_a_hostile_server_is_one_clean_sentence(
    status: int,
    headers: dict[str, str],
    body: bytes,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "MAX_LINE", 1 << 18)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with serving(status, headers, body) as (url, _):
        assert main(["chat", "m", "--url", url, "--once", "Hi"]) == 1
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert len(told) < 700
    assert not [each for each in OBEYED if each in told]


def test_a_key_does_not_follow_a_redirect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    with (
        serving(200, {}, b"{}") as (elsewhere, taken),
        serving(307, {"location": elsewhere}, b"") as (url, asked),
    ):
        arguments = ["chat", "m", "--url", url, "--api-key", "secret-key", "--once", "Hi"]
        assert main(arguments) == 1
    assert [headers["Authorization"] for _, headers in asked] == ["Bearer secret-key"]
    assert taken == []
    assert "secret-key" not in capsys.readouterr().err


def test_a_call_is_made_only_if_the_user_allows_it(on_terminal: Callable[..., Any]) -> None:
    request = {
        "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "shop", "name": "pay",
        "arguments": '{"note": "\x1b[2J"}',
    }  # fmt: skip
    response = {"id": "resp_1", "store": True, "status": "completed", "output": [request]}
    body = events({"type": "response.completed", "response": response})
    with serving(200, EVENTS, body) as (url, asked):
        terminal = on_terminal("chat", "m", "--url", url, TERM="dumb")
        terminal.until("> ")
        terminal.type("Hi\n")
        shown = terminal.until("Allow it? [y/N] ")
        terminal.type("\n")
        terminal.until("Allow it? [y/N] ")
        terminal.type("\x04")
        assert terminal.wait() == 0
    assert 'shop: pay({"note": "␛[2J"})' in shown
    assert len(asked) == 2


def _used(start: int, next_page: str | None = None) -> bytes:
    amount = {"value": 1.5, "currency": HOSTILE}
    result = {"api_key_id": HOSTILE, "model": HOSTILE, "input_tokens": 7, "amount": amount}
    bucket = {"start_time": start, "results": [result]}
    return json.dumps({"data": [bucket], "next_page": next_page}).encode()


@pytest.mark.parametrize(
    ("command", "status", "body", "shown"),
    [
        ("usage --url", 200, _used(1), "1970-01-01"),  # names of keys may come from an issuer of tokens
        ("usage --url", 200, _used(10**15), "1000000000000000"),
        ("usage --url", 200, _used(1, "\r\nx: y"), "more than 1000 pages"),
        ("conform", 403, json.dumps({"error": HOSTILE}, ensure_ascii=False).encode(), "status 403"),
        ("conform --json --only models", 200, json.dumps({"data": [{"id": HOSTILE}]}).encode(), "fail"),
    ],
    ids=["usage", "no time", "pages without end", "conform", "conform as JSON"],
)  # fmt: skip
def test_other_commands_show_no_control_characters_of_a_server(
    command: str, status: int, body: bytes, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(status, {"content-type": "application/json"}, body) as (url, _):
        main([*command.split(), url])
    told = "".join(capsys.readouterr())
    assert shown in told
    assert not [each for each in OBEYED if each in told]
