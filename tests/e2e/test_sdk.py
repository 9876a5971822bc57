"""The official SDK against a running server."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.responses import ResponseFunctionToolCall
from pydantic import BaseModel

from gateway_testing.grammar import fold, parse_sse
from tests.e2e.conftest import running_requests
from tests.full_queue import leave_after_refusals
from tests.waiting import wait_until

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


def stream_raw(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    answer = http.post("/v1/responses", json={"model": "scripted", "stream": True, **body})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    return parse_sse(answer.content)


PROMPTS = ["hello", "think first", "weather in Paris", "two cities", "free text tool", "unicode please", "half a call", "garbled call"]  # fmt: skip
TOOLS: Any = [WEATHER, {"type": "custom", "name": "note"}]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_stream_plain_and_stored_are_the_same(http: httpx.Client, prompt: str) -> None:
    body = {"input": prompt, "tools": TOOLS}
    final = fold(stream_raw(http, **body))
    stored = http.get(f"/v1/responses/{final['id']}").json()
    assert stored == final
    plain = http.post("/v1/responses", json={"model": "scripted", **body}).json()

    def shape(response: dict[str, Any]) -> Any:
        changing = {"id", "call_id", "created_at", "completed_at"}
        return json.loads(
            json.dumps(response),
            object_hook=lambda o: {k: v for k, v in o.items() if k not in changing},
        )

    assert shape(plain) == shape(final)


# The SDK's stream has a final response only where it was completed.
@pytest.mark.parametrize("prompt", [p for p in PROMPTS if p != "half a call"])
def test_the_sdks_own_accumulator_agrees(client: OpenAI, prompt: str) -> None:
    with client.responses.stream(model="scripted", input=prompt, tools=TOOLS) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    stored = client.responses.retrieve(final.id)
    assert [i.to_dict() for i in stored.output] == [
        {k: v for k, v in i.to_dict().items() if k not in ("parsed", "parsed_arguments")}
        | ({"content": [{k: v for k, v in c.items() if k != "parsed"} for c in i.to_dict()["content"]]} if i.type == "message" else {})  # type: ignore[attr-defined, union-attr]
        for i in final.output
    ]  # fmt: skip


def test_reasoning_and_text_are_apart(client: OpenAI) -> None:
    response = client.responses.create(model="scripted", input="think first")
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].content[0].text == "Hm.\nWell."  # type: ignore[union-attr, index]
    assert response.output_text == "Done thinking."
    assert response.usage is not None
    assert 0 < response.usage.output_tokens_details.reasoning_tokens < response.usage.output_tokens


def test_a_tool_round_trip_by_previous_response(client: OpenAI) -> None:
    first = client.responses.create(model="scripted", input="weather in Paris", tools=[WEATHER])
    call = next(i for i in first.output if isinstance(i, ResponseFunctionToolCall))
    assert json.loads(call.arguments) == {"city": "Paris", "note": 'a "quoted" é 😀'}
    second = client.responses.create(
        model="scripted",
        previous_response_id=first.id,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}],
        tools=[WEATHER],
    )
    assert second.output_text == "It is 18 degrees in Paris."
    assert second.previous_response_id == first.id


def test_a_tool_round_trip_by_sending_the_items_back(client: OpenAI) -> None:
    first = client.responses.create(
        model="scripted", input="weather in Paris", tools=[WEATHER], store=False
    )
    call = first.output[-1]
    assert isinstance(call, ResponseFunctionToolCall)
    history: list[Any] = [
        {"role": "user", "content": "weather in Paris"},
        *(item.model_dump() for item in first.output),
        {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"},
    ]
    second = client.responses.create(model="scripted", input=history, tools=[WEATHER], store=False)
    assert second.output_text == "It is 18 degrees in Paris."


def test_two_calls_at_once_with_text_before(client: OpenAI) -> None:
    response = client.responses.create(model="scripted", input="two cities", tools=[WEATHER])
    assert [item.type for item in response.output] == ["message", "function_call", "function_call"]
    ids = [item.call_id for item in response.output[1:]]  # type: ignore[union-attr]
    assert len(set(ids)) == 2


def test_parse_gives_a_typed_object(client: OpenAI) -> None:
    class Person(BaseModel):
        name: str
        age: int

    response = client.responses.parse(model="scripted", input="person as json", text_format=Person)
    assert response.output_parsed == Person(name="Ada", age=36)


def test_a_branch_does_not_see_its_sibling(client: OpenAI) -> None:
    root = client.responses.create(model="scripted", input="the root")
    left = client.responses.create(
        model="scripted", input="turn left", previous_response_id=root.id
    )
    right = client.responses.create(
        model="scripted", input="turn right", previous_response_id=root.id
    )
    assert left.usage is not None
    assert right.usage is not None
    counted = client.responses.input_tokens.count(
        model="scripted", input="turn right", previous_response_id=root.id
    )
    assert counted.input_tokens == right.usage.input_tokens


def test_instructions_are_of_one_request_alone(client: OpenAI) -> None:
    first = client.responses.create(
        model="scripted", input="hello", instructions="Think about the weather in Paris."
    )
    second = client.responses.create(model="scripted", input="hello", previous_response_id=first.id)
    assert second.instructions is None
    assert second.output_text == "hello"


def test_store_false_keeps_nothing(http: httpx.Client) -> None:
    made = http.post("/v1/responses", json={"model": "scripted", "input": "x", "store": False})
    assert made.json()["store"] is False
    assert http.get(f"/v1/responses/{made.json()['id']}").status_code == 404


def test_an_engine_that_fails_in_mid_stream_is_a_failed_response(http: httpx.Client) -> None:
    final = fold(stream_raw(http, input="break down"))
    assert final["status"] == "failed"
    assert final["error"]["code"] == "server_error"
    assert final["output"][0]["content"][0]["text"] == "It begins well"
    assert http.get(f"/v1/responses/{final['id']}").json() == final
    plain = http.post("/v1/responses", json={"model": "scripted", "input": "break down"})
    assert plain.status_code == 500
    assert plain.json()["error"]["type"] == "server_error"


def test_length_makes_an_incomplete_response(http: httpx.Client) -> None:
    final = fold(stream_raw(http, input="go slowly", max_output_tokens=5))
    assert final["status"] == "incomplete"
    assert final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert final["output"][0]["status"] == "incomplete"
    assert final["usage"]["output_tokens"] == 5


def test_log_probabilities_are_those_of_the_text(http: httpx.Client) -> None:
    events = stream_raw(
        http, input="think first", top_logprobs=2, include=["message.output_text.logprobs"]
    )
    final = fold(events)
    part = final["output"][1]["content"][0]
    assert "".join(bytes(p["bytes"]).decode() for p in part["logprobs"]) == part["text"]
    assert all(len(p["top_logprobs"]) == 2 for p in part["logprobs"])
    streamed = [
        p for e in events if e["type"] == "response.output_text.delta" for p in e["logprobs"]
    ]
    assert streamed == part["logprobs"]


def test_forty_streams_at_once(server: Any) -> None:
    async def main() -> list[str]:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:

            async def one(number: int) -> str:
                async with client.responses.stream(
                    model="scripted", input=f"word {number}"
                ) as stream:
                    return (await stream.get_final_response()).output_text

            return await asyncio.gather(*(one(number) for number in range(40)))

    assert asyncio.run(main()) == [f"word {number}" for number in range(40)]


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_ends_its_request(
    server: Any, http: httpx.Client, stream: bool
) -> None:
    wait_until(lambda: running_requests(http) == 0, "what earlier tests left has ended")
    body = json.dumps({"model": "scripted", "input": "never stop", "stream": stream}).encode()
    with socket.create_connection((httpx.URL(server.url).host, httpx.URL(server.url).port)) as own:
        own.sendall(
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        wait_until(lambda: running_requests(http) == 1)
        own.settimeout(60)
        got = b""
        while stream and b"output_text.delta" not in got:
            got += own.recv(65536)
    wait_until(lambda: running_requests(http) == 0, "the request ends without its client")


def test_what_exceeds_the_limits_is_told_to_come_later(server: Any) -> None:
    """One runs, one waits. These two would take minutes: which are refused does not depend on how soon the others arrive."""
    body = {"model": "small", "input": "wait a while"}
    refused: list[httpx.Response] = []

    async def ask(client: httpx.AsyncClient) -> None:
        answer = await client.post("/v1/responses", json=body)
        assert answer.status_code == 429
        refused.append(answer)

    async def main() -> None:
        async with httpx.AsyncClient(base_url=server.url) as client:
            asked = [asyncio.create_task(ask(client)) for _ in range(6)]
            await leave_after_refusals(asked, refused, 4)

    asyncio.run(main())
    assert all(int(each.headers["retry-after"]) >= 1 for each in refused)
    assert {each.json()["error"]["code"] for each in refused} == {"rate_limit_exceeded"}
    quick = {**body, "input": "hello"}
    with server.http() as http:  # they have left, and their places are free
        wait_until(lambda: http.post("/v1/responses", json=quick).status_code == 200)


def test_models_are_listed_with_their_lengths(client: OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert set(models) == {"scripted", "small"}
    assert models["small"].to_dict()["max_model_len"] == 200
    assert client.models.retrieve("gpt-alias").id == "scripted"


def test_unknown_parameters_are_accepted_and_counted(http: httpx.Client) -> None:
    def counted() -> float:
        lines = http.get("/metrics").text.splitlines()
        found = [x for x in lines if x.startswith("gateway_unknown_parameters_total{")]
        return sum(float(line.split()[-1]) for line in found)

    before = counted()
    body = {"model": "scripted", "input": "x", "client_metadata": {"a": 1}, "brand_new": True}
    answer = http.post("/v1/responses", json=body)
    assert answer.status_code == 200
    assert answer.headers["x-litegate-ignored-parameters"] == "brand_new, client_metadata"
    assert counted() == before + 2


def test_codex_sends_a_request_like_this(http: httpx.Client) -> None:
    body = {
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "You are Codex."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "weather in Paris"}]},
        ],
        "tools": [
            WEATHER,
            {"type": "namespace", "name": "mcp__files", "description": "Files", "tools": [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}, "strict": False}]},
            {"type": "web_search", "external_web_access": False},
            {"type": "custom", "name": "apply_patch", "description": "Edit", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "abc",
        "client_metadata": {"x": "y"},
        "instructions": "Be brief.",
    }  # fmt: skip
    final = fold(stream_raw(http, **body))
    assert final["output"][-1]["name"] == "get_weather"


def test_a_reference_finds_an_item_of_any_stored_response(client: OpenAI) -> None:
    """As the Vercel AI SDK sends its later turns: references, without `previous_response_id`."""
    first = client.responses.create(model="scripted", input="weather in Paris", tools=[WEATHER])
    call = first.output[-1]
    assert isinstance(call, ResponseFunctionToolCall)
    second = client.responses.create(
        model="scripted",
        input=[
            {"role": "user", "content": "weather in Paris"},
            *({"type": "item_reference", "id": item.id} for item in first.output),  # type: ignore[misc, union-attr]
            {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"},
        ],
        tools=[WEATHER],
    )
    assert second.output_text == "It is 18 degrees in Paris."
