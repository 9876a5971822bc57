"""What the official SDK has around its calls: raw answers, retries, time limits, closing; and its asynchronous client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway_testing.server import RunningGateway
from tests.clients.examples import CHAT_WEATHER, Person
from tests.waiting import wait_until

openai = pytest.importorskip("openai", reason="the package openai is not installed")


def test_raw_answers_have_their_headers(client: Any) -> None:
    raw = client.responses.with_raw_response.create(model="demo", input="think first")
    assert raw.headers["x-request-id"]
    assert raw.parse().output_text == "Done thinking."
    with client.responses.with_streaming_response.create(
        model="demo", input="think first", stream=True
    ) as streamed:
        lines = list(streamed.iter_lines())
    assert "data: [DONE]" in lines
    with client.chat.completions.with_streaming_response.create(
        model="demo", messages=[{"role": "user", "content": "think first"}]
    ) as answer:
        assert answer.parse().choices[0].message.content == "Done thinking."


def test_the_request_id_is_on_the_answer_and_on_the_error(client: Any) -> None:
    assert client.responses.create(model="demo", input="hello")._request_id
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model="demo", input="hello", temperature=9)
    assert caught.value.request_id
    assert caught.value.param == "temperature"


def test_what_is_busy_is_tried_again(gateway: RunningGateway) -> None:
    engine: Any = gateway.services.models["demo"].engine
    with gateway.client(max_retries=1) as client, pytest.raises(openai.RateLimitError) as caught:
        client.responses.create(model="demo", input="be busy")
    assert "busy" in caught.value.message
    assert caught.value.response.request.headers["x-stainless-retry-count"] == "1"
    assert not engine.running


def test_a_time_limit_of_the_client_ends_the_generation(
    gateway: RunningGateway, until_idle: Any
) -> None:
    with gateway.client(timeout=0.3) as client, pytest.raises(openai.APITimeoutError):
        client.responses.create(model="demo", input="go slowly")
    until_idle()


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_closing_a_stream_ends_the_generation(
    client: Any, gateway: RunningGateway, until_idle: Any, api: str
) -> None:
    engine: Any = gateway.services.models["demo"].engine
    before = len(engine.aborted)
    if api == "responses":
        stream = client.responses.create(model="demo", input="go slowly", stream=True)
        ahead = 3  # what comes before the engine is asked
    else:
        messages = [{"role": "user", "content": "go slowly"}]
        stream = client.chat.completions.create(model="demo", messages=messages, stream=True)
        ahead = 1
    for _, _event in zip(range(ahead + 2), stream, strict=False):
        pass
    stream.close()
    until_idle()
    # A call that the client of another test gave up may end as late as this one.
    wait_until(lambda: len(engine.aborted) > before, "the generation is aborted")


def test_a_failure_in_mid_stream_is_raised_or_told(client: Any) -> None:
    events = list(client.responses.create(model="demo", input="break down", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "server_error"
    with pytest.raises(openai.APIError, match="failed"):
        list(
            client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": "break down"}], stream=True
            )
        )


@pytest.mark.anyio
async def test_async_responses(aclient: Any, family: str) -> None:
    async with aclient.responses.stream(model=family, input="think first") as stream:
        text = [e.delta async for e in stream if e.type == "response.output_text.delta"]
        final = await stream.get_final_response()
    assert "".join(text) == final.output_text == "Done thinking."
    parsed = await aclient.responses.parse(
        model=family, input="a person please", text_format=Person
    )
    assert parsed.output_parsed == Person(name="Ada", age=36)
    raw = await aclient.responses.with_raw_response.create(model=family, input="think first")
    assert raw.parse().output_text == "Done thinking."


@pytest.mark.anyio
async def test_async_chat(aclient: Any, family: str) -> None:
    messages: Any = [{"role": "user", "content": "two cities"}]
    async with aclient.chat.completions.stream(
        model=family, messages=messages, tools=[CHAT_WEATHER]
    ) as stream:
        async for _ in stream:
            pass
        final = await stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function.name == "get_weather"
    names = [model.id async for model in aclient.models.list()]
    assert family in names


@pytest.mark.anyio
async def test_async_in_the_background(aclient: Any) -> None:
    made = await aclient.responses.create(
        model="demo", input="and once more", background=True, stream=True
    )
    async with made as stream:
        events = [event async for event in stream]
    assert events[-1].response.output_text == "As I said."
    again = await aclient.responses.retrieve(events[-1].response.id, stream=True, starting_after=2)
    replayed = [event async for event in again]
    assert [e.to_dict() for e in replayed] == [e.to_dict() for e in events[3:]]


@pytest.mark.anyio
async def test_many_at_once(aclient: Any) -> None:
    prompts = [f"hello {n}" for n in range(40)]
    answers = await asyncio.gather(
        *(aclient.responses.create(model="demo", input=prompt) for prompt in prompts)
    )
    assert [answer.output_text for answer in answers] == prompts
