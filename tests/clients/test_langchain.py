"""LangChain's ChatOpenAI, over Chat Completions and over Responses, against a running gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest

from gateway_testing.server import RunningGateway
from tests.clients.examples import Person

langchain_openai = pytest.importorskip(
    "langchain_openai", reason="langchain-openai is not installed; requirements-clients.txt has it"
)
messages = pytest.importorskip("langchain_core.messages")
langchain_tools = pytest.importorskip("langchain_core.tools")


@langchain_tools.tool
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"18 degrees in {city}"


WAYS = [
    pytest.param({"use_responses_api": False}, id="chat"),
    pytest.param({"use_responses_api": True}, id="responses"),
    pytest.param({"use_responses_api": True, "output_version": "responses/v1"}, id="responses-v1"),
    pytest.param({"use_responses_api": True, "output_version": "v1"}, id="responses-blocks"),
]


@pytest.fixture(params=WAYS)
def chat(request: pytest.FixtureRequest, gateway: RunningGateway) -> Any:
    return model(gateway, **request.param)


def model(gateway: RunningGateway, **options: Any) -> Any:
    known = {
        "model": "demo",
        "base_url": gateway.base_url,
        "api_key": "none",
        "max_retries": 0,
        "stream_usage": True,  # asked for by itself of OpenAI's own address alone
    }
    return langchain_openai.ChatOpenAI(**{**known, **options})


@pytest.fixture(params=WAYS)
async def async_chat(request: pytest.FixtureRequest, gateway: RunningGateway) -> AsyncIterator[Any]:
    """With connections of its own: the library's are shared by all event loops."""
    async with openai.DefaultAsyncHttpxClient() as client:
        yield model(gateway, http_async_client=client, **request.param)


def run_tools(called: Any) -> list[Any]:
    return [get_weather.invoke(call) for call in called.tool_calls]


def test_it_answers(chat: Any) -> None:
    answer = chat.invoke("think first")
    assert answer.text == "Done thinking."
    assert answer.usage_metadata["output_tokens"] > 0
    assert answer.usage_metadata["output_token_details"]["reasoning"] > 0


def test_a_tool_is_called_and_answered_from(chat: Any, told: Any) -> None:
    bound = chat.bind_tools([get_weather])
    history = [messages.SystemMessage("Be nice."), messages.HumanMessage("weather in Paris")]
    called = bound.invoke(history)
    assert [(call["name"], call["args"]) for call in called.tool_calls] == [
        ("get_weather", {"city": "Paris"})
    ]
    history += [called, *run_tools(called)]
    answer = bound.invoke(history)
    assert answer.text == "It is 18 degrees."
    again = bound.invoke([*history, answer, messages.HumanMessage("and once more")])
    assert again.text == "As I said."
    assert "18 degrees in Paris" in told()


def test_calls_at_once_come_with_their_text(chat: Any) -> None:
    bound = chat.bind_tools([get_weather], parallel_tool_calls=True)
    called = bound.invoke("two cities")
    assert called.text == "I look at both."
    assert [call["args"]["city"] for call in called.tool_calls] == ["Oslo", "Rome"]
    answer = bound.invoke([messages.HumanMessage("two cities"), called, *run_tools(called)])
    assert answer.text == "It is 18 degrees in both."


def test_a_stream_adds_up_to_the_answer(chat: Any) -> None:
    chunks = list(chat.stream("think first"))
    assert len(chunks) > 4
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    assert whole.text == "Done thinking."
    assert whole.usage_metadata["output_tokens"] > 0


def test_a_streamed_call_goes_round(chat: Any, told: Any) -> None:
    bound = chat.bind_tools([get_weather])
    whole = None
    for chunk in bound.stream("two cities"):
        whole = chunk if whole is None else whole + chunk
    assert [call["args"]["city"] for call in whole.tool_calls] == ["Oslo", "Rome"]
    answer = bound.invoke([messages.HumanMessage("two cities"), whole, *run_tools(whole)])
    assert answer.text == "It is 18 degrees in both."


@pytest.mark.anyio
async def test_its_events_tell_of_every_token(async_chat: Any) -> None:
    kinds = [
        event["event"] async for event in async_chat.astream_events("think first", version="v2")
    ]
    assert kinds[0] == "on_chat_model_start"
    assert kinds.count("on_chat_model_stream") > 4
    assert kinds[-1] == "on_chat_model_end"


@pytest.mark.anyio
async def test_several_at_once(async_chat: Any) -> None:
    answers = await async_chat.abatch(["think first", "and once more", "hello"])
    assert [answer.text for answer in answers] == ["Done thinking.", "As I said.", "hello"]


