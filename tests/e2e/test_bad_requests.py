"""Bad requests, each with its exact status and envelope."""

from __future__ import annotations

import json
import socket
from http.client import HTTPResponse
from typing import Any

import httpx
import pytest

from tests.e2e.envelopes import envelope

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}}
OK: dict[str, Any] = {"model": "scripted", "input": "hello"}


def with_(**changes: Any) -> dict[str, Any]:
    return {**OK, **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in OK.items() if key != name}


def item(**fields: Any) -> dict[str, Any]:
    return with_(input=[fields])


# name: (body, status, param, code)
CASES: dict[str, tuple[Any, int, str | None, str | None]] = {
    "no model, several served": (without("model"), 400, "model", "missing_required_parameter"),
    "unknown model": (with_(model="gpt-9"), 404, "model", "model_not_found"),
    "model is a number": (with_(model=3), 400, "model", "invalid_type"),
    "no input": (without("input"), 400, "input", "missing_required_parameter"),
    "input is a number": (with_(input=3), 400, "input", "invalid_type"),
    "input is an object": (with_(input={}), 400, "input", "invalid_type"),
    "item is a string": (with_(input=["x"]), 400, "input[0]", "invalid_type"),
    "item without type": (item(foo=1), 400, "input[0].type", "missing_required_parameter"),
    "item of unknown type": (item(type="banana"), 400, "input[0].type", "invalid_value"),
    "message without role": (item(type="message", content="x"), 400, "input[0].role", "missing_required_parameter"),
    "unknown role": (item(role="king", content="x"), 400, "input[0].role", "invalid_value"),
    "tool role": (item(role="tool", content="x"), 400, "input[0].role", "invalid_value"),
    "message without content": (item(role="user"), 400, "input[0].content", "missing_required_parameter"),
    "content is a number": (item(role="user", content=1), 400, "input[0].content", "invalid_type"),
    "unknown part": (item(role="user", content=[{"type": "smell"}]), 400, "input[0].content[0].type", "invalid_value"),
    "part without text": (item(role="user", content=[{"type": "input_text"}]), 400, "input[0].content[0].text", "missing_required_parameter"),
    "part with wrong text": (item(role="user", content=[{"type": "input_text", "text": 1}]), 400, "input[0].content[0].text", "invalid_type"),
    "call without call_id": (item(type="function_call", name="f", arguments="{}"), 400, "input[0].call_id", "missing_required_parameter"),
    "call with object arguments": (item(type="function_call", call_id="c", name="f", arguments={}), 400, "input[0].arguments", "invalid_type"),
    "output of no local shell call": (item(type="local_shell_call_output", id="lsh_1", output="x"), 400, "input[0].id", None),
    "output without output": (item(type="function_call_output", call_id="c"), 400, "input[0].output", "missing_required_parameter"),
    "reference to nothing": (item(type="item_reference", id="msg_nothing"), 404, "input[0].id", "item_not_found"),
    "temperature too high": (with_(temperature=3), 400, "temperature", "decimal_above_max_value"),
    "temperature negative": (with_(temperature=-1), 400, "temperature", "decimal_below_min_value"),
    "temperature as text": (with_(temperature="hot"), 400, "temperature", "invalid_type"),
    "top_p too high": (with_(top_p=2), 400, "top_p", "decimal_above_max_value"),
    "top_logprobs too high": (with_(top_logprobs=21), 400, "top_logprobs", "integer_above_max_value"),
    "max_output_tokens zero": (with_(max_output_tokens=0), 400, "max_output_tokens", "integer_below_min_value"),
    "max_output_tokens as text": (with_(max_output_tokens="5"), 400, "max_output_tokens", "invalid_type"),
    "max_tool_calls zero": (with_(max_tool_calls=0), 400, "max_tool_calls", "integer_below_min_value"),
    "stream as text": (with_(stream="yes"), 400, "stream", "invalid_type"),
    "store as number": (with_(store=1), 400, "store", "invalid_type"),
    "instructions as list": (with_(instructions=["x"]), 400, "instructions", "invalid_type"),
    "metadata as list": (with_(metadata=[]), 400, "metadata", "invalid_type"),
    "metadata value number": (with_(metadata={"a": 1}), 400, "metadata.a", "invalid_type"),
    "metadata too many": (with_(metadata={str(i): "x" for i in range(17)}), 400, "metadata", "object_above_max_properties"),
    "metadata value too long": (with_(metadata={"a": "x" * 513}), 400, "metadata.a", "string_above_max_length"),
    "unknown include": (with_(include=["everything"]), 400, "include[0]", "invalid_value"),
    "unknown truncation": (with_(truncation="some"), 400, "truncation", "invalid_value"),
    "unknown service tier": (with_(service_tier="gold"), 400, "service_tier", "invalid_value"),
    "unknown effort": (with_(reasoning={"effort": "huge"}), 400, "reasoning.effort", "invalid_value"),
    "tools as object": (with_(tools={}), 400, "tools", "invalid_type"),
    "tool without type": (with_(tools=[{"name": "f"}]), 400, "tools[0].type", "missing_required_parameter"),
    "tool of unknown type": (with_(tools=[{"type": "magic"}]), 400, "tools[0].type", "invalid_value"),
    "function without name": (with_(tools=[{"type": "function"}]), 400, "tools[0].name", "missing_required_parameter"),
    "function in chat's form": (with_(tools=[{"type": "function", "function": {"name": "f"}}]), 400, "tools[0].name", "missing_required_parameter"),
    "function with a bad name": (with_(tools=[{"type": "function", "name": "a b"}]), 400, "tools[0].name", "invalid_value"),
    "two functions of one name": (with_(tools=[FUNCTION, FUNCTION]), 400, "tools[1].name", "duplicate_tool_name"),
    "hosted tool that is not there": (with_(tools=[{"type": "code_interpreter"}]), 400, "tools[0].type", "unsupported_tool"),
    "image generation": (with_(tools=[{"type": "image_generation"}]), 400, "tools[0].type", "unsupported_tool"),
    "unknown tool_choice": (with_(tool_choice="maybe"), 400, "tool_choice", "invalid_value"),
    "tool_choice names nothing": (with_(tools=[FUNCTION], tool_choice={"type": "function", "name": "g"}), 400, "tool_choice.name", None),
    "required without tools": (with_(tool_choice="required"), 400, "tool_choice", None),
    "format without schema": (with_(text={"format": {"type": "json_schema", "name": "x"}}), 400, "text.format.schema", "missing_required_parameter"),
    "unknown format": (with_(text={"format": {"type": "xml"}}), 400, "text.format.type", "invalid_value"),
    "prompt template": (with_(prompt={"id": "pmpt_1"}), 404, "prompt.id", "prompt_not_found"),
    "moderation": (with_(moderation={"model": "x"}), 400, "moderation", "unsupported_parameter"),
    "unknown previous response": (with_(previous_response_id="resp_nothing"), 400, "previous_response_id", "previous_response_not_found"),
    "unknown conversation": (with_(conversation="conv_nothing"), 404, "conversation", "conversation_not_found"),
    "later window in the foreground": (with_(background_options={"completion_window": "2h"}), 400, "background_options.completion_window", "invalid_value"),
    "later window with a stream": (with_(background=True, stream=True, background_options={"completion_window": "8h"}), 400, "background_options.completion_window", "invalid_value"),
    "unknown window": (with_(background=True, background_options={"completion_window": "3h"}), 400, "background_options.completion_window", "invalid_value"),
    "two histories": (with_(conversation="conv_a", previous_response_id="resp_b"), 400, "conversation", "mutually_exclusive_parameters"),
    "background without store": (with_(background=True, store=False), 400, "background", None),
    "prompt too long": (with_(model="small", input="word " * 1000), 400, "input", "context_length_exceeded"),
    "the engine refuses": (with_(input="refuse at once"), 400, None, None),
    "the engine is busy": (with_(input="be busy"), 429, None, "rate_limit_exceeded"),
    "the engine is down": (with_(input="be down"), 503, None, "engine_unavailable"),
    "logit_bias on words": (with_(logit_bias={"hello": 1}), 400, "logit_bias", None),
}  # fmt: skip


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
@pytest.mark.parametrize("case", CASES)
def test_a_bad_request_is_told_what_is_wrong(http: httpx.Client, case: str, stream: bool) -> None:
    body, status, param, code = CASES[case]
    if stream and "stream" not in body:
        body = {**body, "stream": True}
    answer = http.post("/v1/responses", json=body)
    error = envelope(answer)
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


