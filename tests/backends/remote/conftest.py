"""Stub inference servers: real HTTP, scripted behaviour, a prefix cache that counts."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from gateway_testing.free_ports import free_port, held_port

BLOCK = 16
"""Tokens of one block of a stub's cache."""


class Stub:
    """A server that speaks vLLM's `/v1/completions`, and answers a prompt that ends with the token t with t+1, t+2, …

    `offset` is added to these tokens: it tells whose they are.
    `mode` is what it does with the next requests; `stop` and `start` are its death and its return on the same port.
    """

    def __init__(self, cache_blocks: int = 4096) -> None:
        self.mode = "ok"
        self.delay = 0.0
        self.offset = 0
        self.break_after = 3
        self.tokens_at_once = 1
        self.go = asyncio.Event()
        """While it is not set, no token is made."""
        self.go.set()
        self.healthy = True
        self.active = 0
        self.most_active = 0
        self.started: list[str] = []
        self.completed: list[str] = []
        self.aborted: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.connections = 0
        self.host = "127.0.0.1"
        self._held = held_port()  # also while it is away
        self.port: int = self._held.getsockname()[1]
        self._capacity = cache_blocks
        self._cache: OrderedDict[tuple[int, ...], None] = OrderedDict()
        self._runner: web.AppRunner | None = None
        self._hung: set[asyncio.Task[Any]] = set()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    async def start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/completions", self._completions)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, self.port, reuse_address=True)
        await site.start()

    async def stop(self) -> None:
        """Die: open streams break off, the port is closed, the cache is lost."""
        runner, self._runner = self._runner, None
        if runner is not None:
            for task in tuple(self._hung):
                task.cancel()
            for site in tuple(runner.sites):
                await site.stop()
            # What was accepted in the same breath becomes a connection that `cleanup` can close.
            await asyncio.sleep(0.005)
            await runner.cleanup()
        self._cache.clear()

    async def close(self) -> None:
        """Stop, and give the port back."""
        await self.stop()
        self._held.close()

    async def _models(self, _request: web.Request) -> web.Response:
        card = {"id": "stub", "owned_by": "vllm", "root": "stub", "max_model_len": 100_000}
        return web.json_response({"data": [card]})

    async def _health(self, _request: web.Request) -> web.Response:
        if self.mode == "hang":
            await asyncio.sleep(600)
        return web.Response(status=200 if self.healthy else 503)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        body = json.loads(await request.read())
        self.bodies.append(body)
        task = asyncio.current_task()
        assert task is not None
        self._hung.add(task)
        name = body["request_id"]
        self.started.append(name)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        whole = False
        try:
            answer = await self._answer(request, body)
            whole = True
            return answer
        finally:
            self.active -= 1
            (self.completed if whole else self.aborted).append(name)
            self._hung.discard(task)

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        match self.mode:
            case "hang":
                await asyncio.sleep(600)
            case "error":
                return web.json_response({"error": {"message": "CUDA error"}}, status=500)
            case "busy":
                return web.json_response(
                    {"error": {"message": "queue full"}}, status=429, headers={"retry-after": "1"}
                )
            case "refuse":
                error = {"message": "top_p is odd", "param": "top_p", "code": 400}
                return web.json_response({"error": error}, status=400)
            case "garbage":
                return web.Response(body=b"\x00\xff{]\n\n" * 20, content_type="text/event-stream")
            case "nonsense":
                assert isinstance(request.transport, asyncio.Transport)
                request.transport.write(b"\x16\x03\x01 220 smtp ready\r\n\r\n" * 3)
                request.transport.close()
                await asyncio.sleep(0)
        prompt: list[int] = body["prompt"]
        cached = self._read_prompt(prompt)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        before, left = prompt[-1] + self.offset, body["max_tokens"]
        sent = 0
        while left:
            await self.go.wait()
            if self.delay:
                await asyncio.sleep(self.delay)
            if self.mode == "break" and sent >= self.break_after:
                assert request.transport is not None
                request.transport.abort()
                await asyncio.sleep(0)
            if self.mode == "stall" and sent >= self.break_after:
                await asyncio.sleep(600)
            if self.mode == "mumble" and sent >= self.break_after:
                await response.write(b'data: {"choices": [{"token_ids": "what"}]}\n\n')
            count = min(self.tokens_at_once, left)
            ids = [before + sent + number + 1 for number in range(count)]
            left, sent = left - count, sent + count
            choice = {"index": 0, "text": "", "token_ids": ids}
            if not left:
                choice["finish_reason"] = "length"
            await response.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        usage = {"prompt_tokens": len(prompt), "prompt_tokens_details": {"cached_tokens": cached}}
        await response.write(
            b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
        )
        await response.write(b"data: [DONE]\n\n")
        return response

    def _read_prompt(self, prompt: list[int]) -> int:
        """How many tokens were in the cache; all whole blocks are in it afterwards."""
        cached, hit = 0, True
        for end in range(BLOCK, len(prompt) + 1, BLOCK):
            key = (hash(tuple(prompt[:end])),)
            hit = hit and key in self._cache
            cached += BLOCK * hit
            self._cache[key] = None
            self._cache.move_to_end(key)
        while len(self._cache) > self._capacity:
            self._cache.popitem(last=False)
        return cached


@pytest.fixture
async def stubs() -> AsyncIterator[Callable[[int], Awaitable[list[Stub]]]]:
    """Starts stubs, which are stopped at the end."""
    running: list[Stub] = []

    async def start(count: int, **options: Any) -> list[Stub]:
        """`hosts`: one address for each, on one port; else all are on 127.0.0.1, each on a port of its own."""
        hosts = options.pop("hosts", None)
        started = [Stub(**options) for _ in range(count)]
        running.extend(started)
        if hosts is not None:
            port = free_port()
            for stub, stub.host in zip(started, hosts, strict=True):
                stub.port = port
        for stub in started:
            await stub.start()
        return started

    yield start
    for stub in running:
        await stub.close()


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A byte-level `tokenizer.json` with 256 bytes, a word of several bytes and special tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    from gateway.sdk.engines import byte_level_alphabet

    vocab = dict(byte_level_alphabet())
    for number in range(256, 4000):
        vocab[f"w{number}"] = number
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>", "<|call|>"])
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    tokenizer.save(str(path))
    return str(path)
