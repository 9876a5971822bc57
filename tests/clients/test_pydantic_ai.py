"""pydantic-ai's two OpenAI models against a running gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway_testing.server import RunningGateway
from tests.clients.examples import Person

pydantic_ai = pytest.importorskip(
    "pydantic_ai", reason="pydantic-ai-slim is not installed; requirements-clients.txt has it"
)
openai_models = pytest.importorskip("pydantic_ai.models.openai")
openai_provider = pytest.importorskip("pydantic_ai.providers.openai")
ai_messages = pytest.importorskip("pydantic_ai.messages")

pytestmark = pytest.mark.anyio


@pytest.fixture
async def provider(gateway: RunningGateway) -> AsyncIterator[Any]:
    async with gateway.async_client() as client:
        yield openai_provider.OpenAIProvider(openai_client=client)


@pytest.fixture(params=["demo", "harmony", "gpt-5"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["OpenAIChatModel", "OpenAIResponsesModel"])
def model(request: pytest.FixtureRequest, name: str, provider: Any) -> Any:
    return getattr(openai_models, request.param)(name, provider=provider)


def weather_agent(model: Any, **options: Any) -> Any:
    agent = pydantic_ai.Agent(model, instructions="Be nice.", **options)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Get the weather of a city."""
        return f"18 degrees in {city}"

    return agent


async def test_a_tool_is_called_and_answered_from(model: Any) -> None:
    result = await weather_agent(model).run("weather in Paris")
    assert result.output == "It is 18 degrees."
    assert result.usage.requests == 2
    assert result.usage.output_tokens > 0


async def test_calls_at_once(model: Any) -> None:
    result = await weather_agent(model).run("two cities")
    assert result.output == "It is 18 degrees in both."


async def test_a_stream_says_the_same(model: Any) -> None:
    async with weather_agent(model).run_stream("weather in Paris") as result:
        seen = [text async for text in result.stream_text(delta=True, debounce_by=None)]
        assert "".join(seen) == "It is 18 degrees."
    assert len(seen) > 2


async def test_its_events_have_thinking_calls_and_text(model: Any) -> None:
    started = []
    async with weather_agent(model).iter("weather in Paris") as run:
        async for node in run:
            if pydantic_ai.Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        if isinstance(event, ai_messages.PartStartEvent):
                            started.append(type(event.part).__name__)
    assert started == ["ThinkingPart", "ToolCallPart", "ThinkingPart", "TextPart"]


async def test_history_goes_round_with_its_thinking(model: Any, told: Any, name: str) -> None:
    agent = weather_agent(model)
    first = await agent.run("weather in Paris")
    parts = [part for message in first.all_messages() for part in message.parts]
    thought = [_thought(part) for part in parts if isinstance(part, ai_messages.ThinkingPart)]
    assert thought == ["There is a tool for the weather.", "The tool has said it."]
    adapter = ai_messages.ModelMessagesTypeAdapter
    history = adapter.validate_json(adapter.dump_json(first.all_messages()))
    second = await agent.run("and once more", message_history=history)
    assert second.output == "As I said."
    assert "18 degrees in Paris" in told(name)


SUMMARY = {"openai_reasoning_summary": "auto"}


@pytest.mark.parametrize("streamed", [False, True])
async def test_thinking_is_seen_as_a_summary(provider: Any, name: str, streamed: bool) -> None:
    agent = weather_agent(openai_models.OpenAIResponsesModel(name, provider=provider))
    if streamed:
        async with agent.run_stream("weather in Paris", model_settings=SUMMARY) as result:
            assert await result.get_output() == "It is 18 degrees."
    else:
        result = await agent.run("weather in Paris", model_settings=SUMMARY)
    parts = [part for message in result.all_messages() for part in message.parts]
    thought = [part.content for part in parts if isinstance(part, ai_messages.ThinkingPart)]
    assert thought == ["There is a tool for the weather.", "The tool has said it."]


@pytest.mark.parametrize("store", [True, False])
async def test_summaries_come_back_and_are_read_once(
    responses: Any, told: Any, store: bool
) -> None:
    settings = {**SUMMARY, "openai_store": store, "openai_include_encrypted_reasoning": not store}
    result = await weather_agent(responses).run("weather in Paris", model_settings=settings)
    assert result.output == "It is 18 degrees."
    assert told().count("There is a tool for the weather.") == 1


