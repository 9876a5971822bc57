"""Whatever the gateway answers is accepted when a client sends it back: in each API, by default and in strict mode."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response

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
from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.engine_prompts import prompts

PNG = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)
OPERATION = {"type": "create_file", "path": "a.py", "diff": "+x\n"}
CALLS: dict[str, dict[str, Any]] = {
    "function": {"call": {"name": "weather", "arguments": {"city": "Oslo"}}},
    "namespaced": {"call": {"name": "lights__set", "arguments": {}}},
    "custom": {"custom_call": {"name": "note", "input": 'line 1\n"2"'}},
    "shell": {"call": {"name": "shell", "arguments": {"commands": ["ls"], "timeout_ms": 9}}},
    "local shell": {"call": {"name": "local_shell", "arguments": {"command": ["ls"]}}},
    "patch": {"call": {"name": "apply_patch", "arguments": OPERATION}},
    "search for tools": {"call": {"name": "tool_search", "arguments": {"query": "x"}}},
    "broken": {"call": {"name": "shell", "arguments": '{"commands": ["rm'}},
    "unknown": {"call": {"name": "nobody", "arguments": {}}},
    "looked up": {"call": {"name": "look", "arguments": {}}},
    "approved": {"call": {"name": "ask", "arguments": {}}},
}
CITED = "It is iron【0†L1】, tall 【0†L9】; see 【1:0†hand.pdf】 and sandbox:/mnt/data/a%20b.png"
RULES: list[dict[str, Any]] = [
    *({"when": f"do {name}!", "pieces": [{"reasoning": "I see."}, {"text": "So."}, call]} for name, call in CALLS.items()),
    {"when": "do all!", "pieces": [{"text": "All."}, *(call for name, call in CALLS.items() if name not in ("looked up", "approved"))]},
    {"when": "do cut!", "finish": "length", "pieces": [{"reasoning": "I see."}, {"text": "It is long"}]},
    {"when": "do cut call!", "finish": "length", "pieces": [{"raw": '<tool_call>\n{"name": "weather", "arguments": {"ci'}]},
    {"when": "do filter!", "finish": "content_filter", "pieces": [{"text": "I must not"}]},
    {"when": "do nothing!", "pieces": []},
    {"when": "do think!", "pieces": [{"reasoning": "Only this."}]},
    {"when": "do say!", "pieces": [{"reasoning": "Hm."}, {"text": "Well."}]},
    {"when": "found it", "pieces": [{"reasoning": "Fine."}, {"text": CITED}]},
    {"when": "and now?", "pieces": [{"text": "Now it is done."}]},
    {"when": "Write nothing but the summary", "pieces": [{"text": "The summary."}]},
]  # fmt: skip
QUICK = {"all", "cut call", "looked up", "approved"}
SAID = ["cut", "cut call", "filter", "nothing", "think", "say", "all", *CALLS]
FUNCTION = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "weather", "parameters": FUNCTION},
    {"type": "namespace", "name": "lights", "description": "Lights.",
     "tools": [{"type": "function", "name": "set", "parameters": {"type": "object", "properties": {}}}]},
    {"type": "custom", "name": "note"},
    {"type": "shell", "environment": {"type": "local"}},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client", "description": "Finds tools."},
]  # fmt: skip
RESULTS: dict[str, dict[str, Any]] = {
    "function_call": {"type": "function_call_output", "output": "18 degrees"},
    "custom_tool_call": {"type": "custom_tool_call_output", "output": "18 degrees"},
    "shell_call": {"type": "shell_call_output", "output": [
        {"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed", "output": "x"},
    "local_shell_call": {"type": "local_shell_call_output", "output": "x"},
    "tool_search_call": {"type": "tool_search_output", "execution": "client", "status": "completed", "tools": []},
}  # fmt: skip


class Library(ToolServer):
    label = "library"

    async def tools(self) -> Sequence[ServerTool]:
        return [
            ServerTool(definition=ToolDefinition(name="look")),
            ServerTool(definition=ToolDefinition(name="ask"), needs_approval=True),
        ]

    async def call(self, call: ToolCall) -> ToolResult:
        drawn = ContainerFileSource(
            path="/mnt/data/a b.png", container_id="cntr_1", file_id="cfile_1"
        )
        return ToolResult(
            text="found it",
            sources=[Source(cursor=0, url="https://tower.example/a", title="T", lines=(0, 9))],
            files=[FileSource(mark="1:0", file_id="file_1", filename="hand.pdf")],
            container_files=[drawn],
        )


class LibraryPlugin:
    @asynccontextmanager
    async def open(self, config: Any) -> AsyncIterator[Library]:
        yield Library()

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("library", self.open)


@pytest.fixture(scope="module", params=["lenient", "strict"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    scripted = {"rules": RULES, "media": ["image"]}
    config = {
        "server": {"compatibility": request.param},
        "tools": {"library": {}},
        "models": {
            "m": {"engine": "scripted", "scripted": scripted},
            "blind": {"engine": "scripted", "scripted": {"rules": RULES}},
        },
    }
    folder = tmp_path_factory.mktemp(request.param)
    with run_gateway(config, folder, plugins=[LibraryPlugin()]) as running:
        yield running


@pytest.fixture
def post(gateway: RunningGateway) -> Iterator[Callable[..., httpx.Response]]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as http:

        def ask(path: str, body: dict[str, Any], **headers: str) -> httpx.Response:
            answer = http.post(path, json=body, headers=headers)
            assert answer.status_code == 200, (answer.text, body)
            return answer

        yield ask


def results(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a client answers to the calls among the items."""
    made: list[dict[str, Any]] = []
    for item in output:
        if item["type"] == "mcp_approval_request":
            made.append({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": True})  # fmt: skip
        elif (result := RESULTS.get(item["type"])) is not None:
            name = "id" if item["type"] == "local_shell_call" else "call_id"
            made.append({**result, name: item["call_id"]})
    return made


@pytest.mark.parametrize(
    ("name", "store", "stream"),
    [
        pytest.param(name, store, stream, marks=() if stream == store and name in QUICK else pytest.mark.slow)
        for name in SAID
        for store in (False, True)
        for stream in (False, True)
    ],
)  # fmt: skip
def test_items_of_responses(post: Any, name: str, store: bool, stream: bool) -> None:
    body: dict[str, Any] = {
        "model": "m",
        "tools": TOOLS,
        "store": store,
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
    }
    asked = {"role": "user", "content": f"do {name}!"}
    answer = post("/responses", {**body, "input": [asked], "stream": stream})
    response = fold(parse_sse(answer.content)) if stream else answer.json()
    output = response["output"]
    parsed = Response.model_validate(response).output
    go_on = {"role": "user", "content": "and now?"}
    for echoed in (
        output,
        [item.model_dump(mode="json", by_alias=True) for item in parsed],
        [item.to_dict(mode="json") for item in parsed],
        [{key: value for key, value in item.items() if key != "id"} for item in output],
    ):
        again = [asked, *echoed, *results(output), go_on]
        post("/responses", {**body, "input": again})
    again = [asked, *output, *results(output), go_on]
    post("/responses/input_tokens", {"model": "m", "tools": TOOLS, "input": again})
    post("/conversations", {"items": again[:20]})
    compacted = post(
        "/responses/compact", {"model": "m", "input": [asked, *output, *results(output)]}
    )
    post("/responses", {**body, "input": [*compacted.json()["output"], go_on]})
    if store:
        chained = {**body, "previous_response_id": response["id"]}
        made = post("/responses", {**chained, "input": [*results(output), go_on]}).json()
        assert made["output"][-1]["content"][0]["text"] == "Now it is done."


def test_listed_items(post: Any, gateway: RunningGateway) -> None:
    """Of a response, and of a conversation."""
    image = {"type": "input_image", "image_url": PNG, "detail": "auto"}
    sent = [
        {"role": "developer", "content": "Be nice."},
        {"role": "user", "content": [{"type": "input_text", "text": "do all!"}, image]},
    ]
    body = {"model": "m", "tools": TOOLS, "input": sent}
    response = post("/responses", body).json()
    conversation = post("/conversations", {"items": sent}).json()["id"]
    post("/conversations/" + conversation + "/items", {"items": results(response["output"]) and response["output"]})  # fmt: skip
    for path in (f"responses/{response['id']}/input_items", f"conversations/{conversation}/items"):
        query = {"order": "asc", "include[]": "message.input_image.image_url"}
        listed = httpx.get(f"{gateway.base_url}/{path}", params=query).json()["data"]
        calls = results(listed)
        post("/responses", {"model": "m", "tools": TOOLS, "input": [*listed, *calls]})
        post("/conversations", {"items": listed})


CHAT_TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "parameters": FUNCTION}},
    {"type": "custom", "custom": {"name": "note"}},
]
CHAT_SAID = [
    "cut",
    "cut call",
    "filter",
    "nothing",
    "think",
    "say",
    "function",
    "custom",
    "looked up",
]


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        pytest.param(name, stream, marks=() if stream == number % 2 else pytest.mark.slow)
        for number, name in enumerate(CHAT_SAID)
        for stream in (False, True)
    ],
)
def test_messages_of_chats(post: Any, name: str, stream: bool) -> None:
    asked = {"role": "user", "content": f"do {name}!"}
    body: dict[str, Any] = {"model": "m", "messages": [asked], "stream": stream, "logprobs": True}
    if name != "looked up":
        body["tools"] = CHAT_TOOLS
    answer = post("/chat/completions", body)
    completion = fold_chunks(parse_chunks(answer.content)) if stream else answer.json()
    message = completion["choices"][0]["message"]
    parsed = ChatCompletionMessage.model_validate(message)
    calls = message.get("tool_calls") or ()
    made = [{"role": "tool", "tool_call_id": call["id"], "content": "18 degrees"} for call in calls]
    for echoed in (message, parsed.model_dump(), parsed.to_dict(), parsed.model_dump(exclude_none=True)):  # fmt: skip
        more = [asked, echoed, *made, {"role": "user", "content": "and now?"}]
        got = post("/chat/completions", {**body, "stream": False, "messages": more}).json()
        assert got["choices"][0]["message"]["content"] == "Now it is done."


