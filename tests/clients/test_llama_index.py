"""LlamaIndex, with its models for Responses and for Chat Completions, against a running gateway."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_testing.server import RunningGateway
from tests.clients.examples import Person

like = pytest.importorskip(
    "llama_index.llms.openai_like", reason="llama-index-llms-openai-like is not installed"
)
core = pytest.importorskip("llama_index.core.llms")
tools = pytest.importorskip("llama_index.core.tools")
prompts = pytest.importorskip("llama_index.core.prompts")
agents = pytest.importorskip("llama_index.core.agent.workflow")


def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"18 degrees in {city}"


WEATHER = tools.FunctionTool.from_defaults(get_weather)


@pytest.fixture(params=["chat", "responses"])
def llm(request: pytest.FixtureRequest, gateway: RunningGateway) -> Any:
    known: dict[str, Any] = {
        "model": "demo",
        "api_base": gateway.base_url,
        "api_key": "none",
        "context_window": 32_000,
        "is_function_calling_model": True,
        "max_retries": 0,
    }
    if request.param == "responses":
        return like.OpenAILikeResponses(**known)
    return like.OpenAILike(is_chat_model=True, **known)


def test_reasoning_is_a_block_of_its_own(llm: Any) -> None:
    asked = [core.ChatMessage(role="user", content="think first")]
    message = llm.chat(asked).message
    assert [block.block_type for block in message.blocks] == ["thinking", "text"]
    assert message.blocks[0].content == "Hm.\nWell."
    assert "".join(chunk.delta or "" for chunk in llm.stream_chat(asked)) == "Done thinking."


# Its workflows look at every attribute of a pydantic model, the deprecated ones too.
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince20")
@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecatedSince211")
@pytest.mark.anyio
async def test_an_agent_calls_its_tools(llm: Any) -> None:
    agent = agents.FunctionAgent(tools=[WEATHER], llm=llm)
    assert str(await agent.run("two cities")) == "It is 18 degrees in both."


def test_structured_output(llm: Any) -> None:
    """The chat model calls a function that is named as the type, the other one asks for JSON of its schema."""
    prompt = "call Person" if isinstance(llm, like.OpenAILike) else "a person please"
    made = llm.structured_predict(Person, prompts.PromptTemplate(prompt))
    assert made == Person(name="Ada", age=36)


@pytest.mark.parametrize("streamed", [False, True])
def test_completions(gateway: RunningGateway, streamed: bool) -> None:
    llm = like.OpenAILike(
        model="demo", api_base=gateway.base_url, api_key="none", context_window=32_000
    )
    if streamed:
        text = "".join(chunk.delta or "" for chunk in llm.stream_complete("and once more"))
    else:
        text = llm.complete("and once more").text
    assert text == "As I said."
