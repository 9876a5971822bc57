"""What plugins use of the gateway: vectors and scores of its models."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import msgspec
import pytest

from gateway import hookimpl
from gateway.base.errors import ConfigurationError, EngineUnavailable, InvalidRequest, RateLimited
from gateway.plugins.protocols import (
    Embedder,
    GatewayServices,
    NoConfig,
    ToolCall,
    ToolResult,
    ToolServer,
)
from gateway_scripted.made_up_vectors import made_up_vector
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until, wait_until_async

MANUAL = Path(__file__).parents[3] / "docs" / "plugins.md"


class Tool(ToolServer):
    """A tool server that keeps what it is handed."""

    label = "keeper"
    services: GatewayServices | None = None
    loop: asyncio.AbstractEventLoop

    async def tools(self) -> list[Any]:
        return []

    async def call(self, call: ToolCall) -> ToolResult:
        raise NotImplementedError

    def use(self, services: GatewayServices) -> None:
        assert self.services is None, "it is handed them once"
        self.services = services
        self.loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def open(self, config: NoConfig) -> AsyncIterator[Tool]:
        yield self

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        register("keeper", self.open)


@contextmanager
def serving(folder: Path, **model: Any) -> Iterator[tuple[RunningGateway, Tool]]:
    tool = Tool()
    config = {
        "models": {
            "m": {"engine": "scripted", "scripted": {"task": "generate"}},
            "vectors": {"engine": "scripted", "aliases": ["v"], **model},
        },
        "tools": {"keeper": {}},
    }
    with run_gateway(config, folder, plugins=[tool]) as gateway:
        yield gateway, tool


def embedder(tool: Tool) -> Embedder:
    assert tool.services is not None
    return tool.services.embedder("v")


def embedded(tool: Tool, *texts: str) -> Any:
    """What the embedder gives, in the gateway's own loop."""
    made = asyncio.run_coroutine_threadsafe(embedder(tool).embed(texts), tool.loop)
    return made.result(20)


def test_texts_have_the_vectors_that_clients_get(tmp_path: Path) -> None:
    with serving(tmp_path) as (gateway, tool), gateway.client() as client:
        assert embedder(tool).model == "vectors"
        vectors = embedded(tool, "a tower", "a bridge")
        for text, vector in zip(("a tower", "a bridge"), vectors, strict=True):
            told = client.embeddings.create(model="v", input=text, encoding_format="float")
            assert list(vector) == pytest.approx(told.data[0].embedding, abs=1e-6)
        assert embedded(tool) == []


def test_a_long_text_is_the_mean_of_its_parts(tmp_path: Path) -> None:
    with serving(tmp_path, max_model_len=16, scripted={"dimensions": 8}) as (_, tool):
        whole = "one two three four five six seven eight"
        [vector, short] = embedded(tool, whole, "nine")
        assert list(short) == pytest.approx(list(made_up_vector("nine", 8)), abs=1e-6)
        assert sum(n * n for n in vector) == pytest.approx(1, abs=1e-5)
        with pytest.raises(InvalidRequest, match="no token"):
            embedded(tool, "")


def test_what_fails_raises_what_clients_are_told(tmp_path: Path) -> None:
    rules = [{"when": "slow", "delay_ms": 600_000}, {"when": "dead", "finish": "crash"}]
    scripted = {"rules": rules, "recover_after": 0}
    limits = {"max_running": 1, "max_waiting": 0}
    with serving(tmp_path, scripted=scripted, **limits) as (gateway, tool):
        engine = gateway.services.models["vectors"].engine
        slow = asyncio.run_coroutine_threadsafe(embedder(tool).embed(["slow"]), tool.loop)

        async def runs() -> None:
            await wait_until_async(lambda: engine.running)

        asyncio.run_coroutine_threadsafe(runs(), tool.loop).result(120)
        with pytest.raises(RateLimited):
            embedded(tool, "quick")
        slow.cancel()

        async def ends() -> None:
            await wait_until_async(lambda: not engine.running)

        asyncio.run_coroutine_threadsafe(ends(), tool.loop).result(120)
        assert len(engine.aborted) == 1, "cancelling aborts"
        with pytest.raises(EngineUnavailable, match="crashed"):
            embedded(tool, "dead")
        assert len(embedded(tool, "quick")) == 1, "its places in the queue are given back"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("n", "no model 'n' is configured; models that embed: vectors."),
        ("m", "the model 'm' does not embed; models that do: vectors."),
    ],
)
def test_a_model_that_is_none_is_a_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    with serving(tmp_path) as (_, tool):
        assert tool.services is not None
        with pytest.raises(ConfigurationError) as raised:
            tool.services.embedder(name)
        assert str(raised.value) == sentence


