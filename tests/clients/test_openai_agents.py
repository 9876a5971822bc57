"""openai-agents, with its Responses model and its Chat Completions model, against a running gateway."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway_testing.server import RunningGateway
from tests.clients.examples import Person

agents = pytest.importorskip(
    "agents", reason="openai-agents is not installed; requirements-clients.txt has it"
)

pytestmark = pytest.mark.anyio

calls: list[str] = []


@agents.function_tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    calls.append(city)
    return f"18 degrees in {city}"


@pytest.fixture(autouse=True)
def _no_tracing() -> None:
    agents.set_tracing_disabled(True)
    calls.clear()


@pytest.fixture(params=["demo", "harmony", "gpt-5"])
def name(request: pytest.FixtureRequest) -> str:
    """The model's name, by which the library knows what it may send."""
    return str(request.param)


@pytest.fixture(params=["responses", "chat"])
def model(request: pytest.FixtureRequest, name: str, aclient: Any) -> Any:
    if request.param == "responses":
        return agents.OpenAIResponsesModel(name, aclient)
    return agents.OpenAIChatCompletionsModel(name, aclient)


@pytest.fixture
def responses(aclient: Any) -> Any:
    return agents.OpenAIResponsesModel("demo", aclient)


async def test_a_function_tool_is_called_and_answered_from(model: Any) -> None:
    agent = agents.Agent(name="A", instructions="Be nice.", model=model, tools=[get_weather])
    result = await agents.Runner.run(agent, "weather in Paris")
    assert result.final_output == "It is 18 degrees."
    assert calls == ["Paris"]
    usage = result.context_wrapper.usage
    assert usage.requests == 2
    assert usage.output_tokens > usage.output_tokens_details.reasoning_tokens > 0


async def test_calls_at_once_are_all_answered(model: Any, told: Any, name: str) -> None:
    agent = agents.Agent(name="A", model=model, tools=[get_weather])
    result = await agents.Runner.run(agent, "two cities")
    assert result.final_output == "It is 18 degrees in both."
    assert sorted(calls) == ["Oslo", "Rome"]
    prompt = told(name)
    assert prompt.index("18 degrees in Oslo") < prompt.index("18 degrees in Rome")


async def test_a_streamed_run_says_the_same(model: Any) -> None:
    agent = agents.Agent(name="A", model=model, tools=[get_weather])
    result = agents.Runner.run_streamed(agent, "weather in Paris")
    raw, items = [], []
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            raw.append(event.data)
        elif event.type == "run_item_stream_event":
            items.append(event.name)
    assert result.final_output == "It is 18 degrees."
    assert items == [
        "reasoning_item_created",
        "tool_called",
        "tool_output",
        "reasoning_item_created",
        "message_output_created",
    ]
    texts = [event.delta for event in raw if event.type == "response.output_text.delta"]
    assert "".join(texts) == "It is 18 degrees."
    assert len(texts) > 2


async def test_a_handoff_is_made(model: Any) -> None:
    spanish = agents.Agent(name="spanish", instructions="You speak Spanish.", model=model)
    agent = agents.Agent(name="A", instructions="Hand over.", model=model, handoffs=[spanish])
    result = await agents.Runner.run(agent, "somebody in Spanish")
    assert result.last_agent.name == "spanish"
    assert result.final_output == "Hola."


async def test_an_output_type_is_parsed(model: Any) -> None:
    agent = agents.Agent(name="A", model=model, output_type=Person)
    result = await agents.Runner.run(agent, "a person please")
    assert result.final_output == Person(name="Ada", age=36)


async def test_an_unscripted_output_type_is_forced(model: Any) -> None:
    agent = agents.Agent(name="A", model=model, output_type=Person)
    result = await agents.Runner.run(agent, "anybody")
    assert isinstance(result.final_output, Person)


async def test_a_required_tool_is_called(model: Any) -> None:
    agent = agents.Agent(
        name="A",
        model=model,
        tools=[get_weather],
        model_settings=agents.ModelSettings(tool_choice="required", parallel_tool_calls=False),
        tool_use_behavior="stop_on_first_tool",
    )
    result = await agents.Runner.run(agent, "say anything")
    assert result.final_output.startswith("18 degrees")
    named = agent.clone(model_settings=agents.ModelSettings(tool_choice="get_weather"))
    result = await agents.Runner.run(named, "say anything")
    assert result.final_output.startswith("18 degrees")


