"""Clients that leave, queues that are full, silence, shutdown, keys."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic

from gateway.base.errors import InvalidRequest, ServerShuttingDown
from gateway.plugins.protocols import EngineOutput, EngineRequest
from gateway_scripted import ScriptedEngine
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway, run_gateway
from tests.leaving_client import leaving_client
from tests.plugins.messages.conftest import CONFIG
from tests.plugins.messages.messages_grammar import fold_events, parse_events
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def messages_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway that soon breaks a silence."""
    config = {**CONFIG, "apis": {"messages": {"ping_interval": 0.15}}}
    with run_gateway(config, tmp_path_factory.mktemp("messages")) as gateway:
        yield gateway


def body(text: str, **changes: Any) -> dict[str, Any]:
    message = {"role": "user", "content": text}
    return {"model": "scripted", "max_tokens": 900, "messages": [message], **changes}


def test_a_client_that_leaves_a_stream_aborts_the_engine(
    raw: httpx.Client, engine: ScriptedEngine, messages_gateway: RunningGateway
) -> None:
    with raw.stream("POST", "/v1/messages", json=body("go slowly", stream=True)) as answer:
        parts = answer.iter_bytes()
        next(parts)
        [running] = wait_until(lambda: tuple(engine.running))
    wait_until(lambda: running in engine.aborted)
    wait_until(lambda: not messages_gateway.services.runs)


def test_a_client_that_leaves_before_a_plain_answer_aborts_the_engine(
    root: str, engine: ScriptedEngine
) -> None:
    before = len(engine.aborted)
    with leaving_client(root, body("go slowly"), "/v1/messages"):
        wait_until(lambda: engine.running)
    wait_until(lambda: len(engine.aborted) > before and not engine.running)


def test_a_full_queue_is_a_rate_limit_that_says_when_to_come_again(
    raw: httpx.Client, claude: Anthropic, messages_gateway: RunningGateway
) -> None:
    small = messages_gateway.services.models["small"].admission
    slow = body("take ages", model="small", max_tokens=5, stream=True)
    with raw.stream("POST", "/v1/messages", json=slow) as answer:
        parts = answer.iter_bytes()  # kept: without it, the client would close the connection
        next(parts)
        with pytest.raises(anthropic.RateLimitError) as caught:
            claude.messages.create(**body("hello", model="small", max_tokens=5))
        assert int(caught.value.response.headers["retry-after"]) >= 1
    wait_until(lambda: (small.running, small.waiting) == (0, 0))


def test_silence_is_broken_by_pings_and_the_beginning_comes_first(
    raw: httpx.Client, engine: ScriptedEngine
) -> None:
    with raw.stream("POST", "/v1/messages", json=body("take ages", stream=True)) as answer:
        parts, told = answer.iter_bytes(), b""
        while told.count(b"event: ping") < 2:
            told += next(parts)
    told = told.replace(b": keep-alive\n\n", b"")  # a busy machine prepares for long
    assert told.startswith(b"event: message_start")
    wait_until(lambda: not engine.running)
    answer = raw.post("/v1/messages", json=body("be silent", stream=True))
    events = parse_events(answer.content)
    assert [event["type"] for event in events[:2]] == ["message_start", "ping"]
    assert fold_events(events)["content"][0]["text"] == "ah"


def test_a_failure_after_a_ping_is_an_event(raw: httpx.Client, engine: ScriptedEngine) -> None:
    with raw.stream("POST", "/v1/messages", json=body("take ages", stream=True)) as answer:
        assert answer.status_code == 200
        parts = answer.iter_bytes()
        told = next(parts)
        engine.crash()
        told += b"".join(parts)
    last = parse_events(told)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "overloaded_error")
    wait_until(lambda: raw.get("/ready").status_code == 200)


