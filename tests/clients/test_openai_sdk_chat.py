"""The official SDK's Chat Completions, Completions and models."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.examples import CHAT_WEATHER, Person

openai = pytest.importorskip("openai", reason="the package openai is not installed")


def test_a_chat_and_its_stream(client: Any, family: str) -> None:
    messages: Any = [{"role": "user", "content": "weather in Paris"}]
    with client.chat.completions.stream(
        model=family,
        messages=messages,
        tools=[CHAT_WEATHER],
        stream_options={"include_usage": True},
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.done" in kinds
    message = final.choices[0].message
    assert final.choices[0].finish_reason == "tool_calls"
    assert final.usage.completion_tokens > 0
    assert message.reasoning_content == "There is a tool for the weather."
    call = message.tool_calls[0]
    messages += [
        message,
        {"role": "tool", "tool_call_id": call.id, "content": "18 degrees in Paris"},
    ]
    answer = client.chat.completions.create(model=family, messages=messages, tools=[CHAT_WEATHER])
    assert answer.choices[0].message.content == "It is 18 degrees."


def test_a_parsed_chat(client: Any, family: str) -> None:
    messages: Any = [{"role": "user", "content": "a person please"}]
    parsed = client.chat.completions.parse(model=family, messages=messages, response_format=Person)
    assert parsed.choices[0].message.parsed == Person(name="Ada", age=36)
    with client.chat.completions.stream(
        model=family, messages=messages, response_format=Person
    ) as stream:
        stream.until_done()
        assert stream.get_final_completion().choices[0].message.parsed == Person(name="Ada", age=36)


def test_an_answer_that_is_cut_is_not_parsed(client: Any) -> None:
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model="demo",
            messages=[{"role": "user", "content": "too long an answer"}],
            response_format=Person,
        )


def test_completions(client: Any) -> None:
    made = client.completions.create(model="demo", prompt=["and once more", "hello"], max_tokens=9)
    assert [choice.text for choice in made.choices] == ["As I said.", "hello"]
    parts = client.completions.create(model="demo", prompt="and once more", stream=True)
    assert "".join(part.choices[0].text for part in parts) == "As I said."


def test_models(client: Any) -> None:
    names = [model.id for model in client.models.list()]
    assert {"demo", "harmony"} <= set(names)
    assert client.models.retrieve("demo").id == "demo"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")