async def test_all_model_settings_are_taken(model: Any) -> None:
    settings = agents.ModelSettings(
        temperature=0.5,
        top_p=0.9,
        max_tokens=50,
        metadata={"run": "1"},
        store=True,
        truncation="auto",
        verbosity="low",
        reasoning={"effort": "low", "summary": "auto"},
        prompt_cache_retention="24h",
        extra_headers={"x-mine": "1"},
        extra_body={"top_k": 3},
    )
    agent = agents.Agent(name="A", model=model, model_settings=settings)
    result = await agents.Runner.run(agent, "think first")
    assert result.final_output == "Done thinking."


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_session_of_the_conversations_api_remembers(
    aclient: Any, responses: Any, told: Any, streamed: bool
) -> None:
    session = agents.OpenAIConversationsSession(openai_client=aclient)
    agent = agents.Agent(name="A", model=responses, tools=[get_weather])

    async def run(text: str) -> Any:
        if not streamed:
            return await agents.Runner.run(agent, text, session=session)
        result = agents.Runner.run_streamed(agent, text, session=session)
        async for _ in result.stream_events():
            pass
        return result

    await run("think first")
    await run("weather in Paris")
    result = await run("and once more")
    assert result.final_output == "As I said."
    assert "think first" in told()
    assert "18 degrees in Paris" in told(name)
    items = await session.get_items()
    assert [item.get("type", "message") for item in items] == [
        "message",
        "reasoning",
        "message",
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "reasoning",
        "message",
        "message",
        "message",
    ]
    assert await session.get_items(limit=2) == items[-2:]
    assert await session.pop_item() == items[-1]
    assert len(await session.get_items()) == len(items) - 1
    await session.clear_session()


async def test_a_session_in_sqlite_remembers(model: Any, told: Any, name: str) -> None:
    session = agents.SQLiteSession("s")
    agent = agents.Agent(name="A", model=model, tools=[get_weather])
    await agents.Runner.run(agent, "weather in Paris", session=session)
    result = await agents.Runner.run(agent, "and once more", session=session)
    assert result.final_output == "As I said."
    assert "18 degrees in Paris" in told(name)
    session.close()


async def test_a_conversation_of_the_server_remembers(
    aclient: Any, responses: Any, told: Any
) -> None:
    agent = agents.Agent(name="A", model=responses, tools=[get_weather])
    conversation = await aclient.conversations.create()
    await agents.Runner.run(agent, "weather in Paris", conversation_id=conversation.id)
    result = await agents.Runner.run(agent, "and once more", conversation_id=conversation.id)
    assert result.final_output == "As I said."
    assert told().count("18 degrees in Paris") == 1


async def test_previous_responses_are_remembered(responses: Any, told: Any) -> None:
    agent = agents.Agent(name="A", model=responses, tools=[get_weather])
    first = await agents.Runner.run(agent, "weather in Paris", auto_previous_response_id=True)
    second = await agents.Runner.run(
        agent, "and once more", previous_response_id=first.last_response_id
    )
    assert second.final_output == "As I said."
    assert told().count("18 degrees in Paris") == 1


async def test_the_whole_run_is_sent_back_with_its_reasoning(
    model: Any, told: Any, name: str
) -> None:
    agent = agents.Agent(name="A", model=model, tools=[get_weather])
    first = await agents.Runner.run(agent, "weather in Paris")
    history = [*first.to_input_list(), {"role": "user", "content": "and once more"}]
    second = await agents.Runner.run(agent, history)
    assert second.final_output == "As I said."
    assert "18 degrees in Paris" in told(name)


async def test_encrypted_reasoning_goes_round_without_a_store(responses: Any, told: Any) -> None:
    settings = agents.ModelSettings(store=False, response_include=["reasoning.encrypted_content"])
    agent = agents.Agent(name="A", model=responses, model_settings=settings, tools=[get_weather])
    result = await agents.Runner.run(agent, "weather in Paris")
    assert result.final_output == "It is 18 degrees."
    assert "There is a tool for the weather." in told()


async def test_reasoning_is_seen_as_a_summary(responses: Any, told: Any) -> None:
    settings = agents.ModelSettings(reasoning={"summary": "auto"})
    agent = agents.Agent(name="A", model=responses, model_settings=settings, tools=[get_weather])
    result = await agents.Runner.run(agent, "weather in Paris")
    thoughts = [item.raw_item for item in result.new_items if item.type == "reasoning_item"]
    assert [part.text for thought in thoughts for part in thought.summary] == [
        "There is a tool for the weather.",
        "The tool has said it.",
    ]
    assert told().count("There is a tool for the weather.") == 1