@pytest.mark.parametrize("outputs", [0, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_the_run_names_the_parameter_of_this_api(
    raw: httpx.Client,
    engine: ScriptedEngine,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
    outputs: int,
) -> None:
    async def generate(request: EngineRequest) -> AsyncIterator[EngineOutput]:
        for number in range(outputs):
            yield EngineOutput(text="word", token_ids=[number])
        raise InvalidRequest("The context is full.", param="max_output_tokens")

    monkeypatch.setattr(engine, "generate", generate)
    answer = raw.post("/v1/messages", json=body("hello", stream=stream))
    begun = stream and outputs > 0
    assert answer.status_code == (200 if begun else 400)
    error = parse_events(answer.content)[-1]["error"] if begun else answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"] == "max_tokens: The context is full."


def test_a_shutdown_ends_a_stream_with_an_error_event_and_takes_nothing_new(
    gateway_server: StartGateway,
) -> None:
    rules = [{"when": "go slowly", "delay_ms": 20, "repeat": 200, "pieces": [{"text": "slow "}]}]
    config = {"models": {"scripted": {"engine": "scripted", "scripted": {"rules": rules}}}}
    gateway = gateway_server(config)
    root = gateway.base_url.removesuffix("/v1")
    with httpx.stream("POST", f"{root}/v1/messages", json=body("go slowly", stream=True)) as answer:
        parts = answer.iter_bytes()
        told = next(parts)
        gateway.services.draining = True
        refused = httpx.post(f"{root}/v1/messages", json=body("hello"))
        [run] = gateway.services.runs
        run._task.get_loop().call_soon_threadsafe(  # type: ignore[attr-defined]
            gateway.services.stop_runs, ServerShuttingDown("The server was shut down.")
        )
        told += b"".join(parts)
    assert (refused.status_code, refused.json()["error"]["type"]) == (529, "overloaded_error")
    assert parse_events(told)[-1]["error"] == {
        "type": "overloaded_error",
        "message": "The server was shut down.",
    }


KEYS = {"alice": "sk-alice", "bob": "sk-bob"}


@pytest.fixture
def locked(gateway_server: StartGateway) -> str:
    """The root of a gateway with keys."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest()}
        for name, key in KEYS.items()
    ]
    rules = [{"when": "think first", "pieces": [{"reasoning": "Hm."}, {"text": "Done."}]}]
    config = {
        "server": {"api_keys": keys},
        "models": {"scripted": {"engine": "scripted", "scripted": {"rules": rules}}},
    }
    return gateway_server(config).base_url.removesuffix("/v1")


def test_a_key_is_taken_from_either_header_and_a_wrong_one_is_told_in_this_api(locked: str) -> None:
    for options in ({"api_key": "sk-alice"}, {"auth_token": "sk-bob"}):
        with Anthropic(base_url=locked, max_retries=0, **options) as client:  # type: ignore[arg-type]
            assert client.messages.create(**body("hello")).content
            assert client.models.list().data
    with Anthropic(base_url=locked, api_key="wrong", max_retries=0) as client:
        for ask in (
            lambda: client.messages.create(**body("hello")),
            lambda: client.messages.count_tokens(model="scripted", messages=[]),
            lambda: client.models.list(),
        ):
            with pytest.raises(anthropic.AuthenticationError) as caught:
                ask()
            told: Any = caught.value.body
            assert told["error"]["type"] == "authentication_error"
            assert told["request_id"] == caught.value.response.headers["request-id"]
    answer = httpx.post(f"{locked}/v1/messages", json=body("hello"))
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "authentication_error")
    assert "error" in httpx.get(f"{locked}/v1/models").json()


def test_hidden_thinking_is_opened_for_its_owner_alone(locked: str) -> None:
    convert_request = body("think first", thinking={"type": "adaptive", "display": "omitted"})
    counts = {}
    with Anthropic(base_url=locked, api_key="sk-alice", max_retries=0) as alice:
        first = alice.messages.create(**convert_request)
    # ChatML's template shows earlier thinking of a turn that goes on with a tool's result.
    history: Any = [
        *convert_request["messages"],
        {
            "role": "assistant",
            "content": [
                first.content[0].to_dict(),
                {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1"}]},
    ]
    tools: Any = [{"name": "f", "input_schema": {"type": "object"}}]
    for name, key in KEYS.items():
        with Anthropic(base_url=locked, api_key=key, max_retries=0) as client:
            counts[name] = client.messages.count_tokens(
                model="scripted", messages=history, tools=tools
            ).input_tokens
    assert counts["alice"] > counts["bob"]
