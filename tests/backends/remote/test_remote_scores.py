"""Scores from engines on other machines: from a real llama-server, and from stubs that fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import web

from gateway.base.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    RateLimited,
    Unsupported,
)
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine, EngineRequest, ScoreRequest, TokensPrompt
from gateway_remote import RemoteConfig, open_remote
from gateway_remote.reranking import RemoteReranker
from gateway_testing import ScoreContract
from tests.backends.remote.http_stubs import serve_stub
from tests.waiting import wait_until_async

CONTEXT = EngineContext(name="tiny", path=None)
pytestmark = pytest.mark.anyio


class TestLlamaServer(ScoreContract):
    @pytest.fixture(scope="module")
    async def engine(
        self, llama_reranking_server: str, anyio_backend: str
    ) -> AsyncIterator[Engine]:
        async with open_remote(
            RemoteConfig(urls=[llama_reranking_server], connect_timeout=60), CONTEXT
        ) as opened:
            yield opened

    async def test_the_server_says_that_it_reranks(self, engine: Engine) -> None:
        assert isinstance(engine, RemoteReranker)
        assert engine.capabilities == {"rerank"}
        with pytest.raises(Unsupported, match="only reranks"):
            await engine.check(EngineRequest(request_id="1", prompt=TokensPrompt(token_ids=[1])))


def ask(*documents: str, query: str = "x", **settings: Any) -> ScoreRequest:
    pairs = [(query, document) for document in documents]
    return ScoreRequest(request_id="test", pairs=pairs, **settings)


class RerankStub:
    """A server that scores a document, which is a number, by that number; `mode` is what it does besides."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.owner = "vllm"
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.running = 0
        self.aborted = 0

    async def models(self, _request: web.Request) -> web.Response:
        cards = [
            {"id": "stub", "owned_by": self.owner, "root": "stub", "max_model_len": 64},
            {"id": "extra", "owned_by": self.owner, "root": "extra", "parent": "stub"},
        ]
        return web.json_response({"data": cards})

    async def health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def rerank(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if body["documents"] == ["b"]:  # the question whether it reranks
            return web.json_response({"results": [{"index": 0, "relevance_score": 1}]})
        self.bodies.append(body)
        self.running += 1
        try:
            return await self._answer(request, body)
        except asyncio.CancelledError:
            self.aborted += 1
            raise
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        results: list[Any] = [
            {"index": index, "relevance_score": float(text), "document": {"text": text}}
            for index, text in enumerate(body["documents"])
        ]
        results.sort(key=lambda each: -each["relevance_score"])
        usage = {"prompt_tokens": len(results), "total_tokens": len(results)}
        match self.mode:
            case "hang":
                await asyncio.sleep(600)
            case "error":
                return web.json_response({"error": {"message": "CUDA error"}}, status=500)
            case "busy":
                return web.json_response({}, status=429, headers={"retry-after": "7"})
            case "long":
                message = "This model's maximum model length is 64 tokens."
                return web.json_response({"error": {"message": message}}, status=400)
            case "break":
                response = web.StreamResponse(headers={"content-length": "100000"})
                await response.prepare(request)
                await response.write(b'{"results": [')
                assert request.transport is not None
                request.transport.abort()
                return response
            case "few":
                results.pop()
            case "twice":
                results[0]["index"] = results[-1]["index"]
            case "more":
                results.append({"index": len(results), "relevance_score": 1})
            case "negative":
                results[0]["index"] = -1
            case "null":
                results[0]["relevance_score"] = None
            case "prose":
                return web.Response(text="<html>hello</html>")
            case "huge":
                return web.json_response({"results": results, "padding": "x" * 1_000_000})
        return web.json_response({"results": results, "usage": usage})


StartStubs = Callable[..., Awaitable[tuple[list[RerankStub], RemoteReranker]]]


@pytest.fixture
async def start(anyio_backend: str) -> AsyncIterator[StartStubs]:
    """Start stubs, and an engine in front of them."""
    async with AsyncExitStack() as stack:

        async def begin(
            count: int, owner: str = "vllm", **settings: Any
        ) -> tuple[list[RerankStub], RemoteReranker]:
            stubs = [RerankStub() for _ in range(count)]
            for stub in stubs:
                stub.owner = owner
                stub.url = await serve_stub(stack, stub, "/rerank", stub.rerank)
            config = RemoteConfig(
                urls=[stub.url for stub in stubs],
                wait_for_replica=0.2,
                choice="least_loaded",
                **settings,
            )
            engine = await stack.enter_async_context(open_remote(config, CONTEXT))
            assert isinstance(engine, RemoteReranker)
            return stubs, engine

        yield begin


async def test_scores_are_in_the_order_of_their_documents(start: StartStubs) -> None:
    [stub], engine = await start(1)
    assert engine.scoring.max_input_tokens == 64
    request = ask("1", "3", "-2", adapter="extra", priority=3, truncate_to=-1)
    result = await engine.score(request)
    assert result.scores == [1.0, 3.0, -2.0]
    assert result.prompt_tokens == 3
    assert stub.bodies == [
        {
            "query": "x",
            "documents": ["1", "3", "-2"],
            "model": "extra",
            "priority": 3,
            "truncate_prompt_tokens": -1,
        }
    ]


async def test_each_query_has_its_own_call(start: StartStubs) -> None:
    [stub], engine = await start(1)
    pairs = [("a", "1"), ("a", "2"), ("b", "3"), ("a", "4")]
    request = ScoreRequest(request_id="1", pairs=pairs, max_tokens_per_document=9)
    result = await engine.score(request)
    assert result.scores == [1.0, 2.0, 3.0, 4.0]
    assert sorted((body["query"], body["documents"]) for body in stub.bodies) == [
        ("a", ["1", "2"]),
        ("a", ["4"]),
        ("b", ["3"]),
    ]
    assert all(body["max_tokens_per_doc"] == 9 for body in stub.bodies)


@pytest.mark.parametrize("mode", ["few", "twice", "more", "negative", "null", "prose"])
async def test_an_answer_that_holds_something_else_is_an_error(
    start: StartStubs, mode: str
) -> None:
    [stub], engine = await start(1)
    stub.mode = mode
    with pytest.raises(EngineError):
        await engine.score(ask("1", "2"))
    stub.mode = "ok"
    assert (await engine.score(ask("5"))).scores == [5.0]


@pytest.mark.parametrize("mode", ["error", "break", "busy", "huge"])
async def test_another_replica_takes_over(start: StartStubs, mode: str) -> None:
    stubs, engine = await start(2)
    stubs[0].mode = mode
    while not stubs[0].bodies:  # equally loaded replicas are chosen at random
        assert (await engine.score(ask("1", "2"))).scores == [1.0, 2.0]
    stubs[1].mode = mode
    with pytest.raises(RateLimited if mode == "busy" else EngineUnavailable):
        await engine.score(ask("1", "2"))


async def test_many_documents_go_out_in_pieces_to_all_replicas(start: StartStubs) -> None:
    stubs, engine = await start(2)
    result = await engine.score(ask(*map(str, range(1000))))
    assert result.scores == list(map(float, range(1000)))
    assert result.prompt_tokens == 1000
    assert all(len(stub.bodies) >= 2 for stub in stubs)
    assert max(len(body["documents"]) for stub in stubs for body in stub.bodies) <= 128


async def test_cancelling_aborts_on_the_server(start: StartStubs) -> None:
    [stub], engine = await start(1)
    stub.mode = "hang"
    task = asyncio.create_task(engine.score(ask(*["1"] * 300)))
    await wait_until_async(lambda: stub.running == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(lambda: stub.running == 0)
    assert stub.aborted == 3
    stub.mode = "ok"
    assert (await engine.score(ask("1"))).scores == [1.0]
    assert [row["running"] for row in engine.describe()] == [0]


async def test_a_pair_that_the_server_finds_too_long_is_a_refusal(start: StartStubs) -> None:
    [stub], engine = await start(1)
    stub.mode = "long"
    with pytest.raises(InvalidRequest) as refused:
        await engine.score(ask("1"))
    assert (refused.value.param, refused.value.code) == ("input", "context_length_exceeded")


async def test_adapters_are_known(start: StartStubs) -> None:
    _, engine = await start(1)
    with pytest.raises(InvalidRequest, match="known: extra"):
        await engine.score(ask("1", adapter="other"))


async def test_servers_with_another_route_are_refused(start: StartStubs) -> None:
    with pytest.raises(ConfigurationError, match="vLLM and llama-server"):
        await start(1, owner="tensorrt_llm", task="rerank")
