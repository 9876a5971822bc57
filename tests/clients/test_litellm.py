"""LiteLLM as a client: its OpenAI routes over Chat Completions and Responses, against a running gateway."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from gateway_testing.server import RunningGateway
from tests.clients.examples import Person

# What LiteLLM warns of is its own: deprecated imports, models of one SDK dumped through another's, forgotten connections.
pytestmark = pytest.mark.filterwarnings("ignore")
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = (
    "True"  # or it fetches prices from the web as it is imported
)
litellm = pytest.importorskip(
    "litellm", reason="litellm is not installed; requirements-clients-openai2.txt has it"
)

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


@pytest.fixture(autouse=True, scope="module")
def _tidy() -> Iterator[None]:
    """Collect what LiteLLM has left open where nobody is warned of it."""
    yield
    litellm.in_memory_llm_clients_cache.flush_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture(params=["openai", "hosted_vllm", "litellm_proxy", "openai/gpt-5"])
def where(request: pytest.FixtureRequest, gateway: RunningGateway) -> dict[str, Any]:
    """The routes by which people reach a server that speaks as OpenAI does; each rewrites requests in its own way."""
    route = request.param
    model = route if "/" in route else f"{route}/demo"
    return {"model": model, "api_base": gateway.base_url, "api_key": "none"}


@pytest.fixture
def openai_route(gateway: RunningGateway) -> dict[str, Any]:
    return {"model": "openai/demo", "api_base": gateway.base_url, "api_key": "none"}


def ask(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def test_it_answers_with_reasoning_and_usage(where: dict[str, Any]) -> None:
    answer = litellm.completion(**where, messages=ask("think first"))
    message = answer.choices[0].message
    assert message.content == "Done thinking."
    assert message.reasoning_content == "Hm.\nWell."
    assert answer.usage.completion_tokens > 0


def test_a_tool_is_called_and_answered_from(where: dict[str, Any], told: Any) -> None:
    messages = ask("two cities")
    first = litellm.completion(**where, messages=messages, tools=[WEATHER], tool_choice="auto")
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    messages.append(message.model_dump())
    for call in message.tool_calls:
        city = json.loads(call.function.arguments)["city"]
        messages.append(
            {"role": "tool", "tool_call_id": call.id, "name": "get_weather", "content": f"18 degrees in {city}"}
        )  # fmt: skip
    answer = litellm.completion(**where, messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "It is 18 degrees in both."
    assert told().index("18 degrees in Oslo") < told().index("18 degrees in Rome")


def test_a_stream_adds_up(where: dict[str, Any]) -> None:
    chunks = list(
        litellm.completion(
            **where, messages=ask("two cities"), tools=[WEATHER], stream=True,
            stream_options={"include_usage": True},
        )
    )  # fmt: skip
    whole = litellm.stream_chunk_builder(chunks, messages=ask("two cities"))
    message = whole.choices[0].message
    assert message.content == "I look at both."
    assert [json.loads(c.function.arguments)["city"] for c in message.tool_calls] == [
        "Oslo",
        "Rome",
    ]
    assert whole.usage.completion_tokens > 0


@pytest.mark.anyio
async def test_an_async_stream(openai_route: dict[str, Any]) -> None:
    stream = await litellm.acompletion(**openai_route, messages=ask("think first"), stream=True)
    text = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(text) == "Done thinking."


def test_structured_output(where: dict[str, Any]) -> None:
    answer = litellm.completion(**where, messages=ask("a person please"), response_format=Person)
    assert Person.model_validate_json(answer.choices[0].message.content).name == "Ada"
    forced = litellm.completion(**where, messages=ask("anybody"), response_format=Person)
    Person.model_validate_json(forced.choices[0].message.content)


def test_settings_are_taken(where: dict[str, Any]) -> None:
    answer = litellm.completion(
        **where,
        messages=ask("think first"),
        max_tokens=90,
        user="somebody",
        metadata={"run": "1"},
        parallel_tool_calls=None,
        tools=None,
        drop_params=True,
        temperature=0.3,
        seed=1,
        reasoning_effort="low",
        extra_headers={"x-mine": "1"},
        extra_body={"top_k": 4},
    )
    assert answer.choices[0].message.content == "Done thinking."


RESPONSES_TOOL = {"type": "function", **WEATHER["function"]}


def test_responses_are_made_and_chained(openai_route: dict[str, Any], told: Any) -> None:
    first = litellm.responses(**openai_route, input="weather in Paris", tools=[RESPONSES_TOOL])
    call = first.output[-1]
    assert call.type == "function_call"
    second = litellm.responses(
        **openai_route,
        previous_response_id=first.id,
        input=[
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": "18 degrees in Paris",
            }
        ],
        tools=[RESPONSES_TOOL],
    )
    assert second.output[-1].content[0].text == "It is 18 degrees."
    assert told().count("weather in Paris") == 1


def test_responses_are_streamed(openai_route: dict[str, Any]) -> None:
    stream = litellm.responses(**openai_route, input="think first", stream=True)
    events = list(stream)
    text = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(text) == "Done thinking."
    assert events[-1].type == "response.completed"


def test_a_chat_is_bridged_to_responses(gateway: RunningGateway) -> None:
    """The route `openai/responses/…` makes a request to Responses of one to Chat Completions."""
    bridged = {"model": "openai/responses/demo", "api_base": gateway.base_url, "api_key": "none"}
    answer = litellm.completion(**bridged, messages=ask("think first"))
    assert answer.choices[0].message.content == "Done thinking."
    first = litellm.completion(**bridged, messages=ask("weather in Paris"), tools=[WEATHER])
    messages = [*ask("weather in Paris"), first.choices[0].message.model_dump()]
    call = first.choices[0].message.tool_calls[0]
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "18 degrees in Paris"})
    answer = litellm.completion(**bridged, messages=messages, tools=[WEATHER])
    assert answer.choices[0].message.content == "It is 18 degrees."


def test_text_completions(gateway: RunningGateway) -> None:
    where = {
        "model": "text-completion-openai/demo",
        "api_base": gateway.base_url,
        "api_key": "none",
    }
    answer = litellm.text_completion(**where, prompt="and once more", max_tokens=20)
    assert answer.choices[0].text == "As I said."


def test_errors_are_its_own_classes(openai_route: dict[str, Any]) -> None:
    with pytest.raises(litellm.RateLimitError, match="busy"):
        litellm.completion(**openai_route, messages=ask("be busy"), max_retries=0)
    with pytest.raises(litellm.NotFoundError, match="nobody"):
        litellm.completion(**{**openai_route, "model": "openai/nobody"}, messages=ask("x"))
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(**openai_route, messages=ask("x"), temperature=9)


def test_a_failure_in_mid_stream_is_raised(openai_route: dict[str, Any]) -> None:
    with pytest.raises(litellm.exceptions.MidStreamFallbackError, match="failed"):
        list(litellm.completion(**openai_route, messages=ask("break down"), stream=True))


def test_the_anthropic_interface_over_chat(openai_route: dict[str, Any]) -> None:
    """LiteLLM's own translation of Messages, without the gateway's."""

    async def ask_once() -> Any:
        return await litellm.anthropic.messages.acreate(
            **openai_route, max_tokens=50, messages=ask("think first")
        )

    answer = asyncio.run(ask_once())
    texts = [block["text"] for block in answer["content"] if block["type"] == "text"]
    assert texts == ["Done thinking."]


def test_the_anthropic_route(gateway: RunningGateway) -> None:
    """LiteLLM's client of the Messages API, at the gateway's plugin for it."""
    pytest.importorskip("gateway_messages", reason="the plugin messages is not installed")
    where = {
        "model": "anthropic/demo",
        "api_base": gateway.base_url.removesuffix("/v1"),
        "api_key": "none",
    }
    answer = litellm.completion(**where, messages=ask("think first"), max_tokens=90)
    assert answer.choices[0].message.content == "Done thinking."
    messages = ask("two cities")
    chunks = list(
        litellm.completion(**where, messages=messages, tools=[WEATHER], max_tokens=400, stream=True)
    )
    message = litellm.stream_chunk_builder(chunks, messages=messages).choices[0].message
    messages.append(message.model_dump())
    for call in message.tool_calls:
        city = json.loads(call.function.arguments)["city"]
        result = {"role": "tool", "tool_call_id": call.id, "content": f"18 degrees in {city}"}
        messages.append(result)
    answer = litellm.completion(**where, messages=messages, tools=[WEATHER], max_tokens=90)
    assert answer.choices[0].message.content == "It is 18 degrees in both."
