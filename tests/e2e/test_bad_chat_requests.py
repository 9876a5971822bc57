"""Bad chat requests, each with its exact status and envelope."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.e2e.envelopes import envelope

FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}  # fmt: skip
HELLO = {"role": "user", "content": "hello"}
OK: dict[str, Any] = {"model": "scripted", "messages": [HELLO]}


def with_(**changes: Any) -> dict[str, Any]:
    return {**OK, **changes}


def said(text: str, **changes: Any) -> dict[str, Any]:
    return with_(messages=[{"role": "user", "content": text}], **changes)


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in OK.items() if key != name}


def message(**fields: Any) -> dict[str, Any]:
    return with_(messages=[HELLO, fields])


def part(**fields: Any) -> dict[str, Any]:
    return message(role="user", content=[{"type": "text", "text": "a"}, fields])


def grammar(**described: str) -> dict[str, Any]:
    """A custom tool with a grammar."""
    return {
        "type": "custom",
        "custom": {"name": "c", "format": {"type": "grammar", "grammar": described}},
    }


def choice(**fields: Any) -> dict[str, Any]:
    return with_(tools=[FUNCTION], tool_choice=fields)


def call(**fields: Any) -> dict[str, Any]:
    return message(role="assistant", tool_calls=[fields])


IMAGE = {"url": "https://example.com/a.png"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}}

# name: (body, status, param, code)
CASES: dict[str, tuple[Any, int, str | None, str | None]] = {
    "no model, several served": (without("model"), 400, "model", "missing_required_parameter"),
    "unknown model": (with_(model="gpt-9"), 404, "model", "model_not_found"),
    "model is a number": (with_(model=3), 400, "model", "invalid_type"),
    "no messages": (without("messages"), 400, "messages", "missing_required_parameter"),
    "messages are null": (with_(messages=None), 400, "messages", "missing_required_parameter"),
    "messages are empty": (with_(messages=[]), 400, "messages", "empty_array"),
    "messages are a string": (with_(messages="hello"), 400, "messages", "invalid_type"),
    "message is a string": (with_(messages=["hello"]), 400, "messages[0]", "invalid_type"),
    "message without role": (message(content="x"), 400, "messages[1].role", "missing_required_parameter"),
    "role is a number": (message(role=1, content="x"), 400, "messages[1].role", "invalid_type"),
    "unknown role": (message(role="king", content="x"), 400, "messages[1].role", "invalid_value"),
    "user without content": (message(role="user"), 400, "messages[1].content", "missing_required_parameter"),
    "content is a number": (message(role="user", content=1), 400, "messages[1].content", "invalid_type"),
    "content is an object": (message(role="system", content={}), 400, "messages[1].content", "invalid_type"),
    "part without type": (part(text="a"), 400, "messages[1].content[1].type", "missing_required_parameter"),
    "unknown part": (part(type="smell"), 400, "messages[1].content[1].type", "invalid_value"),
    "part without text": (part(type="text"), 400, "messages[1].content[1].text", "missing_required_parameter"),
    "image without url": (part(type="image_url", image_url={}), 400, "messages[1].content[1].image_url.url", "missing_required_parameter"),
    "an image, and no eyes": (part(type="image_url", image_url=IMAGE), 400, "messages[1].content[1].type", None),
    "audio, and no ears": (part(type="input_audio", input_audio={"data": "", "format": "wav"}), 400, "messages[1].content[1].type", None),
    "a file that is none": (part(type="file", file={"file_data": "x"}), 400, "messages[1].content[1].file.file_data", "invalid_base64_file"),
    "an image of the system": (message(role="system", content=[{"type": "image_url", "image_url": IMAGE}]), 400, "messages[1].content[0].type", "invalid_value"),
    "audio of the assistant": (message(role="assistant", audio={"id": "a"}), 400, "messages[1].audio", "unsupported_parameter"),
    "tool message without id": (message(role="tool", content="x"), 400, "messages[1].tool_call_id", "missing_required_parameter"),
    "tool message with a sound": (message(role="tool", tool_call_id="c", content=[{"type": "input_audio"}]), 400, "messages[1].content[0].type", "invalid_value"),
    "call without id": (call(type="function", function={"name": "f", "arguments": "{}"}), 400, "messages[1].tool_calls[0].id", "missing_required_parameter"),
    "call without function": (call(id="c", type="function"), 400, "messages[1].tool_calls[0].function", "missing_required_parameter"),
    "call with object arguments": (call(id="c", function={"name": "f", "arguments": {}}), 400, "messages[1].tool_calls[0].function.arguments", "invalid_type"),
    "call of unknown type": (call(id="c", type="magic"), 400, "messages[1].tool_calls[0].type", "invalid_value"),
    "function message without name": (message(role="function", content="x"), 400, "messages[1].name", "missing_required_parameter"),
    "temperature too high": (with_(temperature=3), 400, "temperature", "decimal_above_max_value"),
    "temperature as text": (with_(temperature="hot"), 400, "temperature", "invalid_type"),
    "top_p negative": (with_(top_p=-1), 400, "top_p", "decimal_below_min_value"),
    "n zero": (with_(n=0), 400, "n", "integer_below_min_value"),
    "n too high": (with_(n=129), 400, "n", "integer_above_max_value"),
    "top_logprobs too high": (with_(logprobs=True, top_logprobs=21), 400, "top_logprobs", "integer_above_max_value"),
    "top_logprobs without logprobs": (with_(top_logprobs=2), 400, "top_logprobs", None),
    "max_tokens zero": (with_(max_tokens=0), 400, "max_tokens", "integer_below_min_value"),
    "max_completion_tokens as text": (with_(max_completion_tokens="5"), 400, "max_completion_tokens", "invalid_type"),
    "presence_penalty too high": (with_(presence_penalty=2.5), 400, "presence_penalty", "decimal_above_max_value"),
    "logit_bias on words": (with_(logit_bias={"hello": 1}), 400, "logit_bias", None),
    "logit_bias too strong": (with_(logit_bias={"5": 101}), 400, "logit_bias.5", "decimal_above_max_value"),
    "stop is a number": (with_(stop=1), 400, "stop", "invalid_type"),
    "stream as text": (with_(stream="yes"), 400, "stream", "invalid_type"),
    "metadata value number": (with_(metadata={"a": 1}), 400, "metadata.a", "invalid_type"),
    "unknown effort": (with_(reasoning_effort="huge"), 400, "reasoning_effort", "invalid_value"),
    "unknown format": (with_(response_format={"type": "xml"}), 400, "response_format.type", "invalid_value"),
    "format without schema": (with_(response_format={"type": "json_schema"}), 400, "response_format.json_schema", "missing_required_parameter"),
    "schema without name": (with_(response_format={"type": "json_schema", "json_schema": {}}), 400, "response_format.json_schema.name", "missing_required_parameter"),
    "two formats": (with_(response_format=SCHEMA, guided_json={}), 400, "guided_json", "mutually_exclusive_parameters"),
    "two structures": (with_(guided_regex="a", guided_json={}), 400, "guided_regex", "mutually_exclusive_parameters"),
    "an empty structure": (with_(structured_outputs={}), 400, "structured_outputs", None),
    "a schema that is none": (with_(guided_json="{"), 400, "guided_json", "invalid_value"),
    "an empty choice": (with_(guided_choice=[]), 400, "guided_choice", None),
    "tools as object": (with_(tools={}), 400, "tools", "invalid_type"),
    "tool without type": (with_(tools=[{"function": {"name": "f"}}]), 400, "tools[0].type", "missing_required_parameter"),
    "tool of unknown type": (with_(tools=[{"type": "web_search"}]), 400, "tools[0].type", "invalid_value"),
    "function in the flat form": (with_(tools=[{"type": "function", "name": "f"}]), 400, "tools[0].function", "missing_required_parameter"),
    "function without name": (with_(tools=[{"type": "function", "function": {}}]), 400, "tools[0].function.name", "missing_required_parameter"),
    "function with a bad name": (with_(tools=[{"type": "function", "function": {"name": "a b"}}]), 400, "tools[0].function.name", "invalid_value"),
    "two functions of one name": (with_(tools=[FUNCTION, FUNCTION]), 400, "tools[1].function.name", "duplicate_tool_name"),
    "unknown tool_choice": (with_(tool_choice="maybe"), 400, "tool_choice", "invalid_value"),
    "tool_choice names nothing": (choice(type="function", function={"name": "g"}), 400, "tool_choice.function.name", None),
    "tool_choice in the flat form": (choice(type="function", name="f"), 400, "tool_choice.function", "missing_required_parameter"),
    "tool_choice of unknown type": (choice(type="magic"), 400, "tool_choice.type", "invalid_value"),
    "allowed tools that are none": (choice(type="allowed_tools", allowed_tools={"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}), 400, "tool_choice.allowed_tools.tools[0].function.name", None),
    "an allowed tool whose name is a number": (choice(type="allowed_tools", allowed_tools={"mode": "auto", "tools": [{"type": "function", "function": {"name": 1}}]}), 400, "tool_choice.allowed_tools.tools[0].function.name", "invalid_type"),
    "a tool_choice that is a number": (with_(tool_choice=1), 400, "tool_choice", "invalid_type"),
    "a grammar that is a string": (with_(tools=[{"type": "custom", "custom": {"name": "c", "format": {"type": "grammar", "grammar": "a+"}}}]), 400, "tools[0].custom.format.grammar", "invalid_type"),
    "a call whose type is a number": (with_(messages=[{"role": "assistant", "tool_calls": [{"id": "c", "type": 0, "function": {"name": "f", "arguments": "{}"}}]}]), 400, "messages[0].tool_calls[0].type", "invalid_type"),
    "required without tools": (with_(tool_choice="required"), 400, "tool_choice", None),
    "functions and tools": (with_(tools=[FUNCTION], functions=[{"name": "f"}]), 400, "functions", "mutually_exclusive_parameters"),
    "two custom tools of one name": (with_(tools=[{"type": "custom", "custom": {"name": "c"}}] * 2), 400, "tools[1].custom.name", "duplicate_tool_name"),
    "a custom choice that names nothing": (choice(type="custom", custom={"name": "g"}), 400, "tool_choice.custom.name", None),
    "functions as object": (with_(functions={}), 400, "functions", "invalid_type"),
    "function_call names nothing": (with_(functions=[{"name": "f"}], function_call={"name": "g"}), 400, "function_call.name", None),
    "unknown function_call": (with_(functions=[{"name": "f"}], function_call="maybe"), 400, "function_call", "invalid_value"),
    "spoken answers": (with_(modalities=["text", "audio"]), 400, "modalities", "unsupported_parameter"),
    "a voice": (with_(audio={"voice": "alloy"}), 400, "audio", "unsupported_parameter"),
    "web search": (with_(web_search_options={"search_context_size": "low"}), 400, "web_search_options", "unsupported_parameter"),
    "web search as it comes": (with_(web_search_options={}), 400, "web_search_options", "unsupported_parameter"),
    "moderation": (with_(moderation={"model": "x"}), 400, "moderation", "unsupported_parameter"),
    "beam search": (with_(use_beam_search=True), 400, "use_beam_search", "unsupported_parameter"),
    "best of more": (with_(best_of=3), 400, "best_of", "unsupported_parameter"),
    "nothing to continue": (with_(continue_final_message=True), 400, "continue_final_message", None),
    "continued and begun": (with_(continue_final_message=True, add_generation_prompt=True), 400, "add_generation_prompt", None),
    "an empty stop": (with_(stop=""), 400, "stop", "invalid_value"),
    "an empty stop among others": (with_(stop=["a", ""]), 400, "stop[1]", "invalid_value"),
    "stops of which one is a number": (with_(stop=["a", 1]), 400, "stop[1]", "invalid_type"),
    "a prediction of nothing": (with_(prediction={"type": "content"}), 400, "prediction.content", "missing_required_parameter"),
    "an unknown prediction": (with_(prediction={"type": "dream"}), 400, "prediction.type", "invalid_value"),
    "unknown verbosity": (with_(verbosity="chatty"), 400, "verbosity", "invalid_value"),
    "unknown service_tier": (with_(service_tier="golden"), 400, "service_tier", "invalid_value"),
    "an unknown modality": (with_(modalities=["smell"]), 400, "modalities[0]", "invalid_value"),
    "an unknown retention": (with_(prompt_cache_retention="1h"), 400, "prompt_cache_retention", "invalid_value"),
    "prompt_cache_key is a number": (with_(prompt_cache_key=1), 400, "prompt_cache_key", "invalid_type"),
    "safety_identifier is a list": (with_(safety_identifier=[]), 400, "safety_identifier", "invalid_type"),
    "user is a number": (with_(user=1), 400, "user", "invalid_type"),
    "seed too large": (with_(seed=2**63), 400, "seed", "integer_above_max_value"),
    "seed is a text": (with_(seed="1"), 400, "seed", "invalid_type"),
    "store as text": (with_(store="yes"), 400, "store", "invalid_type"),
    "too much metadata": (with_(metadata={str(n): "" for n in range(17)}), 400, "metadata", "object_above_max_properties"),
    "metadata is a list": (with_(metadata=[]), 400, "metadata", "invalid_type"),
    "a schema that is a list": (with_(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": []}}), 400, "response_format.json_schema.schema", "invalid_type"),
    "a schema with an empty name": (with_(response_format={"type": "json_schema", "json_schema": {"name": ""}}), 400, "response_format.json_schema.name", "empty_string"),
    "a format that is a string": (with_(response_format="json"), 400, "response_format", "invalid_type"),
    "parameters that are a list": (with_(tools=[{"type": "function", "function": {"name": "f", "parameters": []}}]), 400, "tools[0].function.parameters", "invalid_type"),
    "strict as text": (with_(tools=[{"type": "function", "function": {"name": "f", "strict": "yes"}}]), 400, "tools[0].function.strict", "invalid_type"),
    "a custom tool of unknown format": (with_(tools=[{"type": "custom", "custom": {"name": "c", "format": {"type": "poem"}}}]), 400, "tools[0].custom.format.type", "invalid_value"),
    "a grammar of unknown syntax": (with_(tools=[grammar(syntax="bnf", definition="x")]), 400, "tools[0].custom.format.grammar.syntax", "invalid_value"),
    "a grammar without a definition": (with_(tools=[grammar(syntax="lark")]), 400, "tools[0].custom.format.grammar.definition", "missing_required_parameter"),
    "a function of a function": (with_(functions=[{"name": 1}]), 400, "functions[0].name", "invalid_type"),
    "two functions of one legacy name": (with_(functions=[{"name": "f"}, {"name": "f"}]), 400, "functions[1].name", "duplicate_tool_name"),
    "image detail unknown": (part(type="image_url", image_url={**IMAGE, "detail": "huge"}), 400, "messages[1].content[1].image_url.detail", "invalid_value"),
    "a refusal of the user": (part(type="refusal", refusal="no"), 400, "messages[1].content[1].type", "invalid_value"),
    "a video": (part(type="video_url", video_url=IMAGE), 400, "messages[1].content[1].type", "invalid_value"),
    "a call without a name": (call(id="c", type="function", function={"arguments": "{}"}), 400, "messages[1].tool_calls[0].function.name", "missing_required_parameter"),
    "calls that are an object": (message(role="assistant", tool_calls={}), 400, "messages[1].tool_calls", "invalid_type"),
    "reasoning that is a list": (message(role="assistant", content="x", reasoning_content=[]), 400, "messages[1].reasoning_content", "invalid_type"),
    "special tokens in chat": (with_(skip_special_tokens=False), 400, "skip_special_tokens", "unsupported_parameter"),
    "a streamed prompt's scores": (with_(stream=True, prompt_logprobs=1), 400, "prompt_logprobs", None),
    "documents as text": (with_(documents=["x"]), 400, "documents[0]", "invalid_type"),
    "a structural tag": (with_(structured_outputs={"structural_tag": "{}"}), 400, "structured_outputs.structural_tag.format", "missing_required_parameter"),
    "an untrusted template": (with_(chat_template="x"), 400, "chat_template", None),
    "a reserved template variable": (with_(chat_template_kwargs={"messages": []}), 400, "chat_template_kwargs.messages", None),
    "prompt too long": (said("word " * 1000, model="small"), 400, "messages", "context_length_exceeded"),
    "the engine refuses": (said("refuse at once"), 400, None, None),
    "the engine is busy": (said("be busy"), 429, None, "rate_limit_exceeded"),
    "the engine is down": (said("be down"), 503, None, "engine_unavailable"),
}  # fmt: skip
PLAIN_ONLY: dict[str, tuple[Any, int, str | None, str | None]] = {
    "stream_options without stream": (with_(stream_options={"include_usage": True}), 400, "stream_options", None),
    "the body is not JSON": (b"{", 400, None, "invalid_json"),
    "the body is a list": (b"[]", 400, None, "invalid_json"),
    "the body is empty": (b" ", 400, None, "invalid_json"),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("case", CASES)
def test_a_bad_request_is_told_what_is_wrong(http: httpx.Client, case: str, stream: bool) -> None:
    body, status, param, code = CASES[case]
    if stream and "stream" not in body:
        body = {**body, "stream": True}
    answer = http.post("/v1/chat/completions", json=body)
    error = envelope(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


@pytest.mark.parametrize("case", PLAIN_ONLY)
def test_a_body_that_is_no_request(http: httpx.Client, case: str) -> None:
    body, status, param, code = PLAIN_ONLY[case]
    sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/chat/completions", **sent, headers=headers)
    error = envelope(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


def test_a_method_that_is_not_taken(http: httpx.Client) -> None:
    answer = http.put("/v1/chat/completions", json=OK)
    assert envelope(answer)["code"] == "method_not_allowed"
    assert answer.status_code == 405
