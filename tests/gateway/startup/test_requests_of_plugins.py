"""What a plugin sends to the gateway while it works for a request: who pays, what it waits for, and that it ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway import hookimpl
from gateway.answers import run_scope
from gateway.base.errors import RateLimited
from gateway.observe.request_context import current_context
from gateway.plugins.protocols import (
    GatewayServices,
    InternalAnswer,
    NoConfig,
    PolicyRefusal,
    PolicyRequest,
    ServerTool,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
)
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

ASK = json.dumps({"model": "guard", "messages": [{"role": "user", "content": "is it safe"}]})


class Asking:
    """A policy and a tool that ask a model."""

    def __init__(self, body: str = ASK, *, policy: bool = True) -> None:
        self.body = body.encode()
        self.policy = policy
        self.embeds = False
        self.refused = ""
        self.answers: list[InternalAnswer] = []
        self.checks: list[str] = []

    def use(self, services: GatewayServices) -> None:
        self.services = services

    async def ask(self) -> InternalAnswer:
        if self.embeds:
            await self.services.embedder("m").embed(["x"])
        before = current_context()
        answer = await self.services.send(
            "/v1/chat/completions",
            self.body,
            delegation=self.services.delegation(models=["guard"]),
        )
        assert current_context() is before, "its own request goes on"
        self.answers.append(answer)
        return answer

    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        self.checks.append(request.model)
        if not self.policy:
            return request
        answer = await self.ask()
        assert answer.status == 200, answer.body
        said = json.loads(answer.body)["choices"][0]["message"]["content"]
        return request if said == "yes" else PolicyRefusal("The guard said no.")

    def output(self, request: PolicyRequest) -> None:
        return None

    @asynccontextmanager
    async def open_policy(self, config: NoConfig) -> AsyncIterator[Asking]:
        yield self

    @asynccontextmanager
    async def open_tool(self, config: NoConfig) -> AsyncIterator[ToolServer]:
        yield AskingTool(self)

    @hookimpl
    def gateway_register_policies(self, register: Any) -> None:
        register("asking", self.open_policy)

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("ask", self.open_tool)


class AskingTool(ToolServer):
    label = "ask"

    def __init__(self, asking: Asking) -> None:
        self.asking = asking

    async def tools(self) -> Sequence[ServerTool]:
        return [ServerTool(definition=ToolDefinition(name="ask"))]

    async def call(self, call: ToolCall) -> ToolResult:
        try:
            return ToolResult(text=f"answered {(await self.asking.ask()).status}")
        except RateLimited as error:
            self.asking.refused = error.message
            return ToolResult(text="answered nothing")


@contextmanager
def serving(
    folder: Path, asking: Asking, *, rules: Sequence[Any] = (), **server: Any
) -> Iterator[RunningGateway]:
    own = [
        {"when": "hello", "pieces": [{"text": "Hi."}]},
        {"when": "use it", "pieces": [{"call": {"name": "ask", "arguments": {}}}]},
        {"when": "answered ", "pieces": [{"text": "Done."}]},
    ]
    config = {
        "server": server,
        "models": {
            "m": {"engine": "scripted", "scripted": {"rules": own}, "max_running": 1},
            "guard": {
                "engine": "scripted",
                "scripted": {
                    "rules": [*rules, {"when": "is it safe", "pieces": [{"text": "yes"}]}]
                },
                "max_running": 1,
            },
        },
        "tools": {"ask": {}},
        "policies": {"asking": {}},
    }
    with run_gateway(config, folder, plugins=[asking]) as gateway:
        yield gateway


KEY = "sk-ada-0123456789abcdef"


def test_a_policy_asks_a_guard(tmp_path: Path) -> None:
    """It is not asked about its own requests. They are paid by the client, who may not use the guard, and count as one with the
    client's."""
    asking = Asking()
    ada = {
        "name": "ada",
        "sha256": hashlib.sha256(KEY.encode()).hexdigest(),
        "models": ["m"],
        "max_concurrent_requests": 1,
        "requests_per_minute": 2,
        "tokens_per_day": 100_000,
    }
    with serving(tmp_path, asking, api_keys=[ada]) as gateway:
        with gateway.client(api_key=KEY) as client:
            raw = client.responses.with_raw_response.create(
                model="m", input="hello", max_output_tokens=50
            )
            assert raw.parse().output_text == "Hi."
            assert raw.headers["x-ratelimit-remaining-requests"] == "1"
            with pytest.raises(openai.NotFoundError):
                client.responses.create(model="guard", input="hello")
        assert asking.checks == ["m"]
        runs = gateway.services.run_history
        assert runs is not None
        assert {(each.model, each.key) for each in runs.newest_first()} == {
            ("m", "ada"),
            ("guard", "ada"),
        }


