"""Chat Completions by the official SDK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai import LengthFinishReasonError, OpenAI, pydantic_function_tool
from openai.types.chat import ChatCompletionMessageFunctionToolCall
from pydantic import BaseModel

from gateway_testing.server import RunningGateway

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
NOTE: Any = {"type": "custom", "custom": {"name": "note"}}


class Person(BaseModel):
    name: str
    age: int


class GetWeather(BaseModel):
    city: str


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_a_plain_answer(sdk: OpenAI) -> None:
    made = sdk.chat.completions.create(model="scripted", messages=user("hello"))
    assert made.id.startswith("chatcmpl-")
    assert (made.object, made.model) == ("chat.completion", "scripted")
    [choice] = made.choices
    assert (choice.message.content, choice.finish_reason) == ("hello", "stop")
    assert choice.message.refusal is None
    assert made.usage is not None
    assert made.usage.total_tokens == made.usage.prompt_tokens + made.usage.completion_tokens > 2


def test_a_stream_adds_up_and_tells_usage_last(sdk: OpenAI) -> None:
    stream = sdk.chat.completions.create(
        model="scripted",
        messages=user("think first"),
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    thought = "".join(
        c.choices[0].delta.to_dict().get("reasoning", "") for c in chunks if c.choices
    )  # type: ignore[misc]
    assert (text, thought) == ("Done thinking.", "Hm.\nWell.")
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens_details is not None
    assert chunks[-1].usage.completion_tokens_details.reasoning_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_reasoning_is_shown_under_both_names(sdk: OpenAI) -> None:
    made = sdk.chat.completions.create(model="scripted", messages=user("think first"))
    message: Any = made.choices[0].message
    assert message.reasoning_content == message.reasoning == "Hm.\nWell."
    assert message.content == "Done thinking."


def test_the_sdks_accumulator_agrees_with_the_plain_answer(sdk: OpenAI) -> None:
    for prompt in ("hello", "think first", "weather in Paris", "two cities"):
        plain = sdk.chat.completions.create(
            model="scripted", messages=user(prompt), tools=[WEATHER]
        )
        with sdk.chat.completions.stream(
            model="scripted", messages=user(prompt), tools=[WEATHER]
        ) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        assert final.choices[0].finish_reason == plain.choices[0].finish_reason
        mine, theirs = plain.choices[0].message, final.choices[0].message
        assert (mine.content or "") == (theirs.content or "")
        assert [called(c) for c in mine.tool_calls or ()] == [
            called(c) for c in theirs.tool_calls or ()
        ]


def called(call: Any) -> tuple[str, str]:
    return call.function.name, call.function.arguments


def test_parse_gives_a_typed_object(sdk: OpenAI) -> None:
    made = sdk.chat.completions.parse(
        model="scripted", messages=user("person as json"), response_format=Person
    )
    assert made.choices[0].message.parsed == Person(name="Ada", age=36)
    with sdk.chat.completions.stream(
        model="scripted", messages=user("person as json"), response_format=Person
    ) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == Person(name="Ada", age=36)


def test_parse_gives_typed_arguments(sdk: OpenAI) -> None:
    tool = pydantic_function_tool(GetWeather, name="get_weather")
    made = sdk.chat.completions.parse(
        model="scripted", messages=user("weather in Paris"), tools=[tool]
    )
    [call] = made.choices[0].message.tool_calls or []
    assert call.function.parsed_arguments == GetWeather(city="Paris")


def test_parse_raises_where_the_answer_was_cut(sdk: OpenAI) -> None:
    with pytest.raises(LengthFinishReasonError):
        sdk.chat.completions.parse(
            model="scripted",
            messages=user("person as json"),
            response_format=Person,
            max_completion_tokens=2,
        )


def test_a_tool_round_trip(sdk: OpenAI) -> None:
    messages = user("weather in Paris")
    first = sdk.chat.completions.create(model="scripted", messages=messages, tools=[WEATHER])
    message = first.choices[0].message
    assert (message.content, first.choices[0].finish_reason) == (None, "tool_calls")
    [call] = message.tool_calls or []
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    messages += [
        message.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"},
    ]
    second = sdk.chat.completions.create(model="scripted", messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == "It is 18 degrees."


def test_parallel_calls_and_their_prohibition(sdk: OpenAI) -> None:
    def calls(**options: Any) -> int:
        made = sdk.chat.completions.create(
            model="scripted", messages=user("two cities"), tools=[WEATHER], **options
        )
        assert made.choices[0].message.content == "I look at both."
        assert made.choices[0].finish_reason == "tool_calls"
        return len(made.choices[0].message.tool_calls or ())

    assert calls() == 2
    assert calls(parallel_tool_calls=False) == 1


NAMED: Any = {"type": "function", "function": {"name": "get_weather"}}
ALLOWED: Any = {
    "type": "allowed_tools",
    "allowed_tools": {"mode": "required", "tools": [NAMED]},
}


@pytest.mark.parametrize(
    ("choice", "calls", "finish"),
    [("auto", 0, "stop"), ("none", 0, "stop"), ("required", 1, "tool_calls"), (NAMED, 1, "stop"), (ALLOWED, 1, "tool_calls")],
)  # fmt: skip
def test_every_form_of_tool_choice(sdk: OpenAI, choice: Any, calls: int, finish: str) -> None:
    made = sdk.chat.completions.create(
        model="scripted", messages=user("hello"), tools=[WEATHER], tool_choice=choice
    )
    assert len(made.choices[0].message.tool_calls or ()) == calls
    assert made.choices[0].finish_reason == finish


def test_a_custom_tool(sdk: OpenAI) -> None:
    messages = user("take a note")
    made = sdk.chat.completions.create(model="scripted", messages=messages, tools=[NOTE])
    message = made.choices[0].message
    [call] = message.tool_calls or []
    assert call.type == "custom"
    assert (call.custom.name, call.custom.input) == ("note", 'line 1\nline "2"')
    messages += [message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}]  # fmt: skip
    second = sdk.chat.completions.create(model="scripted", messages=messages, tools=[NOTE])
    assert second.choices[0].message.content == "It is 18 degrees."


def test_legacy_functions(sdk: OpenAI) -> None:
    functions: Any = [WEATHER["function"]]
    messages = user("weather in Paris")
    first = sdk.chat.completions.create(model="scripted", messages=messages, functions=functions)
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "function_call"
    assert message.function_call is not None
    assert message.tool_calls is None
    assert json.loads(message.function_call.arguments) == {"city": "Paris"}
    messages += [
        message.model_dump(),
        {"role": "function", "name": "get_weather", "content": "18 degrees"},
    ]
    second = sdk.chat.completions.create(model="scripted", messages=messages, functions=functions)
    assert second.choices[0].message.content == "It is 18 degrees."
    named = sdk.chat.completions.create(
        model="scripted",
        messages=user("hello"),
        functions=functions,
        function_call={"name": "get_weather"},
    )
    assert named.choices[0].message.function_call is not None
    assert named.choices[0].finish_reason == "stop"


def test_log_probabilities_are_those_of_the_text(sdk: OpenAI) -> None:
    made = sdk.chat.completions.create(
        model="scripted", messages=user("think first"), logprobs=True, top_logprobs=3
    )
    scored = made.choices[0].logprobs
    assert scored is not None
    assert scored.content is not None
    assert scored.refusal is None
    assert (
        bytes(b for token in scored.content for b in token.bytes or ()).decode() == "Done thinking."
    )
    assert all(len(token.top_logprobs) == 3 for token in scored.content)
    stream = sdk.chat.completions.create(
        model="scripted", messages=user("think first"), logprobs=True, stream=True
    )
    tokens = [
        t.token for c in stream if (told := c.choices[0].logprobs) for t in told.content or ()
    ]
    assert tokens == [token.token for token in scored.content]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_limit(sdk: OpenAI, name: str) -> None:
    limit: Any = {name: 2}
    made = sdk.chat.completions.create(model="scripted", messages=user("think first"), **limit)
    assert made.choices[0].finish_reason == "length"
    assert made.usage is not None
    assert made.usage.completion_tokens == 2


def test_a_stop_string_is_left_out_and_a_filter_is_told(sdk: OpenAI) -> None:
    made = sdk.chat.completions.create(
        model="scripted", messages=user("one two three"), stop=["two"]
    )
    assert (made.choices[0].message.content, made.choices[0].finish_reason) == ("one ", "stop")
    filtered = sdk.chat.completions.create(model="scripted", messages=user("filter it"))
    assert filtered.choices[0].finish_reason == "content_filter"


def test_all_roles_and_what_is_only_passed_on(sdk: OpenAI) -> None:
    messages: list[Any] = [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {"role": "developer", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "eve"},
        {"role": "assistant", "content": None, "refusal": "No.", "reasoning_content": "Hm."},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "tool_calls": None},
        {"role": "system", "content": "Later."},
        {"role": "user", "content": "well then"},
    ]  # fmt: skip
    made = sdk.chat.completions.create(
        model="scripted",
        messages=messages,
        user="u",
        metadata={"a": "b"},
        store=True,
        service_tier="default",
        reasoning_effort="low",
        verbosity="low",
        prompt_cache_key="k",
        safety_identifier="s",
        modalities=["text"],
        prediction={"type": "content", "content": "x"},
        seed=1,
        presence_penalty=0.1,
        frequency_penalty=0.1,
        temperature=0.5,
        top_p=0.9,
        logit_bias={"5": -1},
    )
    assert made.choices[0].message.content == "well then"
    assert made.service_tier == "default"


def test_the_asynchronous_client(chat_gateway: RunningGateway) -> None:
    async def talk() -> None:
        async with chat_gateway.async_client() as client:
            made = await client.chat.completions.parse(
                model="scripted", messages=user("person as json"), response_format=Person
            )
            assert made.choices[0].message.parsed.age == 36
            async with client.chat.completions.stream(
                model="scripted", messages=user("two cities"), tools=[WEATHER]
            ) as stream:
                async for _ in stream:
                    pass
                final = await stream.get_final_completion()
            assert len(final.choices[0].message.tool_calls) == 2
            chunks = await client.completions.create(model="scripted", prompt="hello", stream=True)
            assert "".join([c.choices[0].text async for c in chunks]) == "hello"

    asyncio.run(talk())
