"""Large requests do not hold up others: what grows with the number of their values is done beside the event loop."""

from __future__ import annotations

import http.client
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from benchmarks import null_engine
from gateway_testing.server import RunningGateway, run_gateway

TEMPLATE = Path(__file__).parents[1] / "models" / "tiny-qwen3" / "chat_template.jinja"
OWN = tuple(str(Path(__file__).parents[2] / folder) for folder in ("gateway", "plugins"))
MANY = 8_000
MOST = 15_000
"""Calls of functions on the event loop, of Python and of C, that one request may take: a few milliseconds."""
MOST_OF_HISTORY = 60_000
"""The same for a request that goes on with thousands of items: each is looked at a few times."""
SCHEMA = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(300)}}
TOOLS = [{"type": "function", "name": f"f{n}", "parameters": SCHEMA} for n in range(60)]
MESSAGES = [{"role": ("user", "assistant")[n % 2], "content": f"a{n}"} for n in range(MANY)]
CALLS = [
    each
    for n in range(MANY)
    for each in (
        {"type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": f"c{n}", "output": "a"},
    )
]
CHAT_CALLS = [
    each
    for n in range(MANY)
    for each in (
        {"role": "assistant", "tool_calls": [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": f"c{n}", "content": "a"},
    )
]  # fmt: skip
BLOCKS = [
    each
    for n in range(MANY)
    for each in (
        {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{n}", "content": "a"}]},
    )
]  # fmt: skip
PARTS = [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * 16_000}]
RESPONSE = {"max_output_tokens": 1, "store": False}
STORED = {"max_output_tokens": 1}
CHAT = {"max_tokens": 1}
A = [{"role": "user", "content": "a"}]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": ("/v1/responses", {**RESPONSE, "input": MESSAGES}),
    "messages, streamed": ("/v1/responses", {**RESPONSE, "stream": True, "input": MESSAGES}),
    "messages, stored": ("/v1/responses", {**STORED, "input": MESSAGES}),
    "messages, in the background": ("/v1/responses", {**STORED, "background": True, "input": MESSAGES}),
    "items of a conversation": ("/v1/conversations", {"items": [{"role": "user", "content": [{"type": "input_text", "text": "a"}] * 900} for _ in range(20)]}),
    "chat, stored": ("/v1/chat/completions", {**CHAT, "store": True, "messages": MESSAGES}),
    "parts": ("/v1/responses", {**RESPONSE, "input": PARTS}),
    "parts, stored": ("/v1/responses", {**STORED, "input": PARTS}),
    "calls": ("/v1/responses", {**RESPONSE, "input": CALLS}),
    "tools": ("/v1/responses", {**RESPONSE, "input": "a", "tools": TOOLS}),
    "tools, stored": ("/v1/responses", {**STORED, "input": "a", "tools": TOOLS}),
    "tokens of messages": ("/v1/responses/input_tokens", {"input": MESSAGES}),
    "chat": ("/v1/chat/completions", {**CHAT, "messages": MESSAGES}),
    "calls of chat": ("/v1/chat/completions", {**CHAT, "messages": CHAT_CALLS}),
    "tools of chat": ("/v1/chat/completions", {**CHAT, "messages": A, "tools": [{"type": "function", "function": {k: v for k, v in each.items() if k != "type"}} for each in TOOLS]}),
    "Messages API": ("/v1/messages", {**CHAT, "messages": MESSAGES}),
    "calls of the Messages API": ("/v1/messages", {**CHAT, "messages": BLOCKS}),
    "tools of the Messages API": ("/v1/messages", {**CHAT, "messages": A, "tools": [{"name": each["name"], "input_schema": SCHEMA} for each in TOOLS]}),
    "a schema of a completion": ("/v1/completions", {**CHAT, "prompt": "a", "guided_json": {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(4_900)}}}),
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = {"engine": "null", "chat_template": str(TEMPLATE), "parser": "qwen3"}
    folder = tmp_path_factory.mktemp("beside")
    with run_gateway({"models": {"m": model}}, folder, plugins=[null_engine]) as running:
        yield running


class Calls:
    """Counts the calls of and by functions of this project in a thread while it is on."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            code = frame.f_code
            if code.co_filename.startswith(OWN):
                self.seen[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1


async def profile(calls: Calls | None) -> None:
    """Count in the thread of the event loop, or stop counting."""
    sys.setprofile(calls)


def post(gateway: RunningGateway, path: str, body: dict[str, Any]) -> Any:
    host = gateway.base_url.removeprefix("http://").removesuffix("/v1")
    connection = http.client.HTTPConnection(host, timeout=120)
    sent = json.dumps({"model": "m", **body})
    connection.request("POST", path, sent, {"content-type": "application/json"})
    with connection.getresponse() as answer:
        said = answer.read()
    connection.close()
    assert answer.status == 200, said[:300]
    return None if body.get("stream") else json.loads(said)


@pytest.mark.parametrize("name", REQUESTS)
def test_what_grows_with_a_request_is_done_beside_the_event_loop(
    gateway: RunningGateway, name: str
) -> None:
    path, body = REQUESTS[name]
    calls = Calls()
    gateway.run(profile(calls))
    try:
        post(gateway, path, body)
    finally:
        gateway.run(profile(None))
    assert calls.seen.total() < MOST, calls.seen.most_common(8)


@pytest.mark.parametrize("name", ["messages, stored", "parts, stored", "calls, stored"])
def test_so_is_what_grows_with_the_history_of_a_request(gateway: RunningGateway, name: str) -> None:
    sent = {"calls, stored": CALLS}.get(name) or REQUESTS[name][1]["input"]
    first = post(gateway, "/v1/responses", {**STORED, "input": sent})
    calls = Calls()
    gateway.run(profile(calls))
    try:
        more = {**STORED, "input": "a", "previous_response_id": first["id"]}
        post(gateway, "/v1/responses", more)
    finally:
        gateway.run(profile(None))
    assert calls.seen.total() < MOST_OF_HISTORY, calls.seen.most_common(8)
