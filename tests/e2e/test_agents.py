"""What agents send: messages between them, tools in namespaces, sessions that change the model, and how models name tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import msgspec
import pytest
from websockets.sync.client import connect

from gateway.tools.called_names import called_names
from gateway.tools.client_functions import client_functions
from gateway.wire.tools import NamespaceTool
from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway, run_gateway

FAMILIES = ("qwen3", "harmony", "mistral", "kimi_k2", "deepseek_v3", "qwen3_coder", "llama3_json")
NAMES = {
    "lights.set": ("lights", "set"),
    "lights/set": ("lights", "set"),
    "lights__set": ("lights", "set"),
    "functions.lights.set": ("lights", "set"),
    "functions.lights__set": ("lights", "set"),
    "get": ("lights", "get"),
    "functions.get": ("lights", "get"),
    "functions.plain": (None, "plain"),
    "plain": (None, "plain"),
    "mcp.home.open": ("mcp__home__", "open"),
    "mcp__home__open": ("mcp__home__", "open"),
    "doors.set": ("doors", "set"),
}


def function(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"on": {"type": "boolean"}, **properties}}
    return {"type": "function", "name": name, "parameters": schema, "strict": False}


TOOLS: list[dict[str, Any]] = [
    {
        "type": "namespace",
        "name": "lights",
        "description": "Lights.",
        "tools": [function("set"), function("get")],
    },
    {"type": "namespace", "name": "doors", "description": "Doors.", "tools": [function("set")]},
    {
        "type": "namespace",
        "name": "mcp__home__",
        "description": "Home.",
        "tools": [function("open")],
    },
    {
        "type": "namespace",
        "name": "collaboration",
        "description": "Agents.",
        "tools": [function("spawn_agent", message={"type": "string", "encrypted": True})],
    },
    function("plain"),
]
RULES: list[dict[str, Any]] = [
    *(
        {"when": f"use <{name}>", "pieces": [{"call": {"name": name, "arguments": {"on": True}}}]}
        for name in NAMES
    ),
    {
        "when": "delegate it",
        "pieces": [
            {"call": {"name": "collaboration.spawn_agent", "arguments": {"message": "count"}}}
        ],
    },
    {"when": "think of foxes", "pieces": [{"reasoning": "A fox."}, {"text": "Foxes."}]},
    {"when": "replaced by a summary", "pieces": [{"text": "They spoke of foxes."}]},
]
AGENT_MESSAGE: dict[str, Any] = {
    "type": "agent_message",
    "id": "amsg_1",
    "author": "/root",
    "recipient": "/root/kid",
    "content": [
        {"type": "input_text", "text": "Message Type: NEW_TASK\nPayload:\n"},
        {"type": "encrypted_content", "encrypted_content": "count the blue boats"},
    ],
}
ENCRYPTED_ONLY = {
    **AGENT_MESSAGE,
    "id": "amsg_2",
    "content": [{"type": "encrypted_content", "encrypted_content": "count the blue boats"}],
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models: dict[str, Any] = {
        name: {
            "engine": "scripted",
            "parser": name,
            **({"renderer": name} if name == "harmony" else {}),
            "scripted": {"rules": RULES},
        }
        for name in FAMILIES
    }
    models["seeing"] = {"engine": "scripted", "scripted": {"media": ["image"]}}
    with run_gateway({"models": models}, tmp_path_factory.mktemp("agents")) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=30) as client:
        yield client


def posted(http: httpx.Client, path: str, **body: Any) -> Any:
    answer = http.post(path, json={"model": "qwen3", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(gateway: RunningGateway, model: str = "qwen3") -> str:
    """The latest prompt of a model."""
    engine: Any = gateway.services.models[model].engine
    text: str = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    return text


def pictures(gateway: RunningGateway) -> int:
    """The number of images in the latest prompt of the model that sees."""
    engine: Any = gateway.services.models["seeing"].engine
    return len(engine.requests[-1].prompt.media)


# Messages between agents.


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("item", [AGENT_MESSAGE, ENCRYPTED_ONLY], ids=["mixed", "encrypted"])
def test_a_model_reads_who_wrote_a_message_to_whom_and_its_task(
    http: httpx.Client, gateway: RunningGateway, model: str, item: dict[str, Any]
) -> None:
    for before in ([], [{"role": "user", "content": "hi"}]):
        made = posted(http, "/responses", model=model, input=[*before, item])
        prompt = told(gateway, model)
        for said in ("/root", "/root/kid", "count the blue boats"):
            assert said in prompt
        listed = http.get(f"/responses/{made['id']}/input_items").json()["data"]
        assert listed[0] == item, "it is listed as it was sent"
        posted(http, "/responses", model=model, previous_response_id=made["id"], input="go on")
        assert "count the blue boats" in told(gateway, model)


def test_a_message_between_agents_is_read_wherever_items_are(
    http: httpx.Client, gateway: RunningGateway
) -> None:
    sent = {"input": [AGENT_MESSAGE]}
    assert posted(http, "/responses/input_tokens", **sent)["input_tokens"] > 20
    compacted = posted(http, "/responses/compact", **sent)["output"]
    assert [item["type"] for item in compacted] == ["agent_message", "compaction"]
    assert compacted[0] == AGENT_MESSAGE
    posted(http, "/responses", input=compacted)
    conversation = posted(http, "/conversations", items=[AGENT_MESSAGE], model=None)["id"]
    assert http.get(f"/conversations/{conversation}/items").json()["data"] == [AGENT_MESSAGE]
    posted(http, "/responses", conversation=conversation, input="go on")
    assert "count the blue boats" in told(gateway)
    stream = http.post("/responses", json={"model": "qwen3", "stream": True, **sent})
    assert fold(parse_sse(stream.content))["status"] == "completed"
    with connect(gateway.base_url.replace("http", "ws") + "/responses") as socket:
        socket.send(json.dumps({"type": "response.create", "model": "qwen3", **sent}))
        assert last_of(socket)["type"] == "response.completed"


def test_a_message_between_agents_may_have_an_image(
    http: httpx.Client, gateway: RunningGateway, png: str
) -> None:
    image = {"type": "input_image", "image_url": png, "detail": "auto"}
    for content in ([image], [*AGENT_MESSAGE["content"], image]):
        posted(http, "/responses", model="seeing", input=[{**AGENT_MESSAGE, "content": content}])
        assert "/root/kid" in told(gateway, "seeing")
        assert pictures(gateway) == 1


def test_what_another_server_encrypted_is_said_to_be_unreadable(
    http: httpx.Client, gateway: RunningGateway
) -> None:
    foreign = {"type": "encrypted_content", "encrypted_content": "gAAAAAB" + "x" * 100 + "=="}
    posted(http, "/responses", input=[{**AGENT_MESSAGE, "content": [foreign]}])
    assert "x" * 100 not in told(gateway)
    assert "another server encrypted" in told(gateway)


@pytest.mark.parametrize("model", ["qwen3", "harmony"])
def test_calls_of_hosted_agents_in_a_history_are_read_as_calls(
    http: httpx.Client, gateway: RunningGateway, model: str
) -> None:
    call = {"type": "multi_agent_call", "id": "mac_1", "action": "spawn_agent", "arguments": '{"message":"dig"}', "call_id": "c1"}  # fmt: skip
    output = {"type": "multi_agent_call_output", "id": "maco_1", "action": "spawn_agent", "call_id": "c1", "output": [{"type": "output_text", "text": "dug", "annotations": [], "logprobs": []}]}  # fmt: skip
    made = posted(http, "/responses", model=model, input=[call, output])
    prompt = told(gateway, model)
    assert "spawn_agent" in prompt
    assert "dug" in prompt
    assert http.get(f"/responses/{made['id']}/input_items?order=asc").json()["data"] == [
        call,
        output,
    ]
    answer = http.post("/responses", json={"model": model, "input": [output]})
    assert answer.json()["error"]["param"] == "input[0].call_id"


@pytest.mark.parametrize("model", ["qwen3", "harmony"])
def test_an_encrypted_part_of_an_output_is_read(
    http: httpx.Client, gateway: RunningGateway, model: str
) -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "plain", "arguments": "{}"}
    part = {"type": "encrypted_content", "encrypted_content": "the boats are blue"}
    posted(
        http,
        "/responses",
        model=model,
        input=[call, {"type": "function_call_output", "call_id": "c1", "output": [part]}],
    )
    assert "the boats are blue" in told(gateway, model)


@pytest.mark.parametrize("model", ["qwen3", "harmony"])
@pytest.mark.parametrize("call", [{}, {"call_id": None}], ids=["absent", "null"])
def test_a_result_that_no_call_asked_for_is_read_with_the_name_of_its_tool(
    http: httpx.Client, gateway: RunningGateway, model: str, call: dict[str, Any]
) -> None:
    result = {"type": "function_call_output", **call, "namespace": "mail", "name": "arrived", "output": "one letter"}  # fmt: skip
    made = posted(http, "/responses", model=model, input=[{"role": "user", "content": "a"}, result])
    assert "mail__arrived" in told(gateway, model)
    assert "one letter" in told(gateway, model)
    (listed, _) = http.get(f"/responses/{made['id']}/input_items").json()["data"]
    assert listed["call_id"] is None
    assert listed["name"] == "arrived"


def test_a_result_has_a_call_or_a_name(http: httpx.Client) -> None:
    for missing in ({}, {"call_id": None}, {"name": ""}):
        sent = [{"type": "function_call_output", "output": "x", **missing}]
        error = http.post("/responses", json={"model": "qwen3", "input": sent}).json()["error"]
        assert error["param"] == "input[0].call_id"
        assert error["code"] == "missing_required_parameter"


# Names and ids of calls.


@pytest.mark.parametrize("model", FAMILIES)
@pytest.mark.parametrize("name", NAMES)
def test_a_tool_is_found_by_the_name_that_a_model_writes(
    http: httpx.Client, model: str, name: str
) -> None:
    body = {"model": model, "input": f"use <{name}>", "tools": TOOLS}
    stream = fold(parse_sse(http.post("/responses", json={**body, "stream": True}).content))
    for made in (posted(http, "/responses", **body), stream):
        (call,) = [item for item in made["output"] if item["type"] == "function_call"]
        assert (call.get("namespace"), call["name"]) == NAMES[name]
        assert json.loads(call["arguments"]) == {"on": True}


def test_a_bare_name_that_means_several_tools_stays_as_written() -> None:
    tools = [
        each.definition
        for tool in TOOLS
        if tool["type"] == "namespace"
        for each in client_functions(msgspec.convert(tool, NamespaceTool), ())
    ]
    names = called_names(tools)
    assert "set" not in names
    assert "functions.set" not in names
    assert names["get"].name == "lights__get"
    assert {tool.name for tool in tools} <= {*names}


def test_a_call_says_that_no_argument_is_encrypted_where_its_schema_asks_for_it(
    http: httpx.Client,
) -> None:
    body = {"model": "qwen3", "input": "delegate it", "tools": TOOLS}
    events = parse_sse(http.post("/responses", json={**body, "stream": True}).content)
    calls = [event["item"] for event in events if "output_item" in event["type"]]
    made = fold(events)
    calls += [*made["output"], *http.get(f"/responses/{made['id']}").json()["output"]]
    assert len(calls) == 4
    for call in calls:
        assert call["encrypted_function_args"] == []
    posted(http, "/responses", input=[calls[-1], {"type": "function_call_output", "call_id": calls[-1]["call_id"], "output": "ok"}])  # fmt: skip
    (plain,) = posted(http, "/responses", input="use <plain>", tools=TOOLS)["output"]
    assert "encrypted_function_args" not in plain


def test_two_calls_with_one_id_have_their_outputs_in_order(
    http: httpx.Client, gateway: RunningGateway
) -> None:
    sent = [
        {"type": "function_call", "call_id": "c", "name": "lookup", "arguments": "{}"},
        {"type": "function_call", "call_id": "c", "name": "other", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "first"},
        {"type": "function_call_output", "call_id": "c", "output": "second"},
    ]
    posted(http, "/responses", model="harmony", input=sent)
    prompt = told(gateway, "harmony")
    assert "functions.lookup<|channel|>commentary to=assistant<|message|>first" in prompt
    assert "functions.other<|channel|>commentary to=assistant<|message|>second" in prompt


# Sessions that change the model.


@pytest.mark.parametrize("path", ["/responses", "/responses/input_tokens", "/responses/compact"])
def test_reasoning_that_another_model_wrote_is_left_out(
    http: httpx.Client, gateway: RunningGateway, path: str
) -> None:
    first = posted(http, "/responses", input="think of foxes", store=False, include=["reasoning.encrypted_content"])["output"]  # fmt: skip
    sealed = {key: value for key, value in first[0].items() if key != "content"}
    assert sealed["encrypted_content"]
    sent = [{"role": "user", "content": "a"}, sealed, first[1], {"role": "user", "content": "c"}]
    posted(http, path, model="harmony", input=sent)
    if path == "/responses":
        assert "Foxes." in told(gateway, "harmony")
        assert "A fox." not in told(gateway, "harmony")
        summed = {**sealed, "summary": [{"type": "summary_text", "text": "Of foxes."}]}
        posted(http, path, model="harmony", input=[sent[0], summed])
        assert "Of foxes." in told(gateway, "harmony")


@pytest.mark.parametrize("path", ["/responses", "/responses/input_tokens", "/responses/compact"])
def test_a_summary_is_read_by_any_model(
    http: httpx.Client, gateway: RunningGateway, path: str
) -> None:
    compacted = posted(http, "/responses/compact", input="think of foxes")["output"]
    sent = [*compacted, {"role": "user", "content": "go on"}]
    posted(http, path, model="harmony", input=sent)
    if path == "/responses":
        assert "They spoke of foxes." in told(gateway, "harmony")
    changed = {**compacted[-1], "encrypted_content": compacted[-1]["encrypted_content"][:-9]}
    answer = http.post(path, json={"model": "harmony", "input": [changed]})
    assert answer.json()["error"]["code"] == "invalid_encrypted_content"


# Steering.


def last_of(socket: Any) -> Any:
    while True:
        event = json.loads(socket.recv(timeout=30))
        if event["type"] in ("response.completed", "response.steer.failed", "error"):
            return event


def test_steering_is_declined_and_what_was_sent_comes_back(gateway: RunningGateway) -> None:
    with connect(gateway.base_url.replace("http", "ws") + "/responses") as socket:
        steer = {"previous_response_id": "resp_x", "input": "shorter please"}
        socket.send(json.dumps({"type": "response.steer", **steer}))
        failed = last_of(socket)
        assert failed["type"] == "response.steer.failed"
        assert failed["error"]["code"] == "response_not_found"
        assert failed["steer"] == steer
        socket.send(json.dumps({"type": "response.steer", "input": "x"}))
        assert last_of(socket)["error"]["param"] == "previous_response_id"
        socket.send(json.dumps({"type": "response.create", "model": "qwen3", "input": "hello"}))
        assert last_of(socket)["type"] == "response.completed"


# Images in the results of tools, and the policy about images.


@pytest.mark.parametrize("model", ["seeing", "qwen3"])
def test_a_tool_message_of_chat_may_have_an_image(
    http: httpx.Client, gateway: RunningGateway, png: str, model: str
) -> None:
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    image = {"type": "image_url", "image_url": {"url": png}}
    messages = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "seen"}, image]},
    ]
    posted(http, "/chat/completions", model=model, messages=messages)
    if model == "seeing":
        assert pictures(gateway) == 1
    else:
        assert "(An image, which this model cannot see.)" in told(gateway, model)
    assert "seen" in told(gateway, model)


def test_the_compression_of_images_is_a_policy_that_may_be_left_to_the_server(
    http: httpx.Client,
) -> None:
    for policy in ("auto", "disabled"):
        posted(http, "/responses", input="a", image={"context_compression": policy})
        posted(http, "/responses/compact", input="a", image={"context_compression": policy})
    answer = http.post("/responses", json={"model": "qwen3", "input": "a", "image": {"context_compression": "enabled"}})  # fmt: skip
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "image"
    assert "not compressed" in answer.json()["error"]["message"]


@pytest.fixture
def png() -> str:
    return "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
