"""Bad requests, each with its exact status and envelope, plain and streamed."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

HELLO = {"role": "user", "content": "hello"}
OK: dict[str, Any] = {"model": "scripted", "max_tokens": 50, "messages": [HELLO]}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "x"}
PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}


def with_(**changes: Any) -> dict[str, Any]:
    return {**OK, **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in OK.items() if key != name}


def block(role: str, *blocks: Any) -> dict[str, Any]:
    return with_(messages=[HELLO, {"role": role, "content": list(blocks)}])


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": source}


# name: (body, status, type, message)
CASES: dict[str, tuple[Any, int, str, str]] = {
    "no model": (without("model"), 400, "invalid_request_error", "Missing required parameter: 'model'."),
    "unknown model": (with_(model="gpt-9"), 404, "not_found_error", "The model 'gpt-9' does not exist here. Models: scripted, small."),
    "model is a number": (with_(model=3), 400, "invalid_request_error", "Invalid type for 'model': expected a string, but got an integer instead."),
    "no max_tokens": (without("max_tokens"), 400, "invalid_request_error", "Missing required parameter: 'max_tokens'. It is the maximum number of tokens to generate."),
    "max_tokens negative": (with_(max_tokens=-1), 400, "invalid_request_error", "Invalid 'max_tokens': integer below minimum value. Expected a value >= 0, but got -1 instead."),
    "max_tokens as text": (with_(max_tokens="5"), 400, "invalid_request_error", "Invalid type for 'max_tokens': expected an integer, but got a string instead."),
    "no messages": (without("messages"), 400, "invalid_request_error", "Missing required parameter: 'messages'. Send a list of messages."),
    "messages are empty": (with_(messages=[]), 400, "invalid_request_error", "'messages' is empty. Send at least one message."),
    "messages are a string": (with_(messages="hello"), 400, "invalid_request_error", "Invalid type for 'messages': expected an array of messages, but got a string instead."),
    "message is a string": (with_(messages=["hello"]), 400, "invalid_request_error", "Invalid type for 'messages[0]': expected an object, but got a string instead."),
    "message without role": (with_(messages=[{"content": "x"}]), 400, "invalid_request_error", "Missing required parameter: 'messages[0].role'."),
    "unknown role": (with_(messages=[{"role": "tool", "content": "x"}]), 400, "invalid_request_error", "messages[0].role: Invalid value: 'tool'. Supported values are: 'user', 'assistant', and 'system'."),
    "role is a list": (with_(messages=[{"role": [], "content": "x"}]), 400, "invalid_request_error", "Invalid type for 'messages[0].role': expected a string, but got an array instead."),
    "message without content": (with_(messages=[{"role": "user"}]), 400, "invalid_request_error", "Missing required parameter: 'messages[0].content'."),
    "content is a number": (with_(messages=[{"role": "user", "content": 1}]), 400, "invalid_request_error", "Invalid type for 'messages[0].content': expected a string or an array of content blocks, but got an integer instead."),
    "block without type": (block("user", {"text": "a"}), 400, "invalid_request_error", "Missing required parameter: 'messages[1].content[0].type'. It is one of: 'text', 'image', 'document', 'search_result', and 'tool_result'."),
    "block of unknown type": (block("user", {"type": "smell"}), 400, "invalid_request_error", "messages[1].content[0].type: Invalid value: 'smell'. Supported values are: 'text', 'image', 'document', 'search_result', and 'tool_result'."),
    "thinking of the user": (block("user", {"type": "thinking", "thinking": "a"}), 400, "invalid_request_error", "messages[1].content[0].type: Invalid value: 'thinking'. Supported values are: 'text', 'image', 'document', 'search_result', and 'tool_result'."),
    "an image of the assistant": (block("assistant", image(type="url", url="https://a.example")), 400, "invalid_request_error", "messages[1].content[0].type: Invalid value: 'image'. Supported values are: 'text', 'thinking', 'redacted_thinking', 'tool_use', 'server_tool_use', 'mcp_tool_use', 'web_search_tool_result', 'web_fetch_tool_result', 'code_execution_tool_result', 'bash_code_execution_tool_result', 'text_editor_code_execution_tool_result', 'mcp_tool_result', and 'mcp_tool_listing'."),
    "text without text": (block("user", {"type": "text"}), 400, "invalid_request_error", "Missing required parameter: 'messages[1].content[0].text'."),
    "image without data": (block("user", image(type="base64", media_type="image/png")), 400, "invalid_request_error", "Missing required parameter: 'messages[1].content[0].source.data'."),
    "image of a file": (block("user", image(type="file", file_id="f")), 400, "invalid_request_error", "Could not process image: messages[1].content[0]: This model takes no images. Send text."),
    "a PDF": (block("user", {"type": "document", "source": PDF}), 400, "invalid_request_error", "messages[1].content[0]: The PDF is broken: no page in it can be read. It may be cut off."),
    "a result without a call": (block("user", RESULT), 400, "invalid_request_error", "messages[1].content[0].tool_use_id: There is no 'tool_use' block with the id 't1' in the message before."),
    "a call without a result": (block("assistant", USE), 400, "invalid_request_error", "messages[1].content[0]: The message after a 'tool_use' block must have its 'tool_result': there is none for 't1'."),
    "a call with text as input": (block("assistant", {**USE, "input": "{}"}), 400, "invalid_request_error", "Invalid type for 'messages[1].content[0].input': expected an object, but got a string instead."),
    "system is a number": (with_(system=1), 400, "invalid_request_error", "Invalid type for 'system': expected a string or an array of content blocks, but got an integer instead."),
    "system with an image": (with_(system=[image(type="url", url="u")]), 400, "invalid_request_error", "system[0].type: Invalid value: 'image'. Supported values are: 'text'."),
    "temperature too high": (with_(temperature=1.5), 400, "invalid_request_error", "Invalid 'temperature': decimal above maximum value. Expected a value <= 1, but got 1.5 instead."),
    "top_p negative": (with_(top_p=-1), 400, "invalid_request_error", "Invalid 'top_p': decimal below minimum value. Expected a value >= 0, but got -1 instead."),
    "top_k negative": (with_(top_k=-1), 400, "invalid_request_error", "Invalid 'top_k': integer below minimum value. Expected a value >= 0, but got -1 instead."),
    "a stop sequence of white space": (with_(stop_sequences=["a", " \n"]), 400, "invalid_request_error", "stop_sequences[1]: A stop sequence is more than white space."),
    "stop sequences as text": (with_(stop_sequences="a"), 400, "invalid_request_error", "Invalid type for 'stop_sequences': expected an array, but got a string instead."),
    "unknown thinking": (with_(thinking={"type": "deep"}), 400, "invalid_request_error", "thinking.type: Invalid value: 'deep'. Supported values are: 'enabled', 'disabled', 'adaptive', and 'between_tools'."),
    "thinking without a budget": (with_(thinking={"type": "enabled"}), 400, "invalid_request_error", "Missing required parameter: 'thinking.budget_tokens'."),
    "too small a budget": (with_(thinking={"type": "enabled", "budget_tokens": 10}), 400, "invalid_request_error", "Invalid 'thinking.budget_tokens': integer below minimum value. Expected a value >= 1024, but got 10 instead."),
    "too large a budget": (with_(thinking={"type": "enabled", "budget_tokens": 2000}), 400, "invalid_request_error", "'max_tokens' must be greater than 'thinking.budget_tokens'."),
    "tools as object": (with_(tools={}), 400, "invalid_request_error", "Invalid type for 'tools': expected an array of tools, but got an object instead."),
    "a server's tool": (with_(tools=[{"type": "web_search_20260318", "name": "web_search"}]), 400, "invalid_request_error", "tools[0].type: Tools of type 'web_search_20260318' are not available here. Leave it out, or have the server configured with a plugin that runs it ([tools.browser])."),
    "tool without schema": (with_(tools=[{"name": "f"}]), 400, "invalid_request_error", "Missing required parameter: 'tools[0].input_schema'."),
    "tool with another schema": (with_(tools=[{"name": "f", "input_schema": {"type": "array"}}]), 400, "invalid_request_error", "'tools[0].input_schema.type' must be 'object'."),
    "too many tools": (with_(tools=[TOOL] * 1025), 400, "invalid_request_error", "Invalid 'tools': array too long. Expected an array with maximum length 1024, but got an array with length 1025 instead."),
    "two tools of one name": (with_(tools=[TOOL, TOOL]), 400, "invalid_request_error", "tools[1].name: Two tools are named 'f'. Give each its own name."),
    "tool_choice as text": (with_(tools=[TOOL], tool_choice="any"), 400, "invalid_request_error", "Invalid type for 'tool_choice': expected an object, but got a string instead."),
    "tool_choice without tools": (with_(tool_choice={"type": "any"}), 400, "invalid_request_error", "tool_choice is 'any', but there are no tools. Send tools, or leave tool_choice out."),
    "tool_choice names nothing": (with_(tools=[TOOL], tool_choice={"type": "tool", "name": "g"}), 400, "invalid_request_error", "tool_choice.name: tool_choice names 'g', which is not among the tools."),
    "unknown effort": (with_(output_config={"effort": "huge"}), 400, "invalid_request_error", "output_config.effort: Invalid value: 'huge'. Supported values are: 'high', 'low', 'max', 'medium', and 'xhigh'."),
    "unknown format": (with_(output_config={"format": {"type": "xml"}}), 400, "invalid_request_error", "output_config.format.type: Invalid value: 'xml'. Supported values are: 'json_schema'."),
    "two formats": (with_(output_config={"format": {"type": "json_schema", "schema": {}}}, output_format={"type": "json_schema", "schema": {}}), 400, "invalid_request_error", "'output_format' is the older name of 'output_config.format'. Send one of them."),
    "unknown service tier": (with_(service_tier="gold"), 400, "invalid_request_error", "service_tier: Invalid value: 'gold'. Supported values are: 'auto' and 'standard_only'."),
    "MCP servers": (with_(mcp_servers=[{"type": "url", "url": "u", "name": "n"}]), 400, "invalid_request_error", "mcp_servers[0]: MCP servers are not available here. Leave it out, or have the server configured with a plugin that runs it ([tools.mcp])."),
    "a prompt that is too long": (with_(model="small", messages=[{"role": "user", "content": "long " * 60}]), 400, "invalid_request_error", "prompt is too long: The prompt has 130 tokens, which leaves no room for an answer in the model's 60."),
    "an engine that is busy": (with_(messages=[{"role": "user", "content": "be busy"}]), 429, "rate_limit_error", "The engine is busy."),
    "an engine that is away": (with_(messages=[{"role": "user", "content": "be down"}]), 529, "overloaded_error", "The engine is away."),
}  # fmt: skip


def check(answer: httpx.Response, status: int, kind: str, message: str) -> None:
    assert answer.json() == {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": answer.headers["request-id"],
    }
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_bad_request_is_told_what_is_wrong(raw: httpx.Client, name: str, stream: bool) -> None:
    body, status, kind, message = CASES[name]
    check(raw.post("/v1/messages", json={**body, "stream": stream}), status, kind, message)


@pytest.mark.parametrize(
    "name", [n for n in CASES if "max_tokens" not in n and "engine" not in n and "budget" not in n and "too long" not in n]
)  # fmt: skip
def test_counting_refuses_what_answering_refuses(raw: httpx.Client, name: str) -> None:
    body, status, kind, message = CASES[name]
    check(raw.post("/v1/messages/count_tokens", json=body), status, kind, message)


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind"),
    [
        (b"", {}, 400, "invalid_request_error"),
        (b"{", {}, 400, "invalid_request_error"),
        (b"[]", {}, 400, "invalid_request_error"),
        (b'{"model": "\xff"}', {}, 400, "invalid_request_error"),
        (b"{}", {"content-type": "text/plain"}, 415, "invalid_request_error"),
        (b" " * 200_001, {}, 413, "request_too_large"),
    ],
)
def test_a_body_that_is_no_request(
    raw: httpx.Client, body: bytes, headers: dict[str, str], status: int, kind: str
) -> None:
    sent = {"content-type": "application/json", **headers}
    answer = raw.post("/v1/messages", content=body, headers=sent)
    told = answer.json()
    assert (answer.status_code, told["type"], told["error"]["type"]) == (status, "error", kind)


def test_paths_and_methods_that_are_not_there(raw: httpx.Client) -> None:
    check(raw.get("/v1/messages"), 405, "invalid_request_error", "Not allowed: GET /v1/messages.")
    check(
        raw.post("/v1/messages/batches", json={}),
        404,
        "not_found_error",
        "Invalid URL (POST /v1/messages/batches). Litegate has no batches of Messages. /v1/batches runs those of the "
        "other APIs.",
    )
    versioned = {"anthropic-version": "2023-06-01"}
    check(
        raw.get("/v1/models/no-such", headers=versioned),
        404,
        "not_found_error",
        "The model 'no-such' does not exist here. Models: scripted, small.",
    )
    check(
        raw.get("/v1/models?limit=0", headers=versioned),
        400,
        "invalid_request_error",
        "'limit' is a number from 1 to 1000.",
    )
    check(
        raw.get("/v1/models?after_id=x", headers=versioned),
        400,
        "invalid_request_error",
        "after_id: There is no model 'x'.",
    )
    assert raw.get("/v1/models/no-such").json()["error"]["code"] == "model_not_found"
    assert raw.get("/v1/nothing").json()["error"]["code"] == "unknown_url"


def test_what_the_model_cannot_take_is_told_by_its_block(raw: httpx.Client) -> None:
    eyes = block("user", {"type": "text", "text": "a"}, image(type="url", url="https://a.example"))
    answer = raw.post("/v1/messages", json=eyes)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    where = "messages[1].content[1]"
    assert message.startswith(f"Could not process image: {where}: This model takes no images")


def test_an_image_of_a_tool_is_a_note_for_a_model_that_does_not_see(raw: httpx.Client) -> None:
    body = block("assistant", USE)
    result = {**RESULT, "content": [image(type="url", url="u")]}
    body["messages"].append({"role": "user", "content": [result]})
    answer = raw.post("/v1/messages", json=body)
    assert answer.status_code == 200
    file = {"type": "document", "source": {"type": "file", "file_id": "f"}}
    body["messages"][2]["content"] = [{**result, "content": [{"type": "text", "text": "a"}, file]}]
    answer = raw.post("/v1/messages", json=body)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert message.startswith("messages[2].content[0].content[1]: File ids cannot be resolved")


def test_held_conversations_are_refused_in_the_words_that_clients_know(raw: httpx.Client) -> None:
    answer = raw.post("/v1/messages", json=with_(thread={"type": "create"}))
    assert answer.status_code == 400
    assert answer.json()["error"]["details"] == {"error_code": "thread_unsupported_request"}
