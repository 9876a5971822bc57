"""Vectors from engines on other machines: from a real llama-server and a real vLLM, and from stubs that fail."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gateway.base.errors import (
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    RateLimited,
    Unsupported,
)
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EmbeddingRequest, Engine, EngineRequest, TokensPrompt
from gateway_remote import RemoteConfig, open_remote
from gateway_remote.embedding import RemoteEmbedder
from gateway_testing import EmbeddingContract
from tests.backends.remote.http_stubs import serve_stub
from tests.waiting import wait_until_async

TOKENIZER = str(Path(__file__).parents[2] / "models" / "tiny-qwen3")
CONTEXT = EngineContext(name="tiny", path=None)


class TestLlamaServer(EmbeddingContract):
    @pytest.fixture(scope="module")
    async def engine(
        self, llama_embedding_server: str, anyio_backend: str
    ) -> AsyncIterator[Engine]:
        config = RemoteConfig(
            urls=[llama_embedding_server],
            tokenizer=TOKENIZER,
            max_model_len=512,
            matryoshka=True,
            connect_timeout=60,
        )
        async with open_remote(config, CONTEXT) as opened:
            yield opened

    async def test_the_server_says_that_it_embeds(self, engine: Engine) -> None:
        assert isinstance(engine, RemoteEmbedder)
        assert engine.capabilities == {"embeddings"}
        with pytest.raises(Unsupported, match="only embeds"):
            await engine.check(EngineRequest(request_id="1", prompt=TokensPrompt(token_ids=[1])))

    async def test_what_the_server_finds_too_long_is_a_refusal(
        self, llama_embedding_server: str
    ) -> None:
        """It says so with a 500, which would else be taken for a fault of its own."""
        config = RemoteConfig(
            urls=[llama_embedding_server], tokenizer=TOKENIZER, connect_timeout=60
        )
        async with open_remote(config, CONTEXT) as opened:
            assert isinstance(opened, RemoteEmbedder)
            with pytest.raises(InvalidRequest) as refused:
                await opened.embed(ask([5] * 700))
            assert (refused.value.param, refused.value.code) == (
                "input",
                "context_length_exceeded",
            )
            assert opened.embedding.shorter is False


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed here")
class TestVllmServer(EmbeddingContract):
    @pytest.fixture(scope="module")
    async def engine(self, vllm_embedding_server: str, anyio_backend: str) -> AsyncIterator[Engine]:
        async with open_remote(RemoteConfig(urls=[vllm_embedding_server]), CONTEXT) as opened:
            yield opened

    async def test_the_server_says_that_it_embeds_and_cuts(self, engine: Engine) -> None:
        assert isinstance(engine, RemoteEmbedder)
        result = await engine.embed(ask([5, 6, 7], dimensions=16))
        assert [len(vector) for vector in result.vectors] == [16]
        with pytest.raises(InvalidRequest, match="range"):
            await engine.embed(ask([5, 6, 7], dimensions=100_000))


def ask(*inputs: list[int], **settings: Any) -> EmbeddingRequest:
    return EmbeddingRequest(request_id="test", inputs=inputs, **settings)


class VectorStub:
    """A server whose vector of an input is the input itself, as floats; `mode` is what it does besides."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.running = 0
        self.aborted = 0

    async def models(self, _request: web.Request) -> web.Response:
        cards = [
            {"id": "stub", "owned_by": "vllm", "root": "stub", "max_model_len": 64},
            {"id": "extra", "owned_by": "vllm", "root": "extra", "parent": "stub"},
        ]
        return web.json_response({"data": cards})

    async def health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def embeddings(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        if not body:
            return web.json_response({"error": {"message": "input is missing"}}, status=400)
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
        data: list[Any] = [
            {"index": index, "embedding": base64.b64encode(array("f", ids)).decode()}
            for index, ids in enumerate(body["input"])
        ]
        answer = {"data": data, "usage": {"prompt_tokens": sum(map(len, body["input"]))}}
        match self.mode:
            case "hang":
                await asyncio.sleep(600)
            case "error":
                return web.json_response({"error": {"message": "CUDA error"}}, status=500)
            case "busy":
                return web.json_response({}, status=429, headers={"retry-after": "7"})
            case "break":
                response = web.StreamResponse(headers={"content-length": "100000"})
                await response.prepare(request)
                await response.write(b'{"data": [')
                assert request.transport is not None
                request.transport.abort()
                return response
            case "turned":
                data.reverse()
            case "few":
                data.pop()
            case "twice":
                data[0]["index"] = data[-1]["index"]
            case "garbage":
                data[0]["embedding"] = "????"
            case "half":
                data[0]["embedding"] = base64.b64encode(b"abc").decode()
            case "numbers":
                data = [
                    {"index": index, "embedding": list(map(float, ids))}
                    for index, ids in enumerate(body["input"])
                ]
                answer["data"] = data
            case "prose":
                return web.Response(text="<html>hello</html>")
        return web.json_response(answer)


StartStubs = Callable[[int], Awaitable[tuple[list[VectorStub], RemoteEmbedder]]]


@pytest.fixture
async def start(vocabulary: str, anyio_backend: str) -> AsyncIterator[StartStubs]:
    """Start stubs, and an engine in front of them."""
    async with AsyncExitStack() as stack:

        async def begin(count: int) -> tuple[list[VectorStub], RemoteEmbedder]:
            stubs = [VectorStub() for _ in range(count)]
            for stub in stubs:
                stub.url = await serve_stub(stack, stub, "/v1/embeddings", stub.embeddings)
            config = RemoteConfig(
                urls=[stub.url for stub in stubs],
                tokenizer=vocabulary,
                wait_for_replica=0.2,
                choice="least_loaded",
            )
            engine = await stack.enter_async_context(open_remote(config, CONTEXT))
            assert isinstance(engine, RemoteEmbedder)
            return stubs, engine

        yield begin


pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("mode", ["ok", "turned", "numbers"])
async def test_vectors_are_in_the_order_of_their_inputs(start: StartStubs, mode: str) -> None:
    [stub], engine = await start(1)
    stub.mode = mode
    inputs = [[1, 2], [3, 4], [5, 6]]
    result = await engine.embed(ask(*inputs, adapter="extra", priority=3))
    assert result.vectors == [array("f", ids) for ids in inputs]
    assert result.prompt_tokens == 6
    assert stub.bodies == [
        {"model": "extra", "input": inputs, "encoding_format": "base64", "priority": 3}
    ]


@pytest.mark.parametrize("mode", ["few", "twice", "garbage", "half", "prose"])
async def test_an_answer_that_holds_something_else_is_an_error(
    start: StartStubs, mode: str
) -> None:
    [stub], engine = await start(1)
    stub.mode = mode
    with pytest.raises(EngineError):
        await engine.embed(ask([1, 2], [3, 4]))
    stub.mode = "ok"
    assert len((await engine.embed(ask([1, 2]))).vectors) == 1


@pytest.mark.parametrize("mode", ["error", "break", "busy"])
async def test_another_replica_takes_over(start: StartStubs, mode: str) -> None:
    stubs, engine = await start(2)
    stubs[0].mode = mode
    while not stubs[0].bodies:  # equally loaded replicas are chosen at random
        assert (await engine.embed(ask([1, 2]))).vectors == [array("f", [1, 2])]
    stubs[1].mode = mode
    with pytest.raises(RateLimited if mode == "busy" else EngineUnavailable) as refused:
        await engine.embed(ask([1, 2]))
    assert refused.value.headers == {"retry-after": "7" if mode == "busy" else "1"}


async def test_many_inputs_go_out_in_pieces_to_all_replicas(start: StartStubs) -> None:
    stubs, engine = await start(2)
    inputs = [[number, number + 1] for number in range(1000)]
    result = await engine.embed(ask(*inputs))
    assert result.vectors == [array("f", ids) for ids in inputs]
    assert result.prompt_tokens == 2000
    assert all(len(stub.bodies) >= 2 for stub in stubs)
    assert max(len(body["input"]) for stub in stubs for body in stub.bodies) <= 128


async def test_cancelling_aborts_on_the_server(start: StartStubs) -> None:
    [stub], engine = await start(1)
    stub.mode = "hang"
    task = asyncio.create_task(engine.embed(ask(*[[1, 2]] * 300)))
    await wait_until_async(lambda: stub.running == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(lambda: stub.running == 0)
    assert stub.aborted == 3
    stub.mode = "ok"
    assert (await engine.embed(ask([1, 2]))).vectors
    assert [row["running"] for row in engine.describe()] == [0]


async def test_fewer_numbers_are_the_server_s_to_make(start: StartStubs) -> None:
    [stub], engine = await start(1)
    with pytest.raises(InvalidRequest) as refused:
        await engine.embed(ask([1, 2, 3, 4], dimensions=2))
    assert stub.bodies[-1]["dimensions"] == 2
    assert refused.value.param == "dimensions"
