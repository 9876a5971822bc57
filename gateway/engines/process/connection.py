"""The server process's end of the connection to an engine's process."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections import deque
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec
from msgspec import Raw

from gateway.base.errors import EngineUnavailable, GatewayError, InvalidRequest
from gateway.engines.process.frames import (
    ENGINE,
    MAX_FRAME,
    FrameReader,
    FrameTooLarge,
    framed,
    require_own,
)
from gateway.engines.process.messages import (
    Cancel,
    Failed,
    FromEngine,
    FromServer,
    MethodCall,
    MethodResult,
    Outputs,
    Start,
    WireRequest,
    error_of,
    output_of,
)
from gateway.plugins.protocols import EngineOutput

logger = logging.getLogger("gateway.engines.process.connection")

T = TypeVar("T")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FromEngine).decode


class OutputStream:
    """The outputs of one generation, for one reader.

    Unread outputs are bounded by the number of tokens that the request may generate.
    """

    __slots__ = ("_began", "_push", "_reader", "ended", "failure", "number", "ready")

    def __init__(
        self, number: int, push: Callable[[EngineOutput], bool] = lambda output: False
    ) -> None:
        """`push`: see `PushingEngine`."""
        self.number = number
        self._push = push
        self.ready: deque[EngineOutput] = deque()
        self.failure: GatewayError | None = None
        self.ended = False
        """Whether no further output will arrive."""
        self._reader: asyncio.Future[None] | None = None
        self._began = False

    def put(self, output: EngineOutput) -> None:
        """Add an output. `deliver` then passes it on."""
        self.ready.append(output)
        if output.finish_reason is not None:
            self.ended = True

    def deliver(self) -> None:
        """Push the ready outputs, joined into one. Wakes the reader if they cannot all be joined, or if the push is not
        accepted."""
        if self._reader is None or self._reader.done():
            return
        ready = self.ready
        if ready and self._began:
            output = self._next()
            if self._push(output):
                if not ready and self.failure is None:
                    return
            else:
                ready.appendleft(output)
        if not self._reader.done():  # the receiver of the pushed output may have cancelled it
            self._reader.set_result(None)

    def fail(self, error: GatewayError) -> None:
        self.failure = error
        self.ended = True
        self.deliver()

    async def take(self) -> EngineOutput:
        """Wait for output, and return all ready outputs joined into one. The first output is returned separately.
        Raises the error that ended the stream."""
        ready = self.ready
        while not ready:
            if self.failure is not None:
                raise self.failure
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        output = self._next()
        self._began = True
        return output

    def _next(self) -> EngineOutput:
        output = self.ready.popleft()
        if self.ready and self._began:
            _join(output, self.ready)
        return output


def _join(output: EngineOutput, more: deque[EngineOutput]) -> None:
    """Move outputs from `more` to the end of `output`, up to the first one that cannot be joined."""
    texts, ids = [output.text], list(output.token_ids)
    logprobs = None if output.logprobs is None else list(output.logprobs)
    while more:
        following = more[0]
        # The first or the last output has the token counts.
        if (
            (following.logprobs is None) != (logprobs is None)
            or following.prompt_logprobs is not None
            or following.prompt_tokens is not None
            or following.cached_tokens is not None
            or following.output_tokens is not None
            or following.reasoning_tokens is not None
            or following.kv_transfer_params is not None
        ):
            break
        more.popleft()
        texts.append(following.text)
        ids += following.token_ids
        if logprobs is not None:
            logprobs += following.logprobs or ()
        output.finish_reason, output.stop_reason = following.finish_reason, following.stop_reason
    output.text = "".join(texts)
    output.token_ids = ids
    output.logprobs = logprobs


class EngineConnection(asyncio.Protocol):
    """A connection to an engine's process. When it is lost, its streams and calls fail, and `lost` is called."""

    def __init__(self, lost: Callable[[EngineConnection], None]) -> None:
        self._lost = lost
        self._reader = FrameReader()
        self._numbers = itertools.count(1)
        self._streams: dict[int, OutputStream] = {}
        self._calls: dict[int, asyncio.Future[Raw]] = {}
        self._transport: asyncio.Transport | None = None
        self._ended = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, path: str, lost: Callable[[EngineConnection], None]) -> EngineConnection:
        """Connect to the socket at `path`. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        made = socket.socket(socket.AF_UNIX)
        try:
            made.setblocking(False)
            await loop.sock_connect(made, path)
            require_own(made)
            await loop.sock_sendall(made, ENGINE)
            _, connection = await loop.create_unix_connection(lambda: cls(lost), sock=made)
        except BaseException:
            made.close()
            raise
        return connection

    @property
    def alive(self) -> bool:
        return not self._ended.done()

    async def wait_closed(self) -> None:
        """Wait until the other end has closed the connection."""
        await asyncio.shield(self._ended)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def leave(self) -> None:
        """Tell the engine's process that no further messages follow. It closes the connection: immediately if other
        server processes use the engine, otherwise once the engine is closed."""
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def start(self, request: WireRequest, push: Callable[[EngineOutput], bool]) -> OutputStream:
        """Start a generation. Raises `GatewayError`. `push`: see `PushingEngine`."""
        stream = OutputStream(next(self._numbers), push)
        self._send(Start(stream.number, request))
        self._streams[stream.number] = stream
        return stream

    def end(self, stream: OutputStream) -> None:
        """Forget a stream. If it has not ended, its request is aborted."""
        if self._streams.pop(stream.number, None) is not None and not stream.ended and self.alive:
            self._send(Cancel(stream.number))

    async def call(
        self, method: str, argument: object, result: type[T], *, seconds: float | None = None
    ) -> T:
        """Call a method of the engine's process. Raises `GatewayError`; `EngineUnavailable` after `seconds`.

        If the call is cancelled, it is also cancelled in the engine's process.
        """
        number = next(self._numbers)
        self._send(MethodCall(number, method, Raw(self._encoded(argument))))
        future: asyncio.Future[Raw] = asyncio.get_running_loop().create_future()
        self._calls[number] = future
        answered = False
        try:
            async with asyncio.timeout(seconds):
                value = await future
            answered = True
        except TimeoutError:
            raise EngineUnavailable(
                f"The engine's process has not answered within {seconds:g} s."
            ) from None
        finally:
            del self._calls[number]
            if not answered and self.alive:
                self._send(Cancel(number))
        decoded: T = msgspec.msgpack.decode(value, type=result)
        return decoded

    def call_without_reply(self, method: str, argument: object) -> None:
        """Call a method without waiting for its result. Does nothing if the connection is lost."""
        if self.alive:
            self._send(MethodCall(0, method, Raw(self._encoded(argument))))

    def _encoded(self, value: object) -> bytes:
        try:
            return _encode(value)
        except OverflowError:
            raise InvalidRequest("A number in the request is out of range.") from None

    def _send(self, message: FromServer) -> None:
        if self._transport is None or not self.alive:
            raise EngineUnavailable("The engine's process has ended.")
        try:
            self._transport.write(framed(self._encoded(message)))
        except FrameTooLarge:
            raise InvalidRequest(
                f"The request is larger than {MAX_FRAME} bytes, which is the limit for this engine.",
                param="input",
            ) from None

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's class does not inherit from it

    def data_received(self, data: bytes) -> None:
        # All outputs of a stream in `data` are delivered together, so that a busy server handles fewer, larger outputs.
        fed: dict[OutputStream, None] = {}
        try:
            for payload in self._reader.feed(data):
                self._received(_decode(payload), fed)
        except (FrameTooLarge, msgspec.MsgspecError):
            logger.exception("the engine's process has sent what cannot be read")
            if self._transport is not None:
                self._transport.abort()
        for stream in fed:
            stream.deliver()

    def _received(self, message: FromEngine, fed: dict[OutputStream, None]) -> None:
        streams = self._streams
        if type(message) is Outputs:
            for piece in message.pieces:
                stream = streams.get(piece.stream)
                if stream is not None:
                    stream.put(output_of(piece))
                    fed[stream] = None
        elif type(message) is Failed:
            error = error_of(message.failure)
            if (failed := streams.get(message.number)) is not None:
                failed.fail(error)
            elif (call := self._calls.get(message.number)) is not None and not call.done():
                call.set_exception(error)
        elif type(message) is MethodResult:
            call = self._calls.get(message.number)
            if call is not None and not call.done():
                # A copy, because the value would otherwise keep its whole frame in memory.
                call.set_result(message.value.copy())

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(None)
        error = EngineUnavailable("The engine's process has ended.")
        for stream in self._streams.values():
            if not stream.ended:
                stream.fail(error)
        for call in self._calls.values():
            if not call.done():
                call.set_exception(error)
        self._lost(self)
