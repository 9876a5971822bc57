"""The engine process's end of a connection with a server process."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from contextlib import aclosing
from typing import Any, Final, Protocol, cast

import msgspec

from gateway.access.admission import Admission, Reservation
from gateway.base.errors import EngineError, EngineUnavailable, GatewayError
from gateway.engines.process.frames import FrameReader, FrameTooLarge, framed
from gateway.engines.process.messages import (
    Cancel,
    Description,
    Failed,
    FromEngine,
    FromServer,
    MethodCall,
    MethodResult,
    Opened,
    Outputs,
    Piece,
    PlaceRequest,
    PlaceUsed,
    QueueLimits,
    Start,
    WireRequest,
    WireVectors,
    failure_of,
    from_wire,
    pack,
    piece_of,
)
from gateway.plugins.protocols import (
    AdapterLoadingEngine,
    CountingEngine,
    EmbeddingEngine,
    EmbeddingRequest,
    Engine,
    MeasuredEngine,
    Principal,
    RefreshedEngine,
    ScoreRequest,
    ScoringEngine,
    TokensPrompt,
)
from gateway.wire.large_bodies import threaded_if_many

logger = logging.getLogger("gateway.process.engine_connection")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(FromServer).decode
_REFUSED: Final = frozenset({"health", "load_adapter", "reserve"})
"""Methods that are refused while the engine process drains."""
_WITHOUT_PLACE: Final = frozenset({"check", "embed", "score"})
"""Further methods that are refused while it drains, if requests have no places in a queue of this process."""
_KEPT_PLACES: Final = 4096
"""Maximum number of ended places that are kept until the server process reports the tokens that were used."""


class ConnectionHost(Protocol):
    """The interface of an engine's host for its connections."""

    @property
    def engine(self) -> Engine:
        """The open engine."""

    @property
    def admission(self) -> Admission | None:
        """The common queue of all server processes, if there are several."""

    @property
    def in_use(self) -> bool:
        """Whether any server process needs the engine."""

    @property
    def draining(self) -> bool:
        """Whether new requests are refused because the engine process is about to end."""

    def work_ended(self) -> None:
        """Called when a request or a place in the queue has ended."""

    def joined(self, connection: ServerConnection) -> None:
        """Called when a server process has connected."""

    def left(self, connection: ServerConnection) -> None:
        """Called when a server process no longer needs the engine."""

    def closed(self, connection: ServerConnection) -> None:
        """Called when the connection has ended."""

    async def opened(self, limits: QueueLimits | None) -> Opened:
        """Open the engine if it is not open, and apply `limits` to the queue."""

    def describe(self) -> Description:
        """The engine's description for server processes."""

    def resize(self, limits: QueueLimits) -> None:
        """Apply `limits` to new requests."""

    def several_principals(self, several: bool) -> None:
        """Set whether there is more than one principal, as reported by a server process."""