def test_messages_of_legacy_functions(post: Any) -> None:
    asked = {"role": "user", "content": "do function!"}
    body = {"model": "m", "functions": [{"name": "weather", "parameters": FUNCTION}]}
    message = post("/chat/completions", {**body, "messages": [asked]}).json()["choices"][0]["message"]  # fmt: skip
    made = {"role": "function", "name": message["function_call"]["name"], "content": "18"}
    post("/chat/completions", {**body, "messages": [asked, message, made]})


@pytest.mark.parametrize(
    ("name", "display", "stream"),
    [
        pytest.param(name, display, stream, marks=() if stream == (display == "omitted") else pytest.mark.slow)
        for name in ("cut", "nothing", "think", "say", "function", "looked up")
        for display in ("summarized", "omitted")
        for stream in (False, True)
    ],
)  # fmt: skip
def test_blocks_of_messages(post: Any, name: str, display: str, stream: bool) -> None:
    asked = {"role": "user", "content": f"do {name}!"}
    tools = [{"name": "weather", "input_schema": FUNCTION}]
    body: dict[str, Any] = {"model": "m", "max_tokens": 500, "thinking": {"type": "adaptive", "display": display}}  # fmt: skip
    if name != "looked up":
        body["tools"] = tools
    answer = post("/messages", {**body, "messages": [asked], "stream": stream})
    blocks = _folded(answer.text) if stream else answer.json()["content"]
    made = [
        {"type": "tool_result", "tool_use_id": block["id"], "content": "18"}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    said = {"role": "assistant", "content": blocks}
    go_on = {"role": "user", "content": [*made, {"type": "text", "text": "and now?"}]}
    again = post("/messages", {**body, "messages": [asked, said, go_on]}).json()
    assert again["content"][-1]["text"] == "Now it is done."
    post("/messages/count_tokens", {**body, "messages": [asked, said, go_on]})


def _folded(stream: str) -> list[dict[str, Any]]:
    """The blocks of a message, as Anthropic's SDK puts them together."""
    blocks: list[dict[str, Any]] = []
    written = ""
    for line in stream.splitlines():
        match json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else None:
            case {"type": "content_block_start", "content_block": block}:
                blocks.append(dict(block))
                written = ""
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta"} as delta}:
                written += delta["partial_json"]
            case {"type": "content_block_delta", "delta": {"type": "citations_delta"} as delta}:
                blocks[-1]["citations"] = [*(blocks[-1].get("citations") or ()), delta["citation"]]
            case {"type": "content_block_delta", "delta": delta}:
                for name in delta.keys() - {"type"}:
                    blocks[-1][name] = (blocks[-1].get(name) or "") + delta[name]
            case {"type": "content_block_stop"} if written:
                blocks[-1]["input"] = json.loads(written)
    return blocks


@pytest.mark.parametrize("name", ["say", "cut", "nothing"])
def test_texts_of_completions(post: Any, name: str) -> None:
    made = post("/completions", {"model": "m", "prompt": f"do {name}!", "logprobs": 2}).json()
    post("/completions", {"model": "m", "prompt": f"do {name}!" + made["choices"][0]["text"]})


@pytest.mark.parametrize("calls", [False, True])
@pytest.mark.parametrize("model", ["m", "blind"])
def test_images_that_another_server_s_model_made(
    gateway: RunningGateway, model: str, calls: bool
) -> None:
    """A model that sees is shown them; each other one reads that there were some. Strict mode refuses what OpenAI does not have."""
    elsewhere = "https://images.example/a.png"
    images = [
        {"type": "image_url", "image_url": {"url": PNG}, "index": 0},
        {"image_url": {"url": elsewhere, "detail": "high"}},
    ]
    made: dict[str, Any] = {"role": "assistant", "content": "Here.", "images": images}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "a cat"}, made]
    if calls:
        call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
        made |= {"content": None, "tool_calls": [call]}
        messages.append({"role": "tool", "tool_call_id": "c1", "content": "18 degrees"})
    messages.append({"role": "user", "content": "and now?"})
    body = {"model": model, "messages": messages, "tools": CHAT_TOOLS}
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=body)
    if gateway.services.config.server.compatibility == "strict":
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "messages[1].images"
        return
    assert answer.status_code == 200, answer.text
    prompt = prompts(gateway, model)[-1]
    assert elsewhere in prompt
    assert prompt.count("18 degrees") == calls
    engine: Any = gateway.services.models[model].engine
    assert len(engine.requests[-1].prompt.media) == (model == "m")
    broken = json.loads(json.dumps(body).replace(PNG, "data:image/png;base64,AAAA"))
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=broken)
    if model == "m":
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "messages[1].images[0].image_url.url"
    else:
        assert answer.status_code == 200


def test_audio_of_another_server_is_read_by_its_transcript(gateway: RunningGateway) -> None:
    audio = {"id": "audio_1", "data": "", "expires_at": 1, "transcript": "spoken words"}
    for sent, read in ((audio, "spoken words"), ({"id": "audio_1"}, None)):
        said = {"role": "assistant", "content": None, "audio": sent}
        messages = [{"role": "user", "content": "x"}, said, {"role": "user", "content": "and now?"}]
        answer = httpx.post(
            f"{gateway.base_url}/chat/completions", json={"model": "m", "messages": messages}
        )
        if read is None:
            assert answer.json()["error"]["param"] == "messages[1].audio"
        else:
            assert answer.status_code == 200, answer.text
            assert read in prompts(gateway, "m")[-1]
