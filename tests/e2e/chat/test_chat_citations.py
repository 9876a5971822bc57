"""What a chat completion shows of what its tools have found, and how it counts their turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway import hookimpl
from gateway.plugins.protocols import (
    ContainerFileSource,
    FileSource,
    ServerTool,
    Source,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
)
from gateway_testing.server import RunningGateway, run_gateway

ANSWER = "Ümlaut first: it is iron【0†L1-L2】【7†L1】, and tall 【0†L9】. See the handbook 【1:0†hand.pdf】."
LINKED = "Made [it](sandbox:/mnt/data/a%20b.png), not [that](sandbox:/mnt/data/c.png) 【1:0】 sandbox:/mnt/data/a b.png"
CLEAN = (
    "Ümlaut first: it is iron ([tower.example](https://tower.example/a))【7†L1】, and tall "
    "([tower.example](https://tower.example/b)). See the handbook."
)
RULES = [
    {"when": "the tower", "pieces": [
        {"text": "I look."}, {"call": {"name": "look", "arguments": {}}}]},
    {"when": "found it", "pieces": [{"reasoning": "Fine."}, {"text": ANSWER}]},
    {"when": "make it", "pieces": [
        {"text": "sandbox:"}, {"call": {"name": "draw", "arguments": {}}}]},
    {"when": "drew it", "pieces": [{"text": LINKED}]},
    {"when": "hello", "pieces": [{"text": "No tool was needed 【0†L1】."}]},
]  # fmt: skip


class Library(ToolServer):
    label = "library"

    async def tools(self) -> Sequence[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name=name)) for name in ("look", "draw")]

    async def call(self, call: ToolCall) -> ToolResult:
        if call.name == "draw":
            drawn = ContainerFileSource(
                path="/mnt/data/a b.png", container_id="cntr_1", file_id="cfile_1"
            )
            return ToolResult(
                text="drew it",
                container_files=[drawn],
                files=[FileSource(mark="1:0", file_id="../x?y", filename="")],
            )
        return ToolResult(
            text="found it",
            sources=[
                Source(cursor=0, url="https://tower.example/a", title="Tower", lines=(0, 4)),
                Source(cursor=0, url="https://tower.example/b", title="Height", lines=(5, 9)),
            ],
            files=[FileSource(mark="1:0", file_id="file_1", filename="hand.pdf")],
        )


class LibraryPlugin:
    @asynccontextmanager
    async def open(self, config: Any) -> AsyncIterator[Library]:
        yield Library()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("library", self.open)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {"chat_tools": ["library"]},
        "tools": {"library": {}},
        "models": {
            f"cut{size}": {
                "engine": "scripted",
                "scripted": {"rules": [{**rule, "chunk": size} for rule in RULES]},
            }
            for size in (1, 3, 1000)
        },
    }
    with run_gateway(config, tmp_path_factory.mktemp("cited"), plugins=[LibraryPlugin()]) as made:
        yield made


@pytest.fixture
def sdk(gateway: RunningGateway) -> Iterator[OpenAI]:
    with gateway.client() as client:
        yield client


def asked(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def test_marks_are_links_and_annotations_cover_them(sdk: OpenAI) -> None:
    message = sdk.chat.completions.create(model="cut1", messages=asked("the tower")).choices[0]
    text = message.message.content
    assert text == f"I look.\n\n{CLEAN}"
    found = message.message.annotations
    assert found is not None
    cited = [each.url_citation for each in found]
    assert [(each.url, each.title) for each in cited] == [
        ("https://tower.example/a", "Tower"),
        ("https://tower.example/b", "Height"),
        ("/v1/files/file_1/content", "hand.pdf"),
    ]
    assert [text[each.start_index : each.end_index] for each in cited] == [
        "([tower.example](https://tower.example/a))",
        "([tower.example](https://tower.example/b))",
        "",
    ]
    assert text[: cited[-1].start_index].endswith("See the handbook")


@pytest.mark.parametrize("model", ["cut1", "cut3", "cut1000"])
@pytest.mark.parametrize("stream", [False, True])
def test_files_of_containers_are_cited_by_the_path_of_their_content(
    sdk: OpenAI, model: str, stream: bool
) -> None:
    create: Any = sdk.chat.completions
    if stream:
        with create.stream(model=model, messages=asked("make it")) as events:
            message = events.get_final_completion().choices[0].message
    else:
        message = create.create(model=model, messages=asked("make it")).choices[0].message
    assert message.content == f"sandbox:\n\n{LINKED.replace(' 【1:0】', '')}"
    cited = [each.url_citation for each in message.annotations]
    path = "/v1/containers/cntr_1/files/cfile_1/content"
    assert [
        (each.url, each.title, message.content[each.start_index : each.end_index]) for each in cited
    ] == [
        (path, "a b.png", "sandbox:/mnt/data/a%20b.png"),
        ("/v1/files/..%2Fx%3Fy/content", "", ""),
        (path, "a b.png", "sandbox:/mnt/data/a b.png"),
    ]


@pytest.mark.parametrize("text", ["the tower", "make it"])
@pytest.mark.parametrize("model", ["cut1", "cut3", "cut1000"])
def test_a_stream_adds_up_to_the_plain_answer(sdk: OpenAI, model: str, text: str) -> None:
    plain = sdk.chat.completions.create(model=model, messages=asked(text)).choices[0]
    with sdk.chat.completions.stream(model=model, messages=asked(text)) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.message.content == plain.message.content
    assert plain.message.annotations
    told = [each.to_dict() for each in final.message.annotations or ()]
    assert told == [each.to_dict() for each in plain.message.annotations]


def test_the_responses_api_cites_the_same(sdk: OpenAI) -> None:
    chat = sdk.chat.completions.create(model="cut3", messages=asked("the tower")).choices[0]
    response = sdk.responses.create(model="cut3", input="the tower")
    parts = [
        part
        for item in response.output
        if item.type == "message"
        for part in item.content
        if part.type == "output_text"
    ]
    assert chat.message.content == "\n\n".join(part.text for part in parts)
    offset = len(f"{parts[0].text}\n\n")
    pages = [each for each in parts[1].annotations if each.type == "url_citation"]
    shown = [each.url_citation for each in chat.message.annotations or ()]
    assert [each.to_dict() for each in shown if each.url.startswith("https:")] == [
        {
            "url": each.url,
            "title": each.title,
            "start_index": each.start_index + offset,
            "end_index": each.end_index + offset,
        }
        for each in pages
    ]


def test_an_annotated_message_can_be_sent_back(sdk: OpenAI) -> None:
    first = sdk.chat.completions.create(model="cut3", messages=asked("the tower")).choices[0]
    history = [*asked("the tower"), first.message.to_dict(), *asked("hello")]
    again = sdk.chat.completions.create(model="cut3", messages=history).choices[0]
    assert again.message.content == "No tool was needed 【0†L1】."


def test_an_answer_without_a_tool_call_keeps_marks_that_nobody_has_taught(sdk: OpenAI) -> None:
    message = sdk.chat.completions.create(model="cut1", messages=asked("hello")).choices[0].message
    assert message.content == "No tool was needed 【0†L1】."
    assert message.annotations == []


def test_log_probabilities_cover_every_token_of_a_cited_text(gateway: RunningGateway) -> None:
    body = {"model": "cut3", "messages": asked("the tower"), "logprobs": True}
    url = f"{gateway.base_url}/chat/completions"
    choice = httpx.post(url, json=body, timeout=30).json()["choices"][0]
    spelt = b"".join(bytes(each["bytes"]) for each in choice["logprobs"]["content"])
    assert spelt.decode() == f"I look.{ANSWER}"


def test_usage_on_the_way_adds_up_over_the_turns(gateway: RunningGateway) -> None:
    body = {
        "model": "cut1",
        "messages": asked("the tower"),
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    url = f"{gateway.base_url}/chat/completions"
    text = httpx.post(url, json=body, timeout=30).text
    lines = [line.removeprefix("data: ") for line in text.split("\n\n")[:-1]]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    usages = [chunk["usage"] for chunk in chunks]
    for field in ("prompt_tokens", "completion_tokens", "total_tokens"):
        told = [usage[field] for usage in usages]
        assert told == sorted(told), field
        assert told[-1] == told[-2], f"the last chunk of the choice has the whole {field}"
    assert usages[0]["prompt_tokens"] < usages[-1]["prompt_tokens"], "two prompts were read"
    body["stream"] = False
    del body["stream_options"]
    plain = httpx.post(url, json=body, timeout=30).json()["usage"]
    assert plain == usages[-1]
