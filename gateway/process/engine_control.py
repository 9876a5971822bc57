"""A private Unix socket on which workers ask their supervisor to start engine processes."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

import msgspec

from gateway.base.errors import ConfigurationError
from gateway.base.temporary_folders import TemporaryFolder
from gateway.engines.process.frames import (
    ACCEPT_AGAIN_SECONDS,
    HEAD,
    MAX_FRAME,
    FrameTooLarge,
    framed,
    is_own,
    receive_frame,
)
from gateway.engines.process.starting import (
    AGAIN_SECONDS,
    EngineProcesses,
    EngineSpec,
    NotStarted,
    StartLater,
)

logger = logging.getLogger("gateway.process.engine_control")

_SECONDS: Final = 10.0


class EngineControl:
    """The supervisor's end of the socket. Entering the context starts a thread that answers the workers."""

    def __init__(self, processes: EngineProcesses) -> None:
        self._processes = processes
        self._folder = TemporaryFolder("litegate-control")
        self.path = str(self._folder.path / "s.sock")
        """The path of the socket."""
        self._listening = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._answer_all, name="engines", daemon=True)

    def __enter__(self) -> EngineControl:
        try:
            self._listening.bind(self.path)
        except OSError as error:
            self._folder.remove()
            raise ConfigurationError(
                f"The socket {self.path} cannot be made: {error.strerror or error}. Set TMPDIR to another folder."
            ) from error
        self._listening.listen(128)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The thread runs until the supervisor ends, because engine processes get a signal when the thread that
        # started them ends.
        self._folder.remove()

    def _answer_all(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError as error:  # such as too many open files
                logger.warning("a worker's connection could not be accepted: %s", error)
                time.sleep(ACCEPT_AGAIN_SECONDS)
                continue
            with connection, suppress(OSError, FrameTooLarge, msgspec.MsgspecError):
                connection.settimeout(_SECONDS)
                if is_own(connection) and (asked := receive_frame(connection)) is not None:
                    spec = msgspec.msgpack.decode(asked, type=EngineSpec)
                    connection.sendall(framed(msgspec.msgpack.encode(self._answer(spec))))

    def _answer(self, spec: EngineSpec) -> tuple[str, Any]:
        try:
            return "path", self._processes.start_now(spec)
        except StartLater as later:
            return "later", later.seconds
        except (NotStarted, ConfigurationError) as error:
            return "no", str(error)
        except Exception as error:  # such as: the system does not start the process
            logger.exception("an engine's process could not be started")
            return "no", f"The engine's process could not be started: {error}."


class SupervisorStarter:
    """A worker's end of the socket. Implements `EngineStarter`."""

    def __init__(self, path: str) -> None:
        self._path = path

    async def start(self, spec: EngineSpec) -> str:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
            try:
                writer.write(framed(msgspec.msgpack.encode(spec)))
                size = int.from_bytes(await reader.readexactly(HEAD), "big")
                answer = await reader.readexactly(min(size, MAX_FRAME))
            finally:
                writer.close()
        except (EOFError, FileNotFoundError, ConnectionRefusedError) as error:  # it is ending
            raise NotStarted(f"The supervisor of the workers does not answer: {error}.") from error
        except OSError as error:  # such as too many open files
            logger.warning("the supervisor of the workers cannot be asked: %s", error)
            raise StartLater(AGAIN_SECONDS) from error
        what, value = msgspec.msgpack.decode(answer)
        match what:
            case "path":
                return str(value)
            case "later":
                raise StartLater(float(value))
            case _:
                raise NotStarted(str(value))
