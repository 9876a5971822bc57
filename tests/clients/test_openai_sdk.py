"""The official SDK's Responses and Conversations. `.ci/run` runs these files with two of its major versions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel

from gateway_testing.server import RunningGateway
from tests.clients.examples import WEATHER, Person
from tests.waiting import wait_until

openai = pytest.importorskip("openai", reason="the package openai is not installed")


class GetWeather(BaseModel):
    """Get the weather of a city."""

    city: str


def test_a_tool_round_trip(client: Any, family: str) -> None:
    first = client.responses.create(model=family, input="weather in Paris", tools=[WEATHER])
    call = first.output[-1]
    assert json.loads(call.arguments) == {"city": "Paris"}
    answer = {
        "type": "function_call_output",
        "call_id": call.call_id,
        "output": "18 degrees in Paris",
    }
    by_id = client.responses.create(
        model=family, previous_response_id=first.id, input=[answer], tools=[WEATHER]
    )
    by_items = client.responses.create(
        model=family,
        input=[{"role": "user", "content": "weather in Paris"}, *first.output, answer],
        tools=[WEATHER],
    )
    assert by_id.output_text == by_items.output_text == "It is 18 degrees."
    assert by_id.usage.input_tokens == by_items.usage.input_tokens


def test_a_stream_and_its_final_response(client: Any, family: str) -> None:
    with client.responses.stream(model=family, input="think first") as stream:
        events = list(stream)
        final = stream.get_final_response()
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    thought = "".join(e.delta for e in events if e.type == "response.reasoning_text.delta")
    assert text == final.output_text == "Done thinking."
    assert thought == final.output[0].content[0].text == "Hm.\nWell."
    raw = list(client.responses.create(model=family, input="think first", stream=True))
    assert [event.type for event in raw][:2] == ["response.created", "response.in_progress"]
    assert raw[-1].type == "response.completed"
    assert [event.sequence_number for event in raw] == list(range(len(raw)))


def test_a_started_stream_is_taken_up_again(client: Any) -> None:
    made = client.responses.create(model="demo", input="take a while", background=True, stream=True)
    with made as stream:
        first = next(iter(stream))
        response_id = first.response.id
    with client.responses.stream(response_id=response_id, starting_after=0) as stream:
        sequence = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    assert sequence[0] == 1
    assert final.output_text == "some words " * 5


def test_parsed_output(client: Any, family: str) -> None:
    response = client.responses.parse(model=family, input="a person please", text_format=Person)
    assert response.output_parsed == Person(name="Ada", age=36)
    with client.responses.stream(
        model=family, input="a person please", text_format=Person
    ) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == Person(name="Ada", age=36)


def test_parsed_arguments(client: Any, family: str) -> None:
    tool = openai.pydantic_function_tool(GetWeather, name="get_weather")["function"]
    response = client.responses.parse(
        model=family, input="weather in Paris", tools=[{"type": "function", **tool}]
    )
    assert response.output[-1].name == "get_weather"
    completion = client.chat.completions.parse(
        model=family,
        messages=[{"role": "user", "content": "weather in Paris"}],
        tools=[openai.pydantic_function_tool(GetWeather, name="get_weather")],
    )
    call = completion.choices[0].message.tool_calls[0].function
    assert call.parsed_arguments == GetWeather(city="Paris")


def test_a_background_run_is_waited_for_cancelled_and_deleted(client: Any) -> None:
    response = client.responses.create(model="demo", input="and once more", background=True)
    assert response.status in ("queued", "in_progress", "completed")
    wait_until(
        lambda: client.responses.retrieve(response.id).status not in ("queued", "in_progress"),
        "the end of the run",
    )
    response = client.responses.retrieve(response.id)
    assert response.output_text == "As I said."
    with pytest.raises(openai.BadRequestError, match="stream: true"):  # as OpenAI has it
        client.responses.retrieve(response.id, stream=True)
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    slow = client.responses.create(model="demo", input="go slowly", background=True)
    assert client.responses.cancel(slow.id).status == "cancelled"


def test_input_items_are_paged(client: Any) -> None:
    words = [{"role": "user", "content": f"word {n}"} for n in range(5)]
    response = client.responses.create(model="demo", input=words)
    found = list(client.responses.input_items.list(response.id, limit=2, order="asc"))
    assert [item.content[0].text for item in found] == [f"word {n}" for n in range(5)]


def test_tokens_are_counted_as_they_are_used(client: Any, family: str) -> None:
    used = client.responses.create(model=family, input="hello", tools=[WEATHER]).usage.input_tokens
    counted = client.responses.input_tokens.count(model=family, input="hello", tools=[WEATHER])
    assert counted.input_tokens == used


def test_a_conversation_lives(client: Any, told: Any) -> None:
    conversation = client.conversations.create(
        metadata={"a": "b"},
        items=[{"type": "message", "role": "user", "content": "weather in Paris"}],
    )
    client.responses.create(
        model="demo", conversation=conversation.id, input="and once more", tools=[WEATHER]
    )
    assert "weather in Paris" in told()
    items = list(client.conversations.items.list(conversation.id, order="asc", limit=1))
    assert [item.type for item in items] == ["message", "message", "message"]
    added = client.conversations.items.create(
        conversation.id, items=[{"role": "user", "content": "more"}]
    )
    assert client.conversations.items.retrieve(added.data[0].id, conversation_id=conversation.id)
    client.conversations.items.delete(added.data[0].id, conversation_id=conversation.id)
    assert client.conversations.update(conversation.id, metadata={"c": "d"}).metadata == {"c": "d"}
    assert client.conversations.retrieve(conversation.id).metadata == {"c": "d"}
    assert client.conversations.delete(conversation.id).deleted


def test_the_beta_resource_is_the_same(client: Any) -> None:
    if not hasattr(client.beta, "responses"):
        pytest.skip("this version of the SDK has no beta.responses")
    response = client.beta.responses.create(model="demo", input="think first", betas=["x=1"])
    assert response.output[-1].content[0].text == "Done thinking."
    assert client.beta.responses.retrieve(response.id).id == response.id


def test_a_real_model_calls_and_answers(tiny: RunningGateway) -> None:
    with tiny.client() as client:
        first = client.responses.create(
            model="tiny", input="What is the weather in Paris?", tools=[WEATHER]
        )
        call = first.output[-1]
        assert json.loads(call.arguments) == {"city": "Paris"}
        second = client.responses.create(
            model="tiny",
            previous_response_id=first.id,
            input=[
                {
                    "type": "function_call_output",
                    "call_id": call.call_id,
                    "output": '{"temperature": 18}',
                }
            ],
            tools=[WEATHER],
        )
        assert "18" in second.output_text
        parsed = client.chat.completions.parse(
            model="tiny",
            messages=[{"role": "user", "content": "Hello!"}],
            response_format=GetWeather,
            max_tokens=60,
            temperature=0,
        )
        assert parsed.choices[0].message.parsed is not None
