"""The hook `gateway_chat_finished`: every chat completion is told of once, however it ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway import hookimpl
from gateway.wire.chat import ChatCompletion
from gateway.wire.common import encode
from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

RULES = [
    {"when": "break down", "finish": "error", "pieces": [{"text": "It begins well"}]},
    {"when": "go slowly", "delay_ms": 20, "repeat": 5000, "pieces": [{"text": "slow words "}]},
]
CONFIG = {"models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}}}


class Observer:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[ChatCompletion, str, Any]] = []

    @hookimpl
    def gateway_chat_finished(self, completion: ChatCompletion, status: str, error: Any) -> None:
        self.told.append((completion, status, error))


class Clumsy:
    """Fails."""

    @hookimpl
    def gateway_chat_finished(self, status: str) -> None:
        raise RuntimeError("an observer's failure")


@pytest.fixture(scope="module")
def observer() -> Observer:
    return Observer()


@pytest.fixture(scope="module")
def gateway(
    observer: Observer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("observed"), plugins=[observer]) as gateway:
        yield gateway


def ask(gateway: RunningGateway, text: str, **body: Any) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": text}], **body}
    return httpx.post(f"{gateway.base_url}/chat/completions", json=body, timeout=60)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("limit", "status"), [(None, "completed"), (1, "incomplete")])
def test_a_completion_is_told_as_the_client_saw_it(
    gateway: RunningGateway, observer: Observer, stream: bool, limit: int | None, status: str
) -> None:
    observer.told.clear()
    options = {"stream_options": {"include_usage": True}} if stream else {}
    answer = ask(gateway, "hello", n=2, stream=stream, max_tokens=limit, **options)
    if stream:
        seen = fold_chunks(parse_chunks(answer.content), includes_usage=True)
    else:
        seen = answer.json()
    [(completion, told, error)] = observer.told
    assert (completion.id, told, error) == (seen["id"], status, None)
    assert [choice.message.content for choice in completion.choices] == [
        choice["message"]["content"] for choice in seen["choices"]
    ]
    assert completion.usage.total_tokens == seen["usage"]["total_tokens"]
    assert encode(completion)


@pytest.mark.parametrize("stream", [False, True])
def test_one_that_failed_is_told_with_its_error(
    gateway: RunningGateway, observer: Observer, stream: bool
) -> None:
    observer.told.clear()
    ask(gateway, "break down", stream=stream)
    [(completion, status, error)] = observer.told
    assert (status, error.code, list(completion.choices)) == ("failed", "server_error", [])
    assert completion.usage.completion_tokens > 0


def test_one_whose_client_left_is_told_as_cancelled(
    gateway: RunningGateway, observer: Observer
) -> None:
    observer.told.clear()
    body = {"messages": [{"role": "user", "content": "go slowly"}], "stream": True}
    with httpx.stream("POST", f"{gateway.base_url}/chat/completions", json=body) as answer:
        next(answer.iter_raw())
    wait_until(lambda: observer.told)
    [(completion, status, _)] = observer.told
    assert (status, list(completion.choices)) == ("cancelled", [])


def test_one_that_is_refused_never_began(gateway: RunningGateway, observer: Observer) -> None:
    observer.told.clear()
    assert ask(gateway, "hello", model="nobody").status_code == 404
    assert observer.told == []


@pytest.mark.parametrize("stream", [False, True])
def test_one_whose_last_model_could_not_even_begin_is_told_once(
    stream: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ends = [{"when": "", "finish": "error", "pieces": []}]
    refuses = [{"when": "", "error": {"status": 503, "message": "Away."}}]
    config = {
        "models": {
            "ends": {"engine": "scripted", "scripted": {"rules": ends}},
            "refuses": {"engine": "scripted", "scripted": {"rules": refuses}},
        },
        "routes": {"both": {"models": ["ends", "refuses"]}},
    }
    observer = Observer()
    with run_gateway(config, tmp_path, plugins=[observer]) as gateway:
        answer = ask(gateway, "hello", model="both", stream=stream)
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "Away."
    [(completion, status, error)] = observer.told
    assert (status, error.message, list(completion.choices)) == ("failed", "Away.", [])
    assert "hook failed" not in caplog.text


def test_an_observer_that_fails_does_no_harm(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path_factory.mktemp("clumsy")
    with run_gateway(CONFIG, folder, plugins=[Clumsy()]) as gateway:
        assert ask(gateway, "hello").status_code == 200
    assert "a gateway_chat_finished hook failed" in caplog.text