def _thought(part: Any) -> str:
    """What the model thought: where it asks for no summary, the library has it beside the part's content."""
    return part.content or "".join((part.provider_details or {})["raw_content"])


@pytest.mark.parametrize(
    ("mode", "prompt"),
    [
        ("ToolOutput", "call final_result"),
        ("NativeOutput", "a person please"),
        ("PromptedOutput", "a person please"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_output_types(model: Any, mode: str, prompt: str, streamed: bool) -> None:
    output = getattr(pydantic_ai, mode)(Person)
    agent = weather_agent(model, output_type=output)
    if not streamed:
        assert (await agent.run(prompt)).output == Person(name="Ada", age=36)
        return
    async with agent.run_stream(prompt) as result:
        async for _ in result.stream_output(debounce_by=None):
            pass
        assert await result.get_output() == Person(name="Ada", age=36)


@pytest.mark.parametrize("mode", ["ToolOutput", "NativeOutput"])
async def test_unscripted_output_types_are_forced(model: Any, mode: str) -> None:
    agent = pydantic_ai.Agent(model, output_type=getattr(pydantic_ai, mode)(Person))
    assert isinstance((await agent.run("anybody")).output, Person)


@pytest.mark.filterwarnings("ignore:Sampling parameters")  # that the library leaves out for gpt-5
async def test_settings_are_taken(model: Any) -> None:
    settings = {
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 60,
        "timeout": 60,
        "parallel_tool_calls": True,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.1,
        "openai_reasoning_effort": "low",
        "openai_reasoning_summary": "auto",
        "openai_text_verbosity": "low",
        "openai_user": "somebody",
        "openai_service_tier": "default",
        "openai_logprobs": False,
        "extra_body": {"top_k": 5},
        "extra_headers": {"x-mine": "1"},
    }
    result = await weather_agent(model).run("think first", model_settings=settings)
    assert result.output == "Done thinking."


async def test_stops_and_seeds_are_taken(provider: Any) -> None:
    agent = pydantic_ai.Agent(openai_models.OpenAIChatModel("demo", provider=provider))
    result = await agent.run(
        "think first", model_settings={"seed": 1, "stop_sequences": [" thinking"]}
    )
    assert result.output == "Done"


@pytest.fixture
def responses(provider: Any) -> Any:
    return openai_models.OpenAIResponsesModel("demo", provider=provider)


@pytest.mark.parametrize("mode", ["auto", "previous"])
async def test_previous_responses_are_remembered(responses: Any, told: Any, mode: str) -> None:
    agent = weather_agent(responses)
    first = await agent.run("weather in Paris")
    last = first.all_messages()[-1].provider_response_id
    settings = {"openai_previous_response_id": "auto" if mode == "auto" else last}
    history = first.all_messages() if mode == "auto" else None
    second = await agent.run("and once more", message_history=history, model_settings=settings)
    assert second.output == "As I said."
    assert told().count("weather in Paris") == 1


async def test_encrypted_reasoning_goes_round_without_a_store(responses: Any, told: Any) -> None:
    agent = weather_agent(responses)
    settings = {"openai_store": False, "openai_include_encrypted_reasoning": True}
    result = await agent.run("weather in Paris", model_settings=settings)
    assert result.output == "It is 18 degrees."
    assert "There is a tool for the weather." in told()


async def test_items_go_round_without_their_ids(responses: Any) -> None:
    agent = weather_agent(responses)
    first = await agent.run("weather in Paris")
    second = await agent.run(
        "and once more",
        message_history=first.all_messages(),
        model_settings={"openai_send_reasoning_ids": False},
    )
    assert second.output == "As I said."


async def test_a_hosted_mcp_tool_is_run_by_the_gateway(responses: Any) -> None:
    tool = {"type": "mcp", "server_label": "example", "require_approval": "never"}
    settings = {"extra_body": {"tools": [tool]}}
    agent = pydantic_ai.Agent(responses)
    result = await agent.run("please add", model_settings=settings)
    assert result.output == "It is five."
    again = await agent.run("and once more", message_history=result.all_messages())
    assert again.output == "As I said."


async def test_an_image_is_refused_by_a_text_model(model: Any) -> None:
    image = pydantic_ai.BinaryContent(data=b"hello", media_type="image/png")
    with pytest.raises(pydantic_ai.ModelHTTPError, match="image") as caught:
        await pydantic_ai.Agent(model).run(["what is it?", image])
    assert caught.value.status_code == 400
