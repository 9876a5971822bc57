"""The date in prompts: every API gives it, and it is that of the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway
from gateway_testing.store_records import record
from tests.e2e.engine_prompts import prompts
from tests.waiting import wait_until

TEMPLATE = (
    "Today is {{ strftime_now('%Y-%m-%d') }}."
    "{% for t in tools or [] %}{{ t | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SAID = [{"role": "user", "content": "hi"}]
REQUESTS: dict[str, dict[str, Any]] = {
    "/responses": {"input": "hi"},
    "/chat/completions": {"messages": SAID},
    "/messages": {"messages": SAID, "max_tokens": 5},
}
COMPACTED = {
    "input": [
        {"role": "user", "content": "I am Ada."},
        {"role": "assistant", "content": "tell me more " * 60},
        {"role": "user", "content": "hi"},
    ],
    "context_management": [{"type": "compaction", "compact_threshold": 100}],
}
FUNCTION = {"name": "f", "parameters": {"type": "object"}}
TOOLS: dict[str, list[Any]] = {
    "/responses": [{"type": "function", **FUNCTION}],
    "/chat/completions": [{"type": "function", "function": FUNCTION}],
}


def model(**options: Any) -> dict[str, Any]:
    named = {"engine": "scripted", "renderer": "chat_template", "parser": "lfm2"}
    return {**named, "chat_template": TEMPLATE, "options": {"chat_template": options}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "models": {"m": model(), "fixed": model(date="2024-02-29"), "none": model(date="none")}
    }
    with run_gateway(config, tmp_path_factory.mktemp("dates")) as running:
        yield running


@pytest.fixture(scope="module")
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


def today() -> str:
    return datetime.now(UTC).date().isoformat()


@pytest.mark.parametrize("more", [{}, COMPACTED], ids=["plain", "compacted"])
def test_what_is_run_again_keeps_its_date(
    tmp_path: Path, gateway_server: Any, more: dict[str, Any]
) -> None:
    """A background response whose process was lost goes on in another, days later here."""
    server = {"rerun_lost": True, "lease_seconds": 1}
    gateway = gateway_server({"server": server, "models": {"m": model()}})
    body = {"model": "m", "input": "hi", "background": True, **more}
    queued = record(status="queued", request=json.dumps(body).encode())
    queued.response.created_at = 1_704_153_600
    store = gateway.services.store

    async def lose() -> None:
        await store.put(queued)
        await store.lease("lost", [queued.id], seconds=0.01)

    gateway.run(lose())
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        where = f"/responses/{queued.id}"
        wait_until(lambda: client.get(where).json()["status"] == "completed", "the end")
    made = prompts(gateway, "m")
    assert len(made) == 2 if more else len(made) == 1
    assert all(each.startswith("Today is 2024-01-02.") for each in made)


def beginning(gateway: RunningGateway, model: str) -> str:
    return prompts(gateway, model)[-1].partition("<|im_start|>")[0]


@pytest.mark.parametrize("path", REQUESTS)
@pytest.mark.parametrize("stream", [False, True])
def test_every_api_gives_the_date(
    gateway: RunningGateway, http: httpx.Client, path: str, stream: bool
) -> None:
    days = {f"Today is {today()}."}
    assert http.post(path, json={"model": "m", "stream": stream, **REQUESTS[path]}).is_success
    days.add(f"Today is {today()}.")
    assert beginning(gateway, "m") in days


def test_a_configured_date_is_given_and_none_is_left_out(
    gateway: RunningGateway, http: httpx.Client
) -> None:
    for model, shown in {"fixed": "Today is 2024-02-29.", "none": "Today is ."}.items():
        assert http.post("/responses", json={"model": model, "input": "hi"}).is_success
        assert beginning(gateway, model) == shown


def test_counted_tokens_are_those_of_the_prompt_with_its_date(
    gateway: RunningGateway, http: httpx.Client
) -> None:
    answer = http.post("/responses", json={"model": "m", "input": "hi"}).json()
    counted = http.post("/responses/input_tokens", json={"model": "m", "input": "hi"}).json()
    assert counted["input_tokens"] == answer["usage"]["input_tokens"]


@pytest.mark.parametrize("path", TOOLS)
@pytest.mark.parametrize("strict", [True, False])
def test_templates_read_strict_as_it_was_sent(
    gateway: RunningGateway, http: httpx.Client, path: str, strict: bool
) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    sent = {"name": "f", "parameters": schema, "strict": strict}
    function = {"function": sent} if path == "/chat/completions" else sent
    body = {"model": "m", "tools": [{"type": "function", **function}], **REQUESTS[path]}
    assert http.post(path, json=body).is_success
    assert f'"strict": {json.dumps(strict)}' in prompts(gateway, "m")[-1]


@pytest.mark.parametrize("path", TOOLS)
def test_an_agent_goes_on_with_a_template_that_prints_no_calls(
    gateway: RunningGateway, http: httpx.Client, path: str
) -> None:
    call = {"name": "f", "arguments": '{"a": "b"}'}
    if path == "/responses":
        items = [*SAID, {"type": "function_call", "call_id": "c", **call}]
        body = {"input": [*items, {"type": "function_call_output", "call_id": "c", "output": "ok"}]}
    else:
        called = [{"id": "c", "type": "function", "function": call}]
        said = {"role": "assistant", "content": None, "tool_calls": called}
        body = {"messages": [*SAID, said, {"role": "tool", "tool_call_id": "c", "content": "ok"}]}
    assert http.post(path, json={"model": "m", "tools": TOOLS[path], **body}).is_success
    assert prompts(gateway, "m")[-1].endswith(
        '<|im_start|>assistant\n<|tool_call_start|>[f(a="b")]<|tool_call_end|><|im_end|>\n'
        "<|im_start|>tool\nok<|im_end|>\n<|im_start|>assistant\n"
    )