RAW: dict[str, tuple[bytes, int]] = {
    "empty": (b"", 400),
    "spaces": (b"   ", 400),
    "not JSON": (b"hello", 400),
    "half JSON": (b'{"model": "scr', 400),
    "an array": (b"[]", 400),
    "a string": (b'"x"', 400),
    "null": (b"null", 400),
    "invalid UTF-8": (b'{"model": "scripted", "input": "\xff\xfe"}', 400),
    "a lone surrogate": (b'{"model": "scripted", "input": "\\ud800"}', 400),
    "NaN": (b'{"model": "scripted", "input": "x", "temperature": NaN}', 400),
    "a huge number": (b'{"model": "scripted", "input": "x", "seed": ' + b"9" * 400 + b"}", 400),
    "too large": (json.dumps(with_(input="x" * 2_100_000)).encode(), 413),
    "a hundred thousand levels": (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "levels that do not end": (b'{"input": ' + b'{"a":' * 100_000, 400),
}


@pytest.mark.parametrize("case", RAW)
def test_a_hostile_body_is_refused(http: httpx.Client, case: str) -> None:
    body, status = RAW[case]
    answer = http.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    envelope(answer)
    assert answer.status_code == status


LONG = "x" * 50_000


@pytest.mark.parametrize(
    "changes",
    [
        {"model": LONG},
        {"previous_response_id": LONG},
        {"conversation": LONG},
        {"input": [{"type": "function_call_output", "call_id": LONG, "output": "x"}]},
        {"input": [{"type": "item_reference", "id": LONG}]},
        {"input": [{"type": "mcp_approval_response", "approval_request_id": LONG, "approve": True}]},
        {"tools": [FUNCTION], "tool_choice": {"type": "function", "name": LONG}},
        {"tools": [FUNCTION], "tool_choice": {"type": "mcp", "server_label": LONG}},
        {"tools": [{"type": LONG}]},
    ],
)  # fmt: skip
def test_a_long_value_is_not_sent_back_whole(http: httpx.Client, changes: dict[str, Any]) -> None:
    answer = http.post("/v1/responses", json=with_(**changes))
    assert answer.status_code in (400, 404)
    assert len(envelope(answer)["message"]) < 1000


def test_too_many_items_are_refused(http: httpx.Client) -> None:
    many = [{"role": "user", "content": "x"}] * 40_000
    answer = http.post("/v1/responses", content=json.dumps(with_(input=many)).encode(),
                       headers={"content-type": "application/json"})  # fmt: skip
    assert envelope(answer)["code"] == "array_above_max_length"


def test_nul_bytes_in_text_are_text(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", json=with_(input="a\x00b"))
    assert answer.status_code == 200
    assert answer.json()["output"][0]["content"][0]["text"] == "a\x00b"


def test_a_byte_order_mark_is_ignored(http: httpx.Client) -> None:
    def sent(encoding: str) -> httpx.Response:
        headers = {"content-type": "application/json"}
        return http.post("/v1/responses", content=json.dumps(OK).encode(encoding), headers=headers)

    assert sent("utf-8-sig").status_code == 200
    assert "UTF-16" in envelope(sent("utf-16"))["message"]


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip"])
def test_other_codings_of_bodies_are_refused_unread(http: httpx.Client, encoding: str) -> None:
    headers = {"content-type": "application/json", "content-encoding": encoding}
    answer = http.post("/v1/responses", content=b"\x1f\x8b" + b"\x00" * 1000, headers=headers)
    assert (answer.status_code, envelope(answer)["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
)
def test_other_media_types_are_refused(http: httpx.Client, media_type: str) -> None:
    answer = http.post("/v1/responses", content=b"{}", headers={"content-type": media_type})
    assert (answer.status_code, envelope(answer)["code"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v1", 404),
        ("GET", "/v1/nothing", 404),
        ("PUT", "/v1/responses", 405),
        ("PATCH", "/v1/responses/resp_1", 405),
        ("GET", "/v1/responses/resp_nothing", 404),
        ("GET", "/v1/responses/a%2Fb", 404),
        ("GET", "/v1/responses/..%2f..%2fetc", 404),
        ("GET", "/v1/responses/%00", 404),
        ("GET", "/v1/responses/" + "x" * 5000, 404),
        ("DELETE", "/v1/responses/resp_nothing", 404),
        ("POST", "/v1/responses/resp_nothing/cancel", 404),
        ("GET", "/v1/responses/resp_nothing/input_items", 404),
        ("GET", "/v1/conversations/conv_nothing", 404),
        ("DELETE", "/v1/conversations/conv_nothing", 404),
        ("GET", "/v1/conversations/conv_nothing/items", 404),
        ("GET", "/v1/models/nothing", 404),
        ("GET", "/v1/models/a/b", 404),
    ],
)  # fmt: skip
def test_unknown_paths_and_ids_have_the_envelope(
    http: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = http.request(method, path)
    envelope(answer)
    assert answer.status_code == status


def test_a_foreground_response_cannot_be_cancelled_or_streamed_again(http: httpx.Client) -> None:
    made = http.post("/v1/responses", json=OK).json()["id"]
    cancelled = http.post(f"/v1/responses/{made}/cancel")
    assert (cancelled.status_code, envelope(cancelled)["type"]) == (400, "invalid_request_error")
    assert envelope(cancelled)["message"].startswith("Cannot cancel a synchronous response.")
    streamed = http.get(f"/v1/responses/{made}", params={"stream": "true"})
    assert (streamed.status_code, envelope(streamed)["param"]) == (400, "stream")


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order"), ("after=msg_x", "after")],
)  # fmt: skip
def test_bad_pages_are_told(http: httpx.Client, query: str, param: str) -> None:
    made = http.post("/v1/responses", json=OK).json()["id"]
    answer = http.get(f"/v1/responses/{made}/input_items?{query}")
    assert envelope(answer)["param"] == param
    assert answer.status_code in (400, 404)


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("?stream=maybe", "stream"),
        ("?include_obfuscation=maybe", "include_obfuscation"),
        ("?include=bogus", "include[0]"),
        ("?include[]=reasoning.encrypted_content&include[]=bogus", "include[1]"),
        ("/input_items?include=bogus", "include[0]"),
        ("/input_items?limit=" + "9" * 5000, "limit"),
    ],
)
def test_bad_queries_are_told(http: httpx.Client, query: str, param: str) -> None:
    made = http.post("/v1/responses", json=OK).json()["id"]
    answer = http.get(f"/v1/responses/{made}{query}")
    assert (answer.status_code, envelope(answer)["param"]) == (400, param)


@pytest.mark.parametrize(
    "query",
    ["?stream=false", "?stream=False", "?stream=", "?include=message.output_text.logprobs", "?include[]=reasoning.encrypted_content"],
)  # fmt: skip
def test_good_queries_are_taken(http: httpx.Client, query: str) -> None:
    made = http.post("/v1/responses", json=OK).json()["id"]
    assert http.get(f"/v1/responses/{made}{query}").status_code == 200


def test_a_clients_request_id_is_kept_and_a_strange_one_is_not(http: httpx.Client) -> None:
    kept = http.get("/v1/models", headers={"x-request-id": "my-id-1"})
    assert kept.headers["x-request-id"] == "my-id-1"
    made = http.get("/v1/models", headers={"x-request-id": "a b <c>"})
    assert made.headers["x-request-id"].startswith("req_")


def test_a_body_that_never_ends_is_given_up(start_server: Any) -> None:
    server = start_server(server="body_timeout = 0.5")
    url = httpx.URL(server.url)
    with socket.create_connection((url.host, url.port), timeout=60) as slow:
        slow.sendall(
            b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b'content-length: 100\r\n\r\n{"model": '
        )
        answer = HTTPResponse(slow)
        answer.begin()
        assert answer.status == 408
        assert json.loads(answer.read())["error"]["code"] == "request_timeout"
