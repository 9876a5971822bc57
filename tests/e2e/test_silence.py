"""Streams of slow engines, and clients that fall silent in the middle of a body."""

from __future__ import annotations

import json
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

COMMENT = b": keep-alive\n\n"
RULES = [
    {"when": "slow", "delay_ms": 800, "pieces": [{"text": "a b"}]},
    {"when": "in vain", "delay_ms": 800, "pieces": [], "finish": "error"},
    {"when": "quick", "delay_ms": 20, "repeat": 50, "pieces": [{"text": "a "}]},
]  # fmt: skip
ANSWERS = [{"when": "", "pieces": [{"text": "from the other"}]}]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {"ping_interval": 0.05},
        "models": {
            "m": {"engine": "scripted", "scripted": {"rules": RULES}},
            "other": {"engine": "scripted", "scripted": {"rules": ANSWERS}},
            "short": {"engine": "scripted", "max_model_len": 60, "scripted": {"rules": ANSWERS}},
        },
        "routes": {
            "both": {"models": ["m", "other"]},
            "none": {"models": ["m", "short"]},
        },
    }
    with run_gateway(config, tmp_path_factory.mktemp("silence")) as running:
        yield running


def stream(gateway: RunningGateway, path: str = "responses", **body: Any) -> bytes:
    body = {"model": "m", "stream": True, **body}
    answer = httpx.post(f"{gateway.base_url}/{path}", json=body, timeout=60)
    assert answer.status_code == 200
    return answer.content


@pytest.mark.parametrize("background", [False, True])
def test_a_silent_stream_is_kept_open_by_comments(
    gateway: RunningGateway, background: bool
) -> None:
    body = stream(gateway, input="slow", background=background)
    assert body.count(COMMENT) >= 4
    assert fold(parse_sse(body.replace(COMMENT, b"")))["status"] == "completed"


def prompt_of(path: str, text: str) -> dict[str, Any]:
    match path:
        case "responses":
            return {"input": text}
        case "completions":
            return {"prompt": text}
        case _:
            return {"messages": [{"role": "user", "content": text}]}


CHOICES = ("chat/completions", "completions")


@pytest.mark.parametrize("path", CHOICES)
def test_a_stream_that_waits_for_its_first_token_begins_with_a_comment(
    gateway: RunningGateway, path: str
) -> None:
    body = stream(gateway, path, **prompt_of(path, "slow"))
    assert body.startswith(COMMENT)
    assert body.count(COMMENT) >= 4
    frames = body.replace(COMMENT, b"").split(b"\n\n")
    assert all(frame.startswith(b"data: ") for frame in frames if frame)
    assert body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("path", CHOICES)
def test_a_failure_after_the_first_comment_is_a_chunk(gateway: RunningGateway, path: str) -> None:
    body = stream(gateway, path, **prompt_of(path, "in vain"))
    error, done = body.replace(COMMENT, b"").removesuffix(b"\n\n").split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["type"] == "server_error"
    assert done == b"data: [DONE]"


@pytest.mark.parametrize("path", ["responses", *CHOICES])
def test_another_model_may_answer_after_the_first_comment(
    gateway: RunningGateway, path: str
) -> None:
    body = {"model": "both", "stream": True, **prompt_of(path, "in vain")}
    answer = httpx.post(f"{gateway.base_url}/{path}", json=body, timeout=60)
    assert answer.content.startswith(COMMENT)
    assert "x-litegate-model" not in answer.headers  # it was not known when they were sent
    frames = answer.content.replace(COMMENT, b"")
    if path == "responses":
        final = fold(parse_sse(frames))
        assert (final["status"], final["model"]) == ("completed", "other")
    else:
        first = json.loads(frames.split(b"\n\n")[0].removeprefix(b"data: "))
        assert first["model"] == "other"


@pytest.mark.parametrize(
    ("text", "background"),
    [("in vain", False), ("in vain" + " and long" * 60, False), ("in vain" + " and long" * 60, True)],
    ids=["there is no other", "the other refuses", "the other refuses in background"],
)  # fmt: skip
def test_if_no_model_answers_after_the_first_comment_the_response_has_failed(
    gateway: RunningGateway, text: str, background: bool
) -> None:
    model = "m" if text == "in vain" else "none"
    asked = {"model": model, "input": text, "background": background}
    frames = stream(gateway, **asked).replace(COMMENT, b"")
    events = parse_sse(frames)
    assert [each["sequence_number"] for each in events] == [*range(len(events))]
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.failed"
    assert fold(events)["status"] == "failed"


def test_a_stream_that_speaks_has_no_comments(tmp_path: Path) -> None:
    """It takes longer than the interval, which is so long that a machine under load speaks within it."""
    rules = [{"when": "quick", "delay_ms": 25, "repeat": 50, "pieces": [{"text": "a "}]}]
    config = {
        "server": {"ping_interval": 2},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}},
    }
    with run_gateway(config, tmp_path) as steady:
        assert COMMENT not in stream(steady, input="quick")


def test_the_official_client_passes_over_the_comments(gateway: RunningGateway) -> None:
    with (
        gateway.client() as client,
        client.responses.stream(model="m", input="slow") as events,
    ):
        assert events.get_final_response().output_text == "a b"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("responses", {"input": "quick", "stream": True}),
        ("responses", {"input": "quick"}),
        ("chat/completions", {"messages": [{"role": "user", "content": "quick"}], "stream": True}),
    ],
)
def test_a_client_of_http_1_0_gets_a_body_without_chunks(
    gateway: RunningGateway, path: str, body: Any
) -> None:
    url = httpx.URL(f"{gateway.base_url}/{path}")
    sent = json.dumps({"model": "m", **body}).encode()
    with socket.create_connection((url.host, url.port), timeout=60) as old:
        old.sendall(
            b"POST %b HTTP/1.0\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
            % (url.raw_path, len(sent))
        )
        old.sendall(sent)
        answer = b"".join(iter(lambda: old.recv(65536), b""))  # to the connection's end
    head, _, content = answer.partition(b"\r\n\r\n")
    content = content.replace(COMMENT, b"")  # a busy machine is silent for a moment
    assert head.startswith(b"HTTP/1.1 200")
    assert b"transfer-encoding" not in head.lower()
    if "stream" not in body:
        assert json.loads(content)["status"] == "completed"
    elif path == "responses":
        assert fold(parse_sse(content))["status"] == "completed"
    else:
        assert all(
            part.startswith(b"data: ") for part in content.removesuffix(b"\n\n").split(b"\n\n")
        )
        assert content.endswith(b"data: [DONE]\n\n")


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_error_of_ours(
    gateway: RunningGateway, caplog: pytest.LogCaptureFixture
) -> None:
    port = int(gateway.base_url.split(":")[2].partition("/")[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(
                    b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\n"
                    b"content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
                )
                time.sleep(0.05)
        time.sleep(0.2)
    assert [record.getMessage() for record in caplog.records] == []
