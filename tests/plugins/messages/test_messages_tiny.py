"""The same API on the tiny model, with its own words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from anthropic import Anthropic
from pydantic import BaseModel

from gateway_testing.server import run_gateway

CONFIG = {"models": {"tiny": {"engine": "llamacpp", "sampling": {"temperature": 0}}}}
WEATHER: Any = {
    "name": "get_weather",
    "description": "Get the weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anthropic]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("tiny")) as gateway:
        root = gateway.base_url.removesuffix("/v1")
        with Anthropic(base_url=root, api_key="none", max_retries=0) as client:
            yield client


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_it_streams_what_it_knows(tiny: Anthropic) -> None:
    question = user("What is the capital of France?")
    counted = tiny.messages.count_tokens(model="tiny", messages=question)
    with tiny.messages.stream(model="tiny", max_tokens=60, messages=question) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(texts) == final.content[0].to_dict()["text"]
    assert "Paris" in "".join(texts)
    assert final.stop_reason == "end_turn"
    usage = final.usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted.input_tokens


def test_it_thinks_when_asked_to_and_not_otherwise(tiny: Anthropic) -> None:
    kinds = {}
    for name, thinking in {
        "on": {"type": "enabled", "budget_tokens": 1024},
        "off": {"type": "disabled"},
    }.items():
        message = tiny.messages.create(
            model="tiny",
            max_tokens=1100,
            messages=user("What is the capital of France?"),
            thinking=thinking,  # type: ignore[arg-type]
        )
        kinds[name] = [block.type for block in message.content]
    assert kinds == {"on": ["thinking", "text"], "off": ["text"]}


def test_it_may_think_of_a_stop_sequence_and_stops_at_it_in_the_answer(tiny: Anthropic) -> None:
    convert_request: Any = {
        "model": "tiny",
        "max_tokens": 1100,
        "messages": user("What is the capital of France?"),
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    thought, said = tiny.messages.create(**convert_request).content
    assert thought.type == "thinking"
    assert said.type == "text"
    shared = next(
        word for word in thought.thinking.split() if word.isalpha() and f" {word}" in said.text
    )
    stopped = tiny.messages.create(**convert_request, stop_sequences=[shared])
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", shared)
    again, text = stopped.content
    assert again.to_dict()["thinking"] == thought.thinking
    assert text.to_dict()["text"] == said.text[: said.text.index(shared)]


def test_it_calls_a_tool_and_answers_from_the_result(tiny: Anthropic) -> None:
    convert_request: Any = {"model": "tiny", "max_tokens": 100, "tools": [WEATHER]}
    question = user("What is the weather in Paris?")
    first = tiny.messages.create(messages=question, **convert_request)
    call = first.content[-1]
    assert call.type == "tool_use"
    assert (call.name, call.input, first.stop_reason) == ("get_weather", {"city": "Paris"}, "tool_use")  # fmt: skip
    result = {"type": "tool_result", "tool_use_id": call.id, "content": '{"temperature": 18}'}
    history = [*question, first.to_param(), {"role": "user", "content": [result]}]
    second = tiny.messages.create(messages=history, **convert_request)
    assert "18" in second.content[-1].to_dict()["text"]  # type: ignore[operator]


def test_a_schema_and_a_choice_are_kept_even_by_a_toy(tiny: Anthropic) -> None:
    class Choice(BaseModel):
        colour: Literal["red", "blue"]
        sure: bool

    parsed = tiny.messages.parse(
        model="tiny", max_tokens=100, messages=user("Choose a colour."), output_format=Choice
    )
    assert parsed.parsed_output is not None
    forced = tiny.messages.create(
        model="tiny",
        max_tokens=200,
        messages=user("Hello"),
        tools=[WEATHER],
        tool_choice={"type": "any"},
    )
    assert forced.stop_reason == "tool_use"


def test_what_was_said_before_is_read_from_the_cache(tiny: Anthropic) -> None:
    question = user("Count the words of this long question, which is here to be remembered.")
    convert_request: Any = {"model": "tiny", "max_tokens": 4, "messages": question}
    tiny.messages.create(**convert_request)
    again = tiny.messages.create(**convert_request)
    assert again.usage.cache_read_input_tokens
    counted = tiny.messages.count_tokens(model="tiny", messages=question)
    total = again.usage.input_tokens + again.usage.cache_read_input_tokens
    assert total == counted.input_tokens
