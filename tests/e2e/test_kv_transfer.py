"""`kv_transfer_params` reach the engine's first generation, and what its connector tells is in the answer.

Models whose configuration does not name them refuse them: they tell the engine which hosts to connect to.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx
import msgspec
import pytest

from gateway.plugins.protocols import Capability, EngineOutput, EngineRequest
from gateway.sdk import hookimpl
from gateway_scripted import Rule, Scenario, ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

SENT = {"do_remote_prefill": True, "remote_host": "prefill-1"}
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"messages": [{"role": "user", "content": "say"}]},
    "/completions": {"prompt": "say"},
    "/responses": {"input": "say"},
    "/messages": {"max_tokens": 9, "messages": [{"role": "user", "content": "say"}]},
}


class TransferringEngine(ScriptedEngine):
    """A scripted engine that gives back what it was told, with an id."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        return super().capabilities | {"kv_transfer_params", "mm_processor_kwargs"}

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        async with aclosing(super().generate(request)) as outputs:
            async for output in outputs:
                if output.finish_reason is not None and request.kv_transfer_params:
                    output.kv_transfer_params = {**request.kv_transfer_params, "id": "e-1"}
                yield output


class Plugin:
    @asynccontextmanager
    async def open(self, config: Any, context: Any) -> AsyncIterator[ScriptedEngine]:
        rules = msgspec.convert([{"when": "say", "pieces": [{"text": "ok"}]}], list[Rule])
        yield TransferringEngine(Scenario(rules), name=context.name)

    @hookimpl
    def gateway_register_engines(self, register: Any) -> None:
        register("transferring", self.open)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = {"engine": "transferring", "parser": "plain"}
    allowed = ["kv_transfer_params"]
    config = {"models": {"m": {**model, "engine_parameters": allowed}, "closed": model}}
    folder = tmp_path_factory.mktemp("transfer")
    with run_gateway(config, folder, plugins=[Plugin()]) as running:
        yield running


def ask(gateway: RunningGateway, path: str, **fields: Any) -> httpx.Response:
    body = {"model": "m", **BODIES[path], **fields}
    return httpx.post(f"{gateway.base_url}{path}", json=body, timeout=60)


@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
def test_what_the_connector_tells_is_in_the_answer(gateway: RunningGateway, path: str) -> None:
    answer = ask(gateway, path, kv_transfer_params=SENT).json()
    assert answer["kv_transfer_params"] == {**SENT, "id": "e-1"}
    assert "kv_transfer_params" not in ask(gateway, path).json()
    streamed = ask(gateway, path, kv_transfer_params=SENT, stream=True)
    assert streamed.status_code == 200
    assert "prefill-1" not in streamed.text


def test_a_stored_answer_has_no_transfer(gateway: RunningGateway) -> None:
    made = ask(gateway, "/chat/completions", kv_transfer_params=SENT, store=True).json()
    kept = httpx.get(f"{gateway.base_url}/chat/completions/{made['id']}", timeout=60)
    assert kept.status_code == 200
    assert "prefill-1" not in kept.text


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("name", ["kv_transfer_params", "mm_processor_kwargs"])
def test_a_model_that_does_not_name_them_refuses_them(
    gateway: RunningGateway, path: str, name: str
) -> None:
    refused = ask(gateway, path, model="closed", **{name: SENT})
    assert refused.status_code == 400
    assert name in refused.text
    assert ask(gateway, path, model="closed", **{name: {}}).status_code == 200
