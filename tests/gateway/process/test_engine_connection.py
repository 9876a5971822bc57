"""What an engine hands over that cannot be sent ends its own request, and no other one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from gateway.base.errors import EngineError
from gateway.engines.process.connection import OutputStream
from gateway.engines.process.frames import FrameReader, framed
from gateway.engines.process.messages import (
    Failed,
    FromEngine,
    Outputs,
    Start,
    error_of,
    output_of,
    to_wire,
)
from gateway.plugins.protocols import EngineOutput, EngineRequest, TokensPrompt
from gateway.process.engine_connection import ServerConnection
from gateway.process.engine_host import EngineHost

pytestmark = pytest.mark.anyio

BAD: dict[str, Callable[[], EngineOutput]] = {
    "object": lambda: EngineOutput(text="x", token_ids=[cast("int", object())]),
    "large": lambda: EngineOutput(text="x", token_ids=[2**70]),
    "surrogate": lambda: EngineOutput(text="\ud800"),
    "reason": lambda: EngineOutput(text="x", finish_reason=cast("Any", "done")),
}


class Engine:
    """Generates good outputs for one request, and one bad output among them for the others."""

    def __init__(self, bad: EngineOutput) -> None:
        self.bad = bad
        self.closed: list[str] = []

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        try:
            yield EngineOutput(text="a")
            yield self.bad if request.request_id == "bad" else EngineOutput(text="b")
            yield EngineOutput(text="c")
            if request.request_id == "bad":
                await asyncio.get_running_loop().create_future()
            yield EngineOutput(text="d", finish_reason="stop")
        finally:
            self.closed.append(request.request_id)


class Wire:
    """A transport that takes all outputs to their streams."""

    def __init__(self, streams: dict[int, OutputStream]) -> None:
        self._streams = streams
        self._reader = FrameReader()

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        for payload in self._reader.feed(data):
            message = msgspec.msgpack.decode(payload, type=FromEngine)
            if isinstance(message, Outputs):
                for piece in message.pieces:
                    self._streams[piece.stream].put(output_of(piece))
                    self._streams[piece.stream].deliver()
            elif isinstance(message, Failed):
                self._streams[message.number].fail(error_of(message.failure))


@pytest.mark.parametrize("bad", BAD)
async def test_an_output_that_cannot_be_sent_fails_its_own_stream(bad: str) -> None:
    streams = {1: OutputStream(1), 2: OutputStream(2)}
    engine = Engine(BAD[bad]())
    host = SimpleNamespace(
        engine=engine, joined=lambda _: None, draining=False, work_ended=lambda: None
    )
    connection = ServerConnection(cast("EngineHost", host))
    connection.connection_made(cast("asyncio.Transport", Wire(streams)))
    for number, name in ((1, "bad"), (2, "good")):
        request = EngineRequest(request_id=name, prompt=TokensPrompt(token_ids=[1]))
        start = Start(number, to_wire(request, with_turn=False))
        connection.data_received(framed(msgspec.msgpack.encode(start)))
    good = ""
    async with asyncio.timeout(60):
        while not streams[2].ended or streams[2].ready:
            good += (await streams[2].take()).text
        assert good == "abcd"
        said = ""
        with pytest.raises(EngineError):
            while True:
                said += (await streams[1].take()).text
        assert said in {"", "a"}, "nothing follows what is missing"
        while len(engine.closed) < 2:  # noqa: ASYNC110  # the engine tells nobody
            await asyncio.sleep(0)