class ServerConnection(asyncio.Protocol):
    """The connection of one server process. When it ends, the process's requests and places in the queue end too."""

    def __init__(self, host: ConnectionHost) -> None:
        self._host = host
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._pieces: list[Piece] = []
        self._others: list[FromEngine] = []
        self._flushing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._left = False
        self._places: dict[int, tuple[Reservation, asyncio.Task[None]]] = {}
        self._ended: OrderedDict[int, Reservation] = OrderedDict()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio.Transport.
        self._transport = cast("asyncio.Transport", transport)
        self._host.joined(self)

    def data_received(self, data: bytes) -> None:
        try:
            for payload in self._reader.feed(data):
                self._received(_decode(payload))
        except (FrameTooLarge, msgspec.MsgspecError):
            logger.exception("a server process has sent what cannot be read")
            if self._transport is not None:
                self._transport.abort()

    def eof_received(self) -> bool:
        """Handle the end of the stream: the server process no longer needs the engine. The connection of the last
        server process stays open until the engine is closed."""
        self._leave()
        return not self._host.in_use

    def connection_lost(self, exc: Exception | None) -> None:
        self._writable.set()
        self._leave()
        self._host.closed(self)

    @property
    def busy(self) -> bool:
        """Whether requests of this server process run or wait."""
        return bool(self._tasks or self._places)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _leave(self) -> None:
        if self._left:
            return
        self._left = True
        for task in self._tasks.values():
            task.cancel()
        for number in [*self._places]:
            self._end_place(number)
        self._host.left(self)

    # Messages.

    def _received(self, message: FromServer) -> None:
        match message:
            case Start() if self._host.draining and self._host.admission is None:
                self._fail(message.stream, _ending())
            case Start():
                self._run(message.stream, self._generate(message.stream, message.request))
            case Cancel():
                task = self._tasks.pop(message.number, None)
                if task is not None:
                    task.cancel()
                self._end_place(message.number)  # if it has reserved one
            case MethodCall(number=0):
                self._handle_notice(message)
            case MethodCall():
                self._run(message.number, self._call(message))

    def _run(self, number: int, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[number] = task

        def done(_: object) -> None:
            self._tasks.pop(number, None)
            self._host.work_ended()

        task.add_done_callback(done)

    async def _generate(self, stream: int, request: WireRequest) -> None:
        finished = False
        try:
            async with aclosing(self._host.engine.generate(from_wire(request))) as outputs:
                async for output in outputs:
                    finished = output.finish_reason is not None
                    scores = output.prompt_logprobs
                    packed = None if scores is None else await threaded_if_many(scores, pack)
                    self._put(piece_of(stream, output, packed=packed))
                    if not self._writable.is_set():
                        await self._writable.wait()
            if not finished:
                self._fail(stream, EngineError("The engine has ended its output without a reason."))  # fmt: skip
        except GatewayError as error:
            self._fail(stream, error)
        except Exception:  # an engine may raise anything
            logger.exception("the engine failed on a request")
            self._fail(stream, EngineError("The engine failed on this request. The server's log says why."))  # fmt: skip

    async def _call(self, call: MethodCall) -> None:
        try:
            value = await self._result(call)
            self._send(MethodResult(call.number, msgspec.Raw(_encode(value))))
        except GatewayError as error:
            self._fail(call.number, error)
        except Exception:  # an engine may raise anything
            logger.exception("the engine failed on %s", call.method)
            self._fail(call.number, EngineError("The engine failed on this request. The server's log says why."))  # fmt: skip

    async def _result(self, call: MethodCall) -> object:
        host, argument = self._host, call.argument
        if host.draining and (
            call.method in _REFUSED or (host.admission is None and call.method in _WITHOUT_PLACE)
        ):
            raise _ending()
        match call.method:
            case "open":
                return await host.opened(_decoded(argument, QueueLimits | None))
            case "health":
                await host.engine.health()
                return None
            case "check":
                await host.engine.check(from_wire(_decoded(argument, WireRequest)))
                return None
            case "reserve":
                return await self._reserve(call.number, _decoded(argument, PlaceRequest))
            case "begin":
                _, turn = self._places[_decoded(argument, int)]
                return await asyncio.shield(turn)
        return await self._optional(call)

    async def _optional(self, call: MethodCall) -> object:
        """Call a method that only some engines have. Raises `EngineError` if this engine does not have it."""
        engine, argument = self._host.engine, call.argument
        match call.method:
            case "count" if isinstance(engine, CountingEngine):
                prompt = from_wire(_decoded(argument, WireRequest)).prompt
                assert isinstance(prompt, TokensPrompt)
                return await engine.count(prompt)
            case "embed" if isinstance(engine, EmbeddingEngine):
                made = await engine.embed(_decoded(argument, EmbeddingRequest))
                return WireVectors([each.tobytes() for each in made.vectors], made.prompt_tokens)
            case "score" if isinstance(engine, ScoringEngine):
                return await engine.score(_decoded(argument, ScoreRequest))
            case "load_adapter" if isinstance(engine, AdapterLoadingEngine):
                name, path = _decoded(argument, tuple[str, str])
                await engine.load_adapter(name, path)
                return self._host.describe()
            case "unload_adapter" if isinstance(engine, AdapterLoadingEngine):
                await engine.unload_adapter(_decoded(argument, str))
                return self._host.describe()
            case "metrics" if isinstance(engine, MeasuredEngine):
                if isinstance(engine, RefreshedEngine):
                    await engine.refresh_metrics()
                return engine.metrics()
        raise EngineError(f"The engine has no method {call.method}.")

    # The queue.

    def _handle_notice(self, call: MethodCall) -> None:
        """Handle a call that is not answered."""
        match call.method:
            case "end":
                self._end_place(_decoded(call.argument, int))
            case "used":
                used = _decoded(call.argument, PlaceUsed)
                if (reservation := self._ended.pop(used.number, None)) is not None:
                    reservation.used(used.prompt, used.output)
            case "resize":
                self._host.resize(_decoded(call.argument, QueueLimits))

    async def _reserve(self, number: int, place: PlaceRequest) -> tuple[int, bool]:
        admission = self._host.admission
        if admission is None:
            raise EngineError("The engine's process has no queue.")
        self._host.several_principals(place.several)
        principal = None
        if place.principal is not None:
            principal = Principal(
                name=place.principal, priority=place.priority, weight=place.weight
            )
        reservation = admission.reserve(
            principal, prompt=place.prompt, priority=place.added_priority
        )
        turn = asyncio.get_running_loop().create_task(reservation.__aenter__())
        self._places[number] = reservation, turn
        await asyncio.sleep(0)  # lets the task run: if a slot is free, it takes it now
        return number, turn.done()

    def _end_place(self, number: int) -> None:
        found = self._places.pop(number, None)
        if found is None:
            return
        reservation, turn = found
        if turn.done() and not turn.cancelled():
            reservation.leave()
            self._ended[number] = reservation
            if len(self._ended) > _KEPT_PLACES:
                self._ended.popitem(last=False)
        else:
            turn.cancel()
            # If the task has not begun to run, cancelling it does not give the place back.
            reservation.cancel()
        self._host.work_ended()

    # Answers.

    def _put(self, piece: Piece) -> None:
        self._pieces.append(piece)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _send(self, message: FromEngine) -> None:
        self._others.append(message)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _fail(self, number: int, error: GatewayError) -> None:
        self._send(Failed(number, failure_of(error)))

    def _flush(self) -> None:
        """Write all waiting messages. The outputs of all streams become one frame."""
        self._flushing = False
        pieces, others = self._pieces, self._others
        self._pieces, self._others = [], []
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        failed: set[int] = set()
        try:
            frames = [framed(_encode(Outputs(pieces)))] if pieces else []
        except Exception:  # an output is too large, or contains a value that cannot be encoded
            frames = [
                self._frame_of(Outputs([piece]), piece.stream, failed)
                for piece in pieces
                if piece.stream not in failed
            ]
        for message in others:
            assert not isinstance(message, Outputs)
            if message.number not in failed:
                frames.append(self._frame_of(message, message.number, failed))
        transport.write(b"".join(frames))

    def _frame_of(self, message: FromEngine, number: int, failed: set[int]) -> bytes:
        """The frame of a message. If it cannot be encoded, end the stream or call `number`: return the frame of an
        error, and add `number` to `failed`."""
        try:
            return framed(_encode(message))
        except FrameTooLarge:
            error = EngineError("The engine's output is too large to be handed on.")
        except Exception:  # such as a number of more than 64 bits
            logger.exception("the engine's output cannot be encoded")
            error = EngineError(
                "The engine's output cannot be handed on. The server's log says why."
            )
        failed.add(number)
        if (task := self._tasks.get(number)) is not None:
            task.cancel()
        return framed(_encode(Failed(number, failure_of(error))))


def _ending() -> EngineUnavailable:
    return EngineUnavailable("The engine's process is about to end, and is then started again.")


def _decoded(argument: msgspec.Raw, kind: Any) -> Any:
    return msgspec.msgpack.decode(argument, type=kind)
