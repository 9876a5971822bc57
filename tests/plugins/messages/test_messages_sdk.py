"""The vendor's own client against a running gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic, AsyncAnthropic
from pydantic import BaseModel

from gateway.plugins.protocols import NamedTool
from gateway.wire.items import FunctionCall, FunctionCallOutput, Message, Reasoning
from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway
from tests.plugins.messages.messages_grammar import fold_events, parse_events

WEATHER: Any = {
    "name": "get_weather",
    "description": "Get the weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "note": {"type": "string"}},
        "required": ["city"],
    },
}
PROMPTS = ["hello", "think first", "weather in Paris", "two cities", "half a call", "filter it"]


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def create(client: Anthropic, text: str, **options: Any) -> anthropic.types.Message:
    made: anthropic.types.Message = client.messages.create(
        **{"model": "scripted", "max_tokens": 200, "messages": user(text), **options}
    )
    return made


def shape(message: dict[str, Any]) -> Any:
    """A message without its ids."""
    return json.loads(
        json.dumps(message), object_hook=lambda o: {k: v for k, v in o.items() if k != "id"}
    )


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_stream_adds_up_to_the_plain_answer(raw: httpx.Client, prompt: str) -> None:
    body = {"model": "scripted", "max_tokens": 200, "messages": user(prompt), "tools": [WEATHER]}
    plain = raw.post("/v1/messages", json=body)
    stream = raw.post("/v1/messages", json={**body, "stream": True})
    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert stream.headers["request-id"] == stream.headers["x-request-id"]
    folded = fold_events(parse_events(stream.content))
    assert shape(folded) == shape(plain.json())


@pytest.mark.parametrize("prompt", [p for p in PROMPTS if p != "half a call"])
def test_the_clients_own_accumulator_agrees(claude: Anthropic, prompt: str) -> None:
    options: Any = {"model": "scripted", "max_tokens": 200, "tools": [WEATHER]}
    with claude.messages.stream(messages=user(prompt), **options) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    plain = create(claude, prompt, **options)
    assert shape(final.to_dict()) == shape(plain.to_dict())  # type: ignore[arg-type]
    assert "".join(texts) == "".join(b.text for b in plain.content if b.type == "text")


def test_a_tool_round_trip_keeps_thinking_call_and_result(
    claude: Anthropic, engine: ScriptedEngine
) -> None:
    first = create(claude, "weather in Paris", tools=[WEATHER])
    assert first.stop_reason == "tool_use"
    thinking, call = first.content
    assert thinking.type == "thinking"
    assert thinking.signature
    assert call.type == "tool_use"
    assert call.input == {"city": "Paris", "note": "é 😀"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "18 degrees"}
    answer = create(
        claude,
        "",
        tools=[WEATHER],
        messages=[
            *user("weather in Paris"),
            first.to_param(),
            {"role": "user", "content": [result]},
        ],
    )
    assert answer.content[0].to_dict()["text"] == "It is 18 degrees."
    turn = engine.requests[-1].turn
    assert turn is not None
    _, thought, called, output = turn.items
    assert isinstance(thought, Reasoning)
    assert thought.content[0].text == "There is a tool."  # type: ignore[index]
    assert isinstance(called, FunctionCall)
    assert isinstance(output, FunctionCallOutput)
    assert called.call_id == output.call_id == call.id


def test_a_failed_tool_is_told_as_an_error(claude: Anthropic) -> None:
    use = {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "X"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True,
              "content": [{"type": "text", "text": "no such city"}]}  # fmt: skip
    messages = [
        *user("hello"),
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    assert create(claude, "", messages=messages).content[0].to_dict()["text"] == "I am sorry."


def test_the_clients_own_tool_runner_comes_to_an_answer(claude: Anthropic) -> None:
    @anthropic.beta_tool
    def get_weather(city: str, note: str = "") -> str:
        """Get the weather of a city.

        Args:
            city: Which one.
            note: Anything.
        """
        return f"18 degrees in {city}"

    runner = claude.beta.messages.tool_runner(
        model="scripted",
        max_tokens=200,
        messages=user("weather in Paris"),  # type: ignore[arg-type]
        tools=[get_weather],
    )
    last = runner.until_done()
    assert last.content[0].to_dict()["text"] == "It is 18 degrees."


@pytest.mark.parametrize(
    ("choice", "expected", "parallel"),
    [
        ({"type": "auto"}, "auto", True),
        ({"type": "auto", "disable_parallel_tool_use": True}, "auto", False),
        ({"type": "any"}, "required", True),
        ({"type": "none"}, "none", True),
        ({"type": "tool", "name": "get_weather"}, NamedTool("get_weather"), True),
        ({"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True},
         NamedTool("get_weather"), False),
    ],
)  # fmt: skip
def test_each_tool_choice_is_asked_of_the_model(
    claude: Anthropic, engine: ScriptedEngine, choice: Any, expected: Any, parallel: bool
) -> None:
    message = create(claude, "hello", tools=[WEATHER], tool_choice=choice)
    turn = engine.requests[-1].turn
    assert turn is not None
    assert (turn.tool_choice, turn.parallel_tool_calls) == (expected, parallel)
    forced = choice["type"] in ("any", "tool")
    assert (message.stop_reason == "tool_use") == forced


def test_one_call_is_the_last_where_parallel_calls_are_off(claude: Anthropic) -> None:
    both = create(claude, "two cities", tools=[WEATHER])
    one = create(
        claude,
        "two cities",
        tools=[WEATHER],
        tool_choice={"type": "auto", "disable_parallel_tool_use": True},
    )
    assert [b.type for b in both.content] == ["text", "tool_use", "tool_use"]
    assert [b.type for b in one.content] == ["text", "tool_use"]
    assert one.stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("thinking", "config", "effort"),
    [
        (None, None, None),
        ({"type": "disabled"}, None, "none"),
        ({"type": "disabled"}, {"effort": "high"}, "none"),
        ({"type": "enabled", "budget_tokens": 1024}, None, "low"),
        ({"type": "enabled", "budget_tokens": 8000}, None, "medium"),
        ({"type": "enabled", "budget_tokens": 16384}, None, "high"),
        ({"type": "enabled", "budget_tokens": 1024}, {"effort": "max"}, "max"),
        ({"type": "adaptive"}, None, "medium"),
        ({"type": "adaptive"}, {"effort": "xhigh"}, "xhigh"),
        ({"type": "between_tools"}, None, "medium"),
        (None, {"effort": "low"}, "low"),
    ],
)
def test_thinking_and_effort_are_the_models_reasoning_effort(
    claude: Anthropic, engine: ScriptedEngine, thinking: Any, config: Any, effort: str | None
) -> None:
    given = {"thinking": thinking, "output_config": config}
    create(claude, "hello", max_tokens=20_000, **{k: v for k, v in given.items() if v is not None})
    turn = engine.requests[-1].turn
    assert turn is not None
    assert turn.reasoning_effort == effort


def test_omitted_thinking_comes_back_to_the_model_by_its_signature(
    claude: Anthropic, engine: ScriptedEngine
) -> None:
    thinking: Any = {"type": "adaptive", "display": "omitted"}
    first = create(claude, "think first", thinking=thinking)
    block = first.content[0]
    assert block.type == "thinking"
    assert block.thinking == ""
    assert "Well." not in block.signature
    messages = [*user("think first"), first.to_param(), *user("go on")]
    create(claude, "", thinking=thinking, messages=messages)
    turn = engine.requests[-1].turn
    assert turn is not None
    [thought] = [item for item in turn.items if isinstance(item, Reasoning)]
    assert thought.content[0].text == "Hm.\nWell."  # type: ignore[index]


def test_thinking_that_was_sealed_elsewhere_is_left_out(
    claude: Anthropic, engine: ScriptedEngine
) -> None:
    content: Any = [
        {"type": "thinking", "thinking": "", "signature": "EqMDCkYIBxgCKkBrZXk="},
        {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"},
        {"type": "thinking", "thinking": "in the open", "signature": "EqMDCkYIBxgCKkBr"},
        {"type": "text", "text": "hello"},
    ]
    messages = [*user("a"), {"role": "assistant", "content": content}, *user("b")]
    create(claude, "", messages=messages)
    turn = engine.requests[-1].turn
    assert turn is not None
    thoughts = [item for item in turn.items if isinstance(item, Reasoning)]
    assert [thought.content[0].text for thought in thoughts] == ["in the open"]  # type: ignore[index]


def test_a_stop_sequence_is_told(claude: Anthropic) -> None:
    message = create(claude, "count up", stop_sequences=["nine", " four"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", " four")
    assert message.content[0].to_dict()["text"] == "one two three"


def test_limits_of_the_request_and_of_the_model_are_told_apart(claude: Anthropic) -> None:
    assert create(claude, "count up", max_tokens=2).stop_reason == "max_tokens"
    full = create(claude, "go slowly", model="small", max_tokens=1000)
    assert full.stop_reason == "model_context_window_exceeded"


def test_nothing_is_generated_where_only_the_cache_is_to_be_warmed(claude: Anthropic) -> None:
    message = create(claude, "count up", max_tokens=0)
    assert (message.content, message.stop_reason) == ([], "max_tokens")
    assert message.usage.output_tokens == 0
    assert message.usage.input_tokens > 0


def test_a_final_message_of_the_assistant_is_continued(
    claude: Anthropic, engine: ScriptedEngine
) -> None:
    create(
        claude, "", messages=[*user("hello"), {"role": "assistant", "content": "My answer is ("}]
    )
    request = engine.requests[-1]
    assert request.turn is not None
    assert request.turn.continue_final_message
    prompt = engine.tokenizer.decode(request.prompt.token_ids)  # type: ignore[union-attr]
    assert prompt.endswith("My answer is (")


def test_structured_output_is_parsed(claude: Anthropic, engine: ScriptedEngine) -> None:
    class Person(BaseModel):
        name: str
        age: int

    parsed = claude.messages.parse(
        model="scripted", max_tokens=100, messages=user("person as json"), output_format=Person
    )
    assert parsed.parsed_output == Person(name="Ada", age=36)
    turn = engine.requests[-1].turn
    assert turn is not None
    assert turn.text_format.kind == "json_schema"
    assert engine.requests[-1].constraint is not None


def test_tokens_are_counted_as_the_prompt_has_them(claude: Anthropic) -> None:
    convert_request: Any = {"model": "scripted", "messages": user("hello"), "tools": [WEATHER], "system": "Be brief."}  # fmt: skip
    counted = claude.messages.count_tokens(**convert_request)
    answered = claude.messages.create(max_tokens=10, **convert_request)
    assert counted.input_tokens == answered.usage.input_tokens
    less = claude.messages.count_tokens(model="scripted", messages=user("hello"))
    assert less.input_tokens < counted.input_tokens


def test_models_are_listed_for_clients_of_either_api(
    claude: Anthropic, messages_gateway: RunningGateway
) -> None:
    assert [model.id for model in claude.models.list()] == ["scripted", "small"]
    page = claude.models.list(limit=1)
    assert (page.has_more, page.first_id, page.last_id) == (True, "scripted", "scripted")
    assert [model.id for model in page.get_next_page()] == ["small"]
    assert [model.id for model in claude.models.list(before_id="small", limit=5)] == ["scripted"]
    found = claude.models.retrieve("claude-alias")
    assert (found.id, found.max_input_tokens) == ("scripted", 131072)
    with messages_gateway.client() as openai:
        assert [model.id for model in openai.models.list()] == ["scripted", "small"]
        assert openai.models.retrieve("claude-alias").object == "model"


@pytest.mark.parametrize(
    ("options", "error", "kind"),
    [
        ({"model": "no-such"}, anthropic.NotFoundError, "not_found_error"),
        ({"max_tokens": -1}, anthropic.BadRequestError, "invalid_request_error"),
        ({"messages": user("be busy")}, anthropic.RateLimitError, "rate_limit_error"),
        ({"messages": user("be down")}, anthropic.OverloadedError, "overloaded_error"),
        ({"messages": user("fail at once")}, anthropic.InternalServerError, "api_error"),
        ({"messages": user("x" * 200_000)}, anthropic.ContentTooLargeError, "request_too_large"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_the_clients_own_exceptions(
    claude: Anthropic, options: Any, error: type[anthropic.APIStatusError], kind: str, stream: bool
) -> None:
    with pytest.raises(error) as caught:
        create(claude, "hello", stream=stream, **options)
    body: Any = caught.value.body
    assert body["error"]["type"] == kind
    assert body["request_id"] == caught.value.request_id


def test_a_failure_in_the_middle_of_a_stream_raises(claude: Anthropic) -> None:
    with (
        pytest.raises(anthropic.APIStatusError, match="failed on this request"),
        claude.messages.stream(
            model="scripted", max_tokens=9, messages=user("break down")
        ) as stream,
    ):
        assert next(iter(stream.text_stream))
        stream.until_done()


@pytest.mark.anyio
async def test_the_asynchronous_client_streams_several_at_once(root: str) -> None:
    async with AsyncAnthropic(base_url=root, api_key="none", max_retries=0) as client:

        async def ask(prompt: str) -> str:
            async with client.messages.stream(
                model="scripted", max_tokens=200, messages=user(prompt)
            ) as stream:
                return await stream.get_final_text()

        said = await asyncio.gather(*(ask(f"say {number}") for number in range(8)))
    assert said == [f"say {number}" for number in range(8)]


def test_content_of_every_kind_reaches_the_model(claude: Anthropic, engine: ScriptedEngine) -> None:
    content: Any = [
        {"type": "text", "text": "Look:", "cache_control": {"type": "ephemeral"}},
        {"type": "document", "title": "T", "context": "C",
         "source": {"type": "text", "media_type": "text/plain", "data": "text of the document"}},
        {"type": "document", "source": {"type": "content", "content": [{"type": "text", "text": "a block of it"}]}},
        {"type": "search_result", "source": "https://a.example", "title": "Found",
         "content": [{"type": "text", "text": "what was found"}]},
    ]  # fmt: skip
    create(claude, "", messages=[{"role": "user", "content": content}, {"role": "system", "content": "late"}])  # fmt: skip
    request = engine.requests[-1]
    assert request.turn is not None
    first = request.turn.items[0]
    assert isinstance(first, Message)
    prompt = engine.tokenizer.decode(request.prompt.token_ids)  # type: ignore[union-attr]
    for told in ("Look:", "T\nC\ntext of the document", "a block of it", "https://a.example", "what was found", "late"):  # fmt: skip
        assert told in prompt