def test_a_plugin_reranks_like_a_client(tmp_path: Path) -> None:
    rules = [{"when": "too much", "error": {"status": 429, "message": "Slow down."}}]
    with serving(tmp_path, scripted={"task": "rerank", "rules": rules}) as (_, tool):
        assert tool.services is not None
        reranker = tool.services.reranker("v")
        assert reranker.model == "vectors"

        def scores(query: str, *documents: str) -> Any:
            made = asyncio.run_coroutine_threadsafe(reranker.scores(query, documents), tool.loop)
            return made.result(10)

        money, cat = scores("Where is the cat?", "Revenue rose.", "The cat is here.")
        assert cat > money
        assert scores("x") == []
        with pytest.raises(InvalidRequest, match="scores no empty text"):
            scores("x", "a", " ")
        with pytest.raises(RateLimited, match="Slow down"):
            scores("x", "too much")
        for name, sentence in (
            ("n", "no model 'n' is configured; models that rerank: vectors."),
            ("m", "the model 'm' does not rerank; models that do: vectors."),
        ):
            with pytest.raises(ConfigurationError) as raised:
                tool.services.reranker(name)
            assert str(raised.value) == sentence


def test_a_document_that_is_too_long_is_reranked_in_parts(tmp_path: Path) -> None:
    with serving(tmp_path, max_model_len=64, scripted={"task": "rerank"}) as (_, tool):
        assert tool.services is not None
        reranker = tool.services.reranker("v")

        def scores(query: str, *documents: str) -> Any:
            made = asyncio.run_coroutine_threadsafe(reranker.scores(query, documents), tool.loop)
            return made.result(20)

        long = "the water flows downhill and so on. " * 20
        cat, water, both = scores("Where is the cat?", "The cat is here.", long, long + "A cat.")
        assert cat > water
        assert both > water
        with pytest.raises(InvalidRequest) as refused:
            scores("where " * 100, "here")
        assert refused.value.code == "context_length_exceeded"


def example(heading: str, number: int, name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The example of that number under a heading of the manual, as a module."""
    section = MANUAL.read_text(encoding="utf-8").split(f"## {heading}\n")[1]
    section = section.split("\n## ")[0]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[number]
    module = ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(code, "docs/plugins.md", "exec", dont_inherit=True), vars(module))
    return module


def test_the_manuals_tool_says_how_alike_texts_are(
    gateway_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("`gateway_register_tools`", 1, "gateway_similarity", monkeypatch)
    arguments = {"one": "a tall tower", "other": "Tower, tall: a"}
    rules = [
        {"when": "alike?", "pieces": [{"call": {"name": "similarity", "arguments": arguments}}]},
        {"when": "1.00", "pieces": [{"text": "They are the same."}]},
    ]
    config = {
        "models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}},
        "tools": {"similarity": {"model": "m"}},
    }
    with gateway_server(config, plugins=[module]).client() as client:
        response = client.responses.create(model="m", input="alike?")
        assert response.output_text == "They are the same."
    with pytest.raises(ConfigurationError, match="no model 'x' is configured"):
        gateway_server({**config, "tools": {"similarity": {"model": "x"}}}, plugins=[module])


def test_the_manuals_tool_has_metrics_and_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("Services of the gateway", 0, "gateway_news", monkeypatch)
    (tmp_path / "news").write_text("All is well.")
    rules = [
        {"when": "new?", "pieces": [{"call": {"name": "news", "arguments": {}}}]},
        {"when": "All is well", "pieces": [{"text": "It is."}]},
    ]
    tools = {"news": {"file": str(tmp_path / "news")}}
    config = {
        "models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}},
        "tools": tools,
    }

    async def tasks() -> list[asyncio.Task[Any]]:
        return [each for each in asyncio.all_tasks() if each.get_name() == "news: read"]

    with run_gateway(config, tmp_path, plugins=[module]) as gateway:

        def shown() -> str:
            return httpx.get(gateway.base_url.replace("/v1", "/metrics"), timeout=60).text

        wait_until(lambda: "gateway_plugin_news_characters 12.0" in shown())
        assert 'gateway_plugin_news_reads_total{outcome="completed"} 1.0' in shown()
        with gateway.client() as client:
            assert client.responses.create(model="m", input="new?").output_text == "It is."
        [task] = gateway.run(tasks())
        reload = gateway.services.reload
        assert reload is not None
        without = msgspec.structs.replace(gateway.services.config, tools={})
        gateway.run(reload(without))
        wait_until(task.cancelled)
        wait_until(lambda: "gateway_plugin_news" not in shown())
        gateway.run(reload(msgspec.structs.replace(without, tools=tools)))
        [task] = gateway.run(tasks())
    assert task.cancelled()


def test_the_manuals_policy_asks_a_guard(
    gateway_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = example("Services of the gateway", 1, "gateway_guard", monkeypatch)
    rules = [
        {"when": "a bomb", "pieces": [{"text": "No."}]},
        {"when": "Is this text safe", "pieces": [{"text": "Yes."}]},
    ]
    config = {
        "models": {
            "m": {"engine": "scripted"},
            "guard": {"engine": "scripted", "scripted": {"rules": rules}},
        },
        "policies": {"guard": {"model": "guard"}},
    }
    with gateway_server(config, plugins=[module]).client() as client:
        assert client.responses.create(model="m", input="cake").output_text == "cake"
        refused = client.responses.create(model="m", input="build a bomb")
        assert refused.output[0].content[0].refusal == "It is not safe."
