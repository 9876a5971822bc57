"""Serves one engine to the server processes that are connected to the engine process."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Final

from gateway.access.admission import Admission
from gateway.base.errors import ConfigurationError, GatewayError
from gateway.engines.process.frames import ACCEPT_AGAIN_SECONDS, ENGINE, TOKENIZER, is_own
from gateway.engines.process.messages import Description, Opened, QueueLimits
from gateway.plugins.protocols import (
    AdapterLoadingEngine,
    CountingEngine,
    EmbeddingEngine,
    Engine,
    FormatAwareEngine,
    KnowsAddedTokens,
    LateRefusingEngine,
    MeasuredEngine,
    PrioritizingEngine,
    ScoringEngine,
)
from gateway.process.engine_connection import ServerConnection
from gateway.process.engine_tokenizer import answer_tokenizer_calls

logger = logging.getLogger("gateway.process.engine_host")

FIRST_SECONDS: Final = 60.0
"""How long the engine process waits for its first connection, in seconds."""
_HELLO_SECONDS: Final = 10.0
_FLUSH_SECONDS: Final = 1.0
"""How long server processes may take to read the last outputs after the engine is closed, in seconds."""
_MAX_TOKENIZER_CONNECTIONS: Final = 256


class EngineHost:
    """Hosts one engine. The engine is opened when a server process asks for it, and closed when none is connected any
    more."""

    def __init__(
        self, name: str, open_engine: Callable[[AsyncExitStack], Awaitable[Engine]]
    ) -> None:
        self.name = name
        self._open_engine = open_engine
        self._connections: set[ServerConnection] = set()
        """Connections of server processes that need the engine."""
        self._open: set[ServerConnection] = set()
        """All open connections."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._none_open = asyncio.Event()
        self.draining = False
        """Whether new requests are refused because the engine process is about to end."""
        self._engine: Engine | None = None
        self._owner: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[Engine] = asyncio.get_running_loop().create_future()
        self._tokenizing = threading.Semaphore(_MAX_TOKENIZER_CONNECTIONS)
        self._several = False
        self.admission: Admission | None = None
        """The common queue of all server processes, if there are several."""

    @property
    def engine(self) -> Engine:
        """The open engine. Must not be read before it is open."""
        assert self._engine is not None, "it is asked for after it was opened"
        return self._engine

    async def serve(self, listening: socket.socket) -> None:
        """Serve connections until no server process needs the engine, or until `drain` or `stop` takes effect. Then
        close the engine."""
        accepting = asyncio.create_task(self._accept(listening))
        first = asyncio.get_running_loop().call_later(FIRST_SECONDS, self._leave_if_unused)
        try:
            await self._stop.wait()
        finally:
            first.cancel()
            accepting.cancel()
            await asyncio.wait((accepting,))
            listening.close()
            if self._owner is not None:
                self._owner.cancel()
                await asyncio.wait((self._owner,))
            for connection in tuple(self._open):  # the last server process waits for this
                connection.close()
            if self._open:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_FLUSH_SECONDS):
                        await self._none_open.wait()

    def drain(self, seconds: float) -> None:
        """Refuse new requests, and end as soon as none runs, after `seconds` at the latest."""
        self.draining = True
        if self._connections:
            logger.info("model %s: its engine's process refuses new requests and ends once none runs, in %g s at the latest: it was told to", self.name, seconds)  # fmt: skip
            asyncio.get_running_loop().call_later(seconds, self._stop.set)
        self.work_ended()

    def work_ended(self) -> None:
        """Called when a request or a place in the queue has ended."""
        if self.draining and not any(each.busy for each in self._connections):
            self._stop.set()

    def stop(self, seconds: float) -> None:
        """End as soon as no server process is connected, after `seconds` at the latest."""
        if self._connections:
            logger.info("model %s: its engine's process ends in %g s, or once no server process uses it: it was told to", self.name, seconds)  # fmt: skip
            asyncio.get_running_loop().call_later(seconds, self._stop.set)
        else:
            self._stop.set()

    def joined(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        self._open.add(connection)

    def left(self, connection: ServerConnection) -> None:
        """Called when a server process no longer needs the engine."""
        self._connections.discard(connection)
        self._leave_if_unused()
        self.work_ended()

    def closed(self, connection: ServerConnection) -> None:
        self._open.discard(connection)
        if not self._open:
            self._none_open.set()

    @property
    def in_use(self) -> bool:
        """Whether any server process needs the engine."""
        return bool(self._connections)

    def describe(self) -> Description:
        """The engine's description for server processes."""
        return description_of(self.engine)

    def _leave_if_unused(self) -> None:
        if not self._connections:
            self._stop.set()

    async def opened(self, limits: QueueLimits | None) -> Opened:
        """Open the engine if it is not open, and apply `limits` to the queue."""
        if self._stop.is_set() or self.draining:
            return Opened()  # this process ends: the server process has to use another one
        if self._owner is None:
            self._owner = asyncio.create_task(self._hold_open())
        try:
            engine = await asyncio.shield(self._opened)
        except ConfigurationError as error:
            return Opened(error=str(error))
        if limits is not None:
            self.resize(limits)
        return Opened(description=description_of(engine))

    def resize(self, limits: QueueLimits) -> None:
        """Apply `limits` to new requests."""
        if self.admission is None:
            self.admission = Admission(
                self.name,
                max_running=limits.max_running,
                max_waiting=limits.max_waiting,
                scheduling=limits.scheduling,
                max_waiting_per_key=limits.max_waiting_per_key,
                several=lambda: self._several,
            )
        else:
            self.admission.resize(
                limits.max_running,
                limits.max_waiting,
                scheduling=limits.scheduling,
                max_waiting_per_key=limits.max_waiting_per_key,
            )

    def several_principals(self, several: bool) -> None:
        """Set whether there is more than one principal, as reported by a server process."""
        self._several = several

    async def _hold_open(self) -> None:
        """Open the engine, keep it open until cancelled, and close it. All in one task, as context managers require."""
        try:
            async with AsyncExitStack() as stack:
                self._engine = engine = await self._open_engine(stack)
                self._opened.set_result(engine)
                await asyncio.get_running_loop().create_future()  # until it is cancelled
        except asyncio.CancelledError:
            pass
        except Exception as error:
            if self._opened.done():
                logger.exception("the engine could not be closed")
                return
            if not isinstance(error, ConfigurationError):
                logger.exception("the engine could not be opened")
                text = (
                    error.message
                    if isinstance(error, GatewayError)
                    else f"{type(error).__name__}: {error}"
                )
                error = ConfigurationError(text)
            self._opened.set_exception(error)
            self._opened.exception()  # marks it as retrieved, even if no caller waits any more
        finally:
            self._opened.cancel()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        listening.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:  # such as too many open files
                logger.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            if not is_own(connection):
                connection.close()
                continue
            task = loop.create_task(self._greet(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _greet(self, connection: socket.socket) -> None:
        """Read the first byte of a connection, which says whether it is for the engine or its tokenizer, and serve
        it."""
        loop = asyncio.get_running_loop()
        connection.setblocking(False)
        kind = b""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(_HELLO_SECONDS):
                kind = await loop.sock_recv(connection, 1)
        if kind == ENGINE and not self._stop.is_set():
            await loop.connect_accepted_socket(lambda: ServerConnection(self), connection)
        elif kind == TOKENIZER and self._engine is not None and self._tokenizing.acquire(blocking=False):  # fmt: skip
            tokenizer = self._engine.tokenizer
            connection.setblocking(True)
            threading.Thread(
                target=answer_tokenizer_calls,
                args=(connection, tokenizer, self._tokenizing.release),
                name="tokenizer",
                daemon=True,
            ).start()
        else:
            connection.close()


def description_of(engine: Engine) -> Description:
    """The description of an open engine for server processes."""
    capabilities = engine.capabilities
    tokenizer = engine.tokenizer
    added = None
    if isinstance(tokenizer, KnowsAddedTokens):
        added = dict(tokenizer.added_tokens)
    return Description(
        info=engine.info,
        capabilities=sorted(capabilities),
        has_tokenizer=tokenizer is not None,
        added_tokens=added,
        embedding=engine.embedding
        if "embeddings" in capabilities and isinstance(engine, EmbeddingEngine)
        else None,
        scoring=engine.scoring
        if "rerank" in capabilities and isinstance(engine, ScoringEngine)
        else None,
        counts=isinstance(engine, CountingEngine),
        loads_adapters=isinstance(engine, AdapterLoadingEngine),
        measured=isinstance(engine, MeasuredEngine),
        takes_turns=isinstance(engine, FormatAwareEngine),
        late=isinstance(engine, LateRefusingEngine),
        last_priority=engine.last_priority if isinstance(engine, PrioritizingEngine) else None,
    )