def use_the_tool(gateway: RunningGateway) -> Any:
    with gateway.client() as client:
        return client.responses.create(model="m", input="use it")


def test_a_tool_asks_another_model(tmp_path: Path) -> None:
    asking = Asking(policy=False)
    with serving(tmp_path, asking) as gateway:
        assert use_the_tool(gateway).output_text == "Done."
    assert [each.status for each in asking.answers] == [200]
    assert asking.checks == ["m", "guard", "m"], "policies hold for what tools send"


def refusal(asking: Asking) -> tuple[int, str]:
    """The status and message of the only answer."""
    [answer] = asking.answers
    return answer.status, json.loads(answer.body)["error"]["message"]


def test_a_tool_that_asks_for_the_place_that_its_request_holds_is_refused(tmp_path: Path) -> None:
    """They would wait for each other until the deadline."""
    asking = Asking(ASK.replace("guard", "m"), policy=False)
    with serving(tmp_path, asking) as gateway:
        assert use_the_tool(gateway).output_text == "Done."
    status, message = refusal(asking)
    assert status == 429
    assert "holds the last place of the model 'm'" in message


def test_a_tool_that_embeds_with_the_place_that_its_request_holds_is_refused(
    tmp_path: Path,
) -> None:
    asking = Asking(policy=False)
    asking.embeds = True
    with serving(tmp_path, asking) as gateway:
        assert use_the_tool(gateway).output_text == "Done."
    assert "holds the last place of the model 'm'" in asking.refused


def test_a_tool_waits_in_a_queue_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_scope, "WAIT_WITHIN", 0.2)
    asking = Asking(policy=False)
    with serving(tmp_path, asking, rules=[{"when": "slow", "delay_ms": 600_000}]) as gateway:
        engine = gateway.services.models["guard"].engine
        with (
            gateway.client() as client,
            client.responses.create(model="guard", input="slow", stream=True),
        ):
            wait_until(lambda: engine.running)
            assert use_the_tool(gateway).output_text == "Done."
            assert gateway.services.models["guard"].admission.waiting == 0
    status, message = refusal(asking)
    assert status == 429
    assert "no place within 0.2 seconds" in message


def test_a_tool_does_not_wait_until_the_model_is_unloaded_that_its_request_uses(
    tmp_path: Path,
) -> None:
    asking = Asking(policy=False)
    with serving(tmp_path, asking, max_loaded=1) as gateway:
        assert use_the_tool(gateway).output_text == "Done."
    status, message = refusal(asking)
    assert status == 503
    assert "no room for it" in message


def test_a_client_that_leaves_ends_what_was_sent_for_it(tmp_path: Path) -> None:
    asking = Asking(policy=False)
    with serving(tmp_path, asking, rules=[{"when": "is it safe", "delay_ms": 600_000}]) as gateway:
        engine = gateway.services.models["guard"].engine
        with gateway.client() as client:
            stream = client.responses.create(model="m", input="use it", stream=True)
            wait_until(lambda: engine.running)
            stream.close()
            wait_until(lambda: not engine.running)
    assert asking.answers == []
