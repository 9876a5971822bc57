"""Several choices at once, and what ends them."""

from __future__ import annotations

import json
import socket
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import APIError, OpenAI

from gateway_scripted import Rule, Scenario, ScriptedEngine
from gateway_scripted.scenario import ScriptedCall, ScriptedPiece
from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.server import RunningGateway
from tests.waiting import wait_until

FUNCTIONS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("f", "g")
]
USER = [{"role": "user", "content": "say it"}]


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def stream(raw: httpx.Client, **body: Any) -> bytes:
    answer = raw.post("/v1/chat/completions", json={"model": "scripted", "stream": True, **body})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    return answer.content


def told(choice: dict[str, Any]) -> Any:
    """A choice without its ids, and without what a stream does not tell."""
    message = {k: v for k, v in choice["message"].items() if v is not None and k != "annotations"}
    calls = [{k: v for k, v in call.items() if k != "id"} for call in message.pop("tool_calls", ())]
    return message, calls, choice["finish_reason"]


def test_four_choices_with_tools_share_no_state(raw: httpx.Client) -> None:
    """The four generations run in step: a shared parser would mix them at once."""
    body = {"messages": user("two cities"), "tools": FUNCTIONS, "n": 4}
    one = fold_chunks(parse_chunks(stream(raw, **{**body, "n": 1})))["choices"][0]
    chunks = parse_chunks(stream(raw, **body, stream_options={"include_usage": True}))
    choices = fold_chunks(chunks, includes_usage=True)["choices"]
    assert len(choices) == 4
    assert all(told(choice) == told(one) for choice in choices)
    order = [chunk["choices"][0]["index"] for chunk in chunks if chunk["choices"]]
    assert order != sorted(order), "chunks are sent as they come"
    ids = [call["id"] for choice in choices for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 8
    plain = raw.post("/v1/chat/completions", json={"model": "scripted", **body}).json()
    assert [choice["index"] for choice in plain["choices"]] == [0, 1, 2, 3]
    assert all(told(choice) == told(one) for choice in plain["choices"])


def test_a_prompt_that_choices_share_is_counted_once(sdk: OpenAI) -> None:
    one = sdk.chat.completions.create(model="scripted", messages=user("hello")).usage
    four = sdk.chat.completions.create(model="scripted", messages=user("hello"), n=4).usage
    assert one is not None
    assert four is not None
    assert four.prompt_tokens == one.prompt_tokens
    assert four.completion_tokens == 4 * one.completion_tokens


def test_each_choice_has_a_seed_of_its_own(sdk: OpenAI, engine: ScriptedEngine) -> None:
    sdk.chat.completions.create(model="scripted", messages=user("hello"), n=3, seed=40)
    requests = list(engine.requests)[-3:]
    assert sorted(request.sampling.seed or 0 for request in requests) == [40, 41, 42]
    assert len({request.request_id for request in requests}) == 3


PIECES = st.lists(
    st.one_of(
        st.text("abc é😀\n.", min_size=1, max_size=12).map(lambda t: ScriptedPiece(text=f"t{t}t")),
        st.text("abc é😀\n.", min_size=1, max_size=12).map(lambda t: ScriptedPiece(reasoning=f"r{t}r")),
        st.builds(
            lambda name, value: ScriptedPiece(call=ScriptedCall(name=name, arguments={"a": value})),
            st.sampled_from(["f", "g"]),
            st.text(st.characters(exclude_categories=("Cs",)), max_size=8),
        ),
    ),
    min_size=1,
    max_size=5,
)  # fmt: skip


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(PIECES, st.sampled_from([None, 1, 7]), st.sampled_from(["stop", "length"]))
def test_one_script_says_the_same_through_both_apis(
    chat_gateway: RunningGateway, raw: httpx.Client, pieces: Any, chunk: Any, finish: Any
) -> None:
    engine = chat_gateway.services.models["property"].engine
    assert isinstance(engine, ScriptedEngine)
    engine.scenario = Scenario([Rule(when="say it", pieces=pieces, chunk=chunk, finish=finish)])
    tools = [{"type": "function", **tool["function"]} for tool in FUNCTIONS]
    response = raw.post(
        "/v1/responses",
        json={"model": "property", "input": "say it", "tools": tools, "store": False},
    ).json()
    body = {"model": "property", "messages": USER, "tools": FUNCTIONS}
    completion = raw.post("/v1/chat/completions", json=body).json()
    [choice] = completion["choices"]
    [streamed] = fold_chunks(parse_chunks(stream(raw, **body)))["choices"]
    assert told(streamed) == told(choice)

    def items(kind: str) -> list[Any]:
        return [item for item in response["output"] if item["type"] == kind]

    message = choice["message"]
    texts = ["".join(part["text"] for part in item["content"]) for item in items("message")]
    thoughts = ["".join(part["text"] for part in item["content"]) for item in items("reasoning")]
    assert (message["content"] or "") == "\n\n".join(texts)
    assert (message["reasoning"] or "") == "\n\n".join(thoughts)
    calls = [call["function"] for call in message.get("tool_calls", ())]
    assert calls == [{"name": i["name"], "arguments": i["arguments"]} for i in items("function_call")]  # fmt: skip
    usage = completion["usage"]
    assert usage["completion_tokens"] == response["usage"]["output_tokens"]
    assert (
        usage["completion_tokens_details"]["reasoning_tokens"]
        == (response["usage"]["output_tokens_details"]["reasoning_tokens"])
    )


@pytest.mark.parametrize("n", [1, 3])
def test_an_engine_that_fails_on_the_way_is_told_in_the_stream(
    raw: httpx.Client, sdk: OpenAI, n: int
) -> None:
    body = stream(raw, messages=user("break down"), n=n)
    assert body.endswith(b"data: [DONE]\n\n")
    *chunks, error = parse_chunks(body)
    assert "It begins well" in "".join(
        chunk["choices"][0]["delta"].get("content", "")
        for chunk in chunks
        if chunk["choices"][0]["index"] == 0
    )
    assert set(error["error"]) == {"message", "type", "param", "code"}
    assert error["error"]["code"] == "server_error"
    with pytest.raises(APIError, match="failed on this request"):
        list(
            sdk.chat.completions.create(model="scripted", messages=user("break down"), stream=True)
        )


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_an_engine_that_fails_before_the_first_token_is_a_status(
    raw: httpx.Client, streams: bool, n: int
) -> None:
    body = {"model": "scripted", "messages": user("fail at once"), "stream": streams, "n": n}
    answer = raw.post("/v1/chat/completions", json=body)
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "server_error"


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("streams", [False, True])
def test_a_client_that_leaves_stops_the_engine(
    raw: httpx.Client, chat_gateway: RunningGateway, engine: ScriptedEngine, streams: bool, n: int
) -> None:
    admission = chat_gateway.services.models["scripted"].admission
    wait_until(lambda: not engine.running and admission.running == 0)
    asked = {"model": "scripted", "messages": user("never stop"), "stream": streams, "n": n}
    body = json.dumps(asked).encode()
    aborted = len(engine.aborted)
    with socket.create_connection((raw.base_url.host, raw.base_url.port or 80)) as leaving:
        leaving.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_until(lambda: len(engine.running) == n)
        leaving.settimeout(60)
        got = b""
        while streams and b"slow" not in got:
            got += leaving.recv(65536)
    wait_until(lambda: not engine.running)
    wait_until(lambda: len(engine.aborted) == aborted + n)
    wait_until(lambda: admission.running == 0)


def test_chat_is_counted_as_responses_are(raw: httpx.Client) -> None:
    def counted(name: str) -> float:
        lines = raw.get("/metrics").text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))

    names = [
        'gateway_requests_total{route="/v1/chat/completions",status="200"}',
        'gateway_responses_total{model="scripted",status="completed"}',
        'gateway_tokens_total{kind="output",model="scripted"}',
        'gateway_unknown_parameters_total{parameter="other",route="/v1/chat/completions"}',
    ]
    before = [counted(name) for name in names]
    body = {"model": "scripted", "messages": user("hello"), "n": 2, "frobnicate": 1}
    raw.post("/v1/chat/completions", json=body)

    def added() -> list[float]:
        return [after - b for after, b in zip(map(counted, names), before, strict=True)]

    # Some may be counted when the answer has been sent.
    wait_until(lambda: added() == [1, 1, 4, 1], "each is counted")


def test_tools_that_the_gateway_runs_are_not_seen(sdk: OpenAI, raw: httpx.Client) -> None:
    made = sdk.chat.completions.create(model="scripted", messages=user("roll the dice"))
    message: Any = made.choices[0].message
    assert message.content == "Rolling.\n\nIt is a four."
    assert message.tool_calls is None
    assert message.reasoning == "I shall roll."
    assert made.choices[0].finish_reason == "stop"
    one = sdk.chat.completions.create(model="scripted", messages=user("hello"))
    assert made.usage is not None
    assert one.usage is not None
    assert made.usage.prompt_tokens > 2 * one.usage.prompt_tokens, "both prompts are counted"
    chunks = parse_chunks(stream(raw, messages=user("roll the dice"), n=2))
    choices = fold_chunks(chunks)["choices"]
    assert [choice["message"]["content"] for choice in choices] == [message.content] * 2
    assert "roll" not in json.dumps([c["message"] for c in choices]).replace("I shall roll", "")
