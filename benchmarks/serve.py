"""The measured servers: `python -m benchmarks.serve floor|litestar|gateway PORT`.

`floor` is the lower bound for the gateway: uvicorn with one bare ASGI application that writes prebuilt event frames
(for JSON, a prebuilt response), and the same ticker. `litestar` writes the same bytes from a handler of a Litestar
application, as its documentation shows it. `gateway` is the real gateway on the null engine.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import uvicorn
from litestar import Litestar, Response, post
from litestar.response import Stream

from benchmarks import null_engine
from benchmarks.null_engine import Ticker
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.plugins.loading import load_plugins
from gateway.process.logs import set_up_logging
from gateway.process.server import run
from gateway.wire.event_frames import sse_frame
from gateway.wire.events import OutputTextDelta

INTERVAL_MS = 50.0
JSON_ANSWER = msgspec.json.encode(
    {"output": [{"text": null_engine.WORD * 64, "padding": "0" * 800}]}
)
"""About as long as the gateway's response of 64 tokens."""
PARSERS = {"plain": "plain", "qwen": "qwen3", "harmony": "harmony"}


def gateway(port: int) -> None:
    """Serve models named `<parser>-paced` and `<parser>-flat`."""
    models = {
        f"{name}-{pace}": ModelConfig(
            engine="null",
            renderer="harmony" if parser == "harmony" else "chat_template",
            parser=parser,
            max_running=100_000,
            options={
                "null": {
                    "interval_ms": interval,
                    "harmony": parser == "harmony",
                    "tools": parser == "qwen3",
                }
            },
        )
        for name, parser in PARSERS.items()
        for pace, interval in (("paced", INTERVAL_MS), ("flat", 0.0))
    }
    set_up_logging("warning")
    config = Config(server=ServerConfig(port=port), models=models)
    run(config, load_plugins(config.plugins, extra=[null_engine]))


class PreparedAnswers:
    """The bytes of one token's event, at the pace given by the request's model name."""

    def __init__(self) -> None:
        self.frame = sse_frame(
            OutputTextDelta(
                sequence_number=1000,
                item_id="msg_" + "0" * 48,
                output_index=0,
                content_index=0,
                delta=null_engine.WORD,
                logprobs=[],
            )
        )
        self._ticker: Ticker | None = None

    def ticker(self, model: str) -> Ticker | None:
        """The ticker that streams of `model` wait for, if it is paced."""
        if self._ticker is None:
            self._ticker = Ticker(INTERVAL_MS / 1000)
        return self._ticker if model.endswith("paced") else None


class Floor:
    """The bare ASGI application."""

    def __init__(self) -> None:
        self._answers = PreparedAnswers()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        request = msgspec.json.decode(body)
        ticker = self._answers.ticker(request["model"])
        if not request["stream"]:
            await self._answer(request["max_output_tokens"], send)
            return
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        frame = self._answers.frame
        for _ in range(request["max_output_tokens"]):
            await (ticker.next() if ticker else asyncio.sleep(0))
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _answer(self, tokens: int, send: Any) -> None:
        """Send one JSON body, after as many loop iterations as the null engine takes for `tokens`."""
        for _ in range(tokens):
            await asyncio.sleep(0)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(JSON_ANSWER)).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": JSON_ANSWER})


class FloorRequest(msgspec.Struct):
    """What the floors read of a request."""

    model: str
    max_output_tokens: int
    stream: bool


def litestar_application() -> Litestar:
    """The Litestar application that writes the floor's bytes."""
    answers = PreparedAnswers()

    async def frames(request: FloorRequest) -> AsyncIterator[bytes]:
        ticker, frame = answers.ticker(request.model), answers.frame
        for _ in range(request.max_output_tokens):
            await (ticker.next() if ticker else asyncio.sleep(0))
            yield frame
        yield b"data: [DONE]\n\n"

    @post("/v1/responses", status_code=200)
    async def respond(data: FloorRequest) -> Response[bytes] | Stream:
        if data.stream:
            return Stream(frames(data), media_type="text/event-stream")
        for _ in range(data.max_output_tokens):
            await asyncio.sleep(0)
        return Response(JSON_ANSWER, media_type="application/json")

    return Litestar([respond], openapi_config=None)


def serve(application: Any, port: int) -> None:
    """Run uvicorn as the gateway does."""
    uvicorn.run(
        application, port=port, http="httptools", loop="uvloop", ws="none", lifespan="off",
        access_log=False, log_level="warning",
    )  # fmt: skip


if __name__ == "__main__":
    which, at = sys.argv[1], int(sys.argv[2])
    if which == "gateway":
        gateway(at)
    else:
        serve(Floor() if which == "floor" else litestar_application(), at)