@pytest.mark.parametrize(
    ("method", "prompt"),
    [
        ("json_schema", "a person please"),
        ("json_mode", "a person please"),
        ("function_calling", "call Person"),
    ],
)
def test_structured_output(chat: Any, method: str, prompt: str) -> None:
    found = chat.with_structured_output(Person, method=method, include_raw=True).invoke(prompt)
    assert found["parsing_error"] is None
    assert found["parsed"] == Person(name="Ada", age=36)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_unscripted_structured_output_is_forced(chat: Any, method: str) -> None:
    assert isinstance(chat.with_structured_output(Person, method=method).invoke("anybody"), Person)


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the library's own dump
def test_structured_output_is_streamed(chat: Any) -> None:
    parts = list(
        chat.with_structured_output(Person, method="json_schema").stream("a person please")
    )
    assert parts[-1] == Person(name="Ada", age=36)


@pytest.mark.parametrize("choice", ["any", "required", "get_weather", True])
def test_a_call_is_forced(chat: Any, choice: Any) -> None:
    answer = chat.bind_tools([get_weather], tool_choice=choice).invoke("say anything")
    assert [call["name"] for call in answer.tool_calls] == ["get_weather"]


@pytest.mark.parametrize("choice", ["none", "auto", False, None])
def test_a_call_is_not_forced(chat: Any, choice: Any) -> None:
    answer = chat.bind_tools([get_weather], tool_choice=choice).invoke("say anything")
    assert answer.tool_calls == []


def test_strict_tools_are_taken(chat: Any) -> None:
    bound = chat.bind_tools([get_weather, Person], strict=True)
    assert bound.invoke("weather in Paris").tool_calls


def test_previous_responses_are_remembered(gateway: RunningGateway, told: Any) -> None:
    chat = model(gateway, use_responses_api=True, use_previous_response_id=True)
    bound = chat.bind_tools([get_weather])
    history = [messages.HumanMessage("weather in Paris")]
    called = bound.invoke(history)
    history += [called, *run_tools(called)]
    answer = bound.invoke(history)
    assert answer.text == "It is 18 degrees."
    assert answer.response_metadata["id"].startswith("resp_")
    assert told().count("weather in Paris") == 1


def test_reasoning_goes_round_without_a_store(gateway: RunningGateway, told: Any) -> None:
    chat = model(
        gateway,
        use_responses_api=True,
        output_version="responses/v1",
        store=False,
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "low", "summary": "auto"},
    )
    bound = chat.bind_tools([get_weather])
    called = bound.invoke("weather in Paris")
    answer = bound.invoke([messages.HumanMessage("weather in Paris"), called, *run_tools(called)])
    assert answer.text == "It is 18 degrees."
    assert told().count("There is a tool for the weather.") == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_reasoning_is_seen_as_a_summary(gateway: RunningGateway, streaming: bool) -> None:
    chat = model(
        gateway, use_responses_api=True, reasoning={"summary": "auto"}, streaming=streaming
    )
    blocks = chat.invoke("think first").content_blocks
    assert [block["reasoning"] for block in blocks if block["type"] == "reasoning"] == [
        "Hm.\nWell."
    ]


def test_a_hosted_mcp_tool_is_run_by_the_gateway(gateway: RunningGateway) -> None:
    chat = model(gateway, use_responses_api=True, output_version="responses/v1")
    tool = {"type": "mcp", "server_label": "example", "require_approval": "never"}
    bound = chat.bind_tools([tool])
    answer = bound.invoke("please add")
    assert answer.text == "It is five."
    again = bound.invoke(
        [
            messages.HumanMessage("please add"),
            answer,
            messages.HumanMessage("and once more"),
        ]
    )
    assert again.text == "As I said."


@pytest.mark.parametrize("responses", [False, True])
def test_models_with_names_of_openais_are_served(gateway: RunningGateway, responses: bool) -> None:
    """The library renames parameters by the model's name: `max_completion_tokens`, `reasoning_effort`, no temperature."""
    chat = model(
        gateway,
        model="gpt-5",
        use_responses_api=responses,
        reasoning_effort="low",
        verbosity="low",
        max_tokens=60,
        temperature=1,
        metadata={"run": "1"},
        service_tier="default",
        model_kwargs={"user": "somebody"},
    )
    assert chat.invoke("think first").text == "Done thinking."


def test_log_probabilities_are_read(gateway: RunningGateway) -> None:
    answer = model(gateway, logprobs=True, top_logprobs=2).invoke("hello")
    assert answer.response_metadata["logprobs"]["content"]


def test_several_choices(gateway: RunningGateway) -> None:
    result = model(gateway, n=2).generate([[messages.HumanMessage("think first")]])
    assert [generation.text for generation in result.generations[0]] == ["Done thinking."] * 2


def test_completions_are_served(gateway: RunningGateway) -> None:
    llm = langchain_openai.OpenAI(
        model="demo", base_url=gateway.base_url, api_key="none", max_retries=0, max_tokens=20
    )
    assert llm.invoke("and once more") == "As I said."
    assert "".join(llm.stream("and once more")) == "As I said."


def test_an_image_is_refused_by_a_text_model(chat: Any) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}}
    with pytest.raises(openai.BadRequestError, match="image"):
        chat.invoke([messages.HumanMessage([{"type": "text", "text": "what is it?"}, image])])