async def test_guardrails_run(model: Any) -> None:
    judge = agents.Agent(name="judge", model=model, output_type=Person)

    @agents.input_guardrail
    async def nobody_named_ada(context: Any, agent: Any, text: Any) -> Any:
        found = await agents.Runner.run(judge, "a person please", context=context.context)
        return agents.GuardrailFunctionOutput(
            output_info=found.final_output, tripwire_triggered=found.final_output.name == "Ada"
        )

    agent = agents.Agent(name="A", model=model, input_guardrails=[nobody_named_ada])
    with pytest.raises(agents.InputGuardrailTripwireTriggered):
        await agents.Runner.run(agent, "hello")


async def test_an_agent_is_a_tool(model: Any) -> None:
    thinker = agents.Agent(name="thinker", model=model)
    tool = thinker.as_tool(tool_name="get_weather", tool_description="Ask the thinker.")
    agent = agents.Agent(
        name="A",
        model=model,
        tools=[tool],
        model_settings=agents.ModelSettings(tool_choice="required"),
        tool_use_behavior="stop_on_first_tool",
    )
    result = await agents.Runner.run(agent, "think about it")
    assert isinstance(result.final_output, str)


HOSTED: dict[str, Any] = {"type": "mcp", "server_label": "example", "allowed_tools": ["add"]}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_hosted_mcp_tool_is_run_by_the_gateway(responses: Any, streamed: bool) -> None:
    tool = agents.HostedMCPTool(tool_config={**HOSTED, "require_approval": "never"})
    agent = agents.Agent(name="A", model=responses, tools=[tool])
    if streamed:
        result = agents.Runner.run_streamed(agent, "please add")
        names = [
            event.name
            async for event in result.stream_events()
            if event.type == "run_item_stream_event"
        ]
        assert "mcp_list_tools" in names
    else:
        result = await agents.Runner.run(agent, "please add")
    assert result.final_output == "It is five."
    again = await agents.Runner.run(
        agent, [*result.to_input_list(), {"role": "user", "content": "and once more"}]
    )
    assert again.final_output == "As I said."


@pytest.mark.parametrize("approve", [True, False])
async def test_a_hosted_mcp_tool_is_approved(responses: Any, approve: bool) -> None:
    asked: list[Any] = []

    def decide(request: Any) -> Any:
        asked.append(request.data)
        return {"approve": True} if approve else {"approve": False, "reason": "not today"}

    tool = agents.HostedMCPTool(
        tool_config={**HOSTED, "require_approval": "always"}, on_approval_request=decide
    )
    agent = agents.Agent(name="A", model=responses, tools=[tool])
    result = await agents.Runner.run(agent, "please add")
    assert result.final_output == ("It is five." if approve else "As you wish.")
    assert [request.name for request in asked] == ["add"]


async def test_an_approval_may_wait(responses: Any) -> None:
    """The run is interrupted, kept as JSON, and goes on with the answer."""
    tool = agents.HostedMCPTool(tool_config={**HOSTED, "require_approval": "always"})
    agent = agents.Agent(name="A", model=responses, tools=[tool])
    first = await agents.Runner.run(agent, "please add")
    assert len(first.interruptions) == 1
    state = await agents.RunState.from_json(agent, first.to_state().to_json())
    for item in state.get_interruptions():
        state.approve(item)
    result = await agents.Runner.run(agent, state)
    assert result.final_output == "It is five."


async def test_cancelling_a_streamed_run_ends_the_generation(model: Any, until_idle: Any) -> None:
    agent = agents.Agent(name="A", model=model)
    result = agents.Runner.run_streamed(agent, "go slowly")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            break
    result.cancel()
    async for _ in result.stream_events():
        pass
    await asyncio.to_thread(until_idle)


async def test_a_real_model_calls_a_tool_and_answers(tiny: RunningGateway) -> None:
    @agents.function_tool(name_override="get_weather")
    def measured(city: str) -> str:
        """Get the weather of a city."""
        return '{"temperature": 18}'

    async with tiny.async_client() as client:
        for kind in (agents.OpenAIResponsesModel, agents.OpenAIChatCompletionsModel):
            agent = agents.Agent(name="A", model=kind("tiny", client), tools=[measured])
            result = await agents.Runner.run(agent, "What is the weather in Paris?")
            assert "18" in result.final_output
