"""An upstream that is a gateway itself, and a gateway in front of it that asks it by either API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from aiohttp import web

from gateway.base.deltas import CallArgumentsDelta, ReasoningDelta, RefusalDelta, TextDelta
from gateway.plugins.hookspecs import EngineContext, ModelContext
from gateway.plugins.protocols import EngineOutput, EngineRequest, Turn
from gateway.wire.item_decoding import decode_items
from gateway_openai import OpenAIConfig, open_openai
from gateway_openai.renderer import UpstreamRenderer
from gateway_testing.free_ports import held_port
from gateway_testing.server import RunningGateway, run_gateway

SCENARIO = Path(__file__).with_name("openai_scenario.json")
SCRIPTED: dict[str, Any] = {"engine": "scripted", "path": str(SCENARIO)}
EXTENSIONS = [
    "stop",
    "seed",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "chat_template_kwargs",
]


class Pair:
    """`front` serves `direct`, and by the upstream `chat` and `responses`: the same script three times."""

    def __init__(self, upstream: RunningGateway, front: RunningGateway) -> None:
        self.upstream = upstream
        self.front = front

    @property
    def engine(self) -> Any:
        """The upstream's scripted engine."""
        return self.upstream.services.models["said"].engine


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with run_gateway({"models": {"said": SCRIPTED}}, tmp_path_factory.mktemp("upstream")) as below:

        def behind(api: str, **more: Any) -> dict[str, Any]:
            told = {"base_url": below.base_url, "api": api, "model": "said", **more}
            return {"engine": "openai", "openai": told}

        models = {
            "direct": SCRIPTED,
            "chat": behind("chat", extensions=[*EXTENSIONS, "structured_outputs"]),
            "chat-custom": behind("chat", takes={"custom_tools": True}),
            "responses": behind("responses", extensions=EXTENSIONS),
        }
        config = {
            "models": models,
            "server": {"chat_reasoning": ["reasoning_content"]},
            "tools": {"probe": {}},
        }
        with run_gateway(
            config, tmp_path_factory.mktemp("front"), plugins=[_ProbePlugin()]
        ) as front:
            yield Pair(below, front)


class _ProbePlugin:
    """A tool that the gateway runs."""

    from gateway import hookimpl

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        from gateway.tools.functions import functions

        register("probe", functions("probe", measure))


def measure(depth: int) -> str:
    """Measure the water."""
    return f"{depth * 2} metres"


class Stub:
    """A raw upstream: `answer` does what a test wants with each request; `bodies` has what was asked."""

    done = b"data: [DONE]\n\n"
    usage: ClassVar[dict[str, Any]] = {
        "choices": [],
        "usage": {
            "prompt_tokens": 7,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }

    @staticmethod
    def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        """A chunk of Chat Completions."""
        return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    @staticmethod
    def encoded(*events: Any) -> bytes:
        """Several events in one write."""
        return b"".join(b"data: %b\n\n" % encode(event) for event in events)

    def __init__(self) -> None:
        self.answer: Callable[[web.Request], Awaitable[web.StreamResponse]] = self.silent
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.listed = 0
        self.listing: web.Response | None = None
        """The answer to a listing, if it is not one of the model m."""
        self.running = 0
        self.aborted = 0
        self._held = held_port()  # also between a stop and a start
        self.port: int = self._held.getsockname()[1]
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def start(self) -> None:
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/{route:.*}", self._post)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.0, handler_cancellation=True
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()

    async def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def close(self) -> None:
        """Stop, and give the port back."""
        await self.stop()
        self._held.close()

    async def _models(self, _request: web.Request) -> web.Response:
        self.listed += 1
        if (answer := self.listing) is not None:
            return web.Response(status=answer.status, body=answer.body)
        return web.json_response({"data": [{"id": "m", "max_model_len": 4096}]})

    async def _post(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(json.loads(await request.read()))
        self.headers.append(request.headers)
        self.running += 1
        try:
            return await self.answer(request)
        except (asyncio.CancelledError, ConnectionError):
            self.aborted += 1
            raise
        finally:
            self.running -= 1

    async def silent(self, _request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError("nobody waits so long")

    def says(self, *events: Any, then: str = "end", pause: float = 0.0) -> None:
        """Answer with server-sent events: JSON, or bytes as they are. `then`: end, hang or die."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            for event in events:
                await asyncio.sleep(pause)
                data = event if isinstance(event, bytes) else b"data: %b\n\n" % encode(event)
                await response.write(data)
            if then == "hang":
                await asyncio.sleep(60)
            if then == "die" and request.transport is not None:
                request.transport.abort()
            return response

        self.answer = answer

    def refuses(self, status: int, body: Any, **headers: str) -> None:
        """Answer with an error; `body` is JSON, or text as it is."""

        async def answer(_request: web.Request) -> web.StreamResponse:
            if isinstance(body, str):
                return web.Response(status=status, text=body, headers=headers)
            return web.json_response(body, status=status, headers=headers)

        self.answer = answer


def encode(event: Any) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode()


@pytest.fixture
async def stub(anyio_backend: str) -> AsyncIterator[Stub]:
    made = Stub()
    await made.start()
    yield made
    await made.close()


class Asker:
    """Opens engines on stubs, and asks them turns."""

    @asynccontextmanager
    async def open(self, *stubs: Stub, **config: Any) -> AsyncIterator[Any]:
        asked = {"model": "m", "urls": [stub.url for stub in stubs], **config}
        self.config = msgspec.convert(asked, OpenAIConfig)
        async with open_openai(self.config, EngineContext(name="m", path=None)) as engine:
            self.engine = engine
            yield engine

    def request(self, turn: Turn | None = None, **more: Any) -> EngineRequest:
        turn = turn or Turn(items=decode_items("Hi"))
        context = ModelContext(info=self.engine.info, tokenizer=None)
        prompt = UpstreamRenderer(self.config, context).render(turn).prompt
        return EngineRequest(request_id="r", prompt=prompt, turn=turn, **more)

    async def ask(self, turn: Turn | None = None, **more: Any) -> list[EngineOutput]:
        """The outputs of a generation."""
        async with aclosing(self.engine.generate(self.request(turn, **more))) as outputs:
            return [output async for output in outputs]

    async def deltas(self, turn: Turn | None = None, **more: Any) -> list[Any]:
        """What it says, text in one piece."""
        told: list[Any] = []
        for output in await self.ask(turn, **more):
            for delta in output.deltas or ():
                last = told[-1] if told else None
                joined = (TextDelta, ReasoningDelta, RefusalDelta, CallArgumentsDelta)
                if isinstance(delta, joined) and type(delta) is type(last):
                    told[-1] = type(delta)(last.text + delta.text)
                else:
                    told.append(delta)
        return told


@pytest.fixture
def asker() -> Asker:
    return Asker()
