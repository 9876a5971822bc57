"""Unix sockets on which workers ask each other questions, in a folder of the supervisor."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from gateway.base.errors import ConfigurationError
from gateway.engines.process.frames import HEAD, framed, is_own, require_own
from gateway.http.admin.all_workers import answer
from gateway.services import Services, WorkerAnswers

logger = logging.getLogger("gateway.process.worker_sockets")

ANSWER_SECONDS: Final = 10.0
"""Maximum time that a worker waits for another, in seconds."""
_MAX_QUESTION: Final = 4096
_MAX_ANSWER: Final = 32 * 1024 * 1024
_SUFFIX: Final = ".w"


class WorkerSockets:
    """Answers questions on this worker's socket while the context is entered, and asks the other workers on theirs.
    Implements `gateway.services.Workers`.

    `folder` contains the sockets of all workers. It belongs to the supervisor; other users cannot access it.
    """

    def __init__(self, folder: Path, services: Services) -> None:
        self._folder = folder
        self._services = services
        self._own = folder / f"{os.getpid()}{_SUFFIX}"
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> WorkerSockets:
        try:
            self._own.unlink(missing_ok=True)  # left by a dead process with the same id
            self._server = await asyncio.start_unix_server(self._answer, str(self._own))
        except OSError as error:
            raise ConfigurationError(
                f"The socket {self._own} cannot be made: {error.strerror or error}. Set TMPDIR to another folder."
            ) from error
        self._services.workers = self
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._services.workers = None
        if self._server is not None:
            self._server.close()
        _remove(self._own)

    async def ask(self, question: bytes, *, seconds: float) -> WorkerAnswers:
        """See `gateway.services.Workers`."""
        others = [each for each in self._folder.glob(f"*{_SUFFIX}") if each != self._own]
        silent: list[int] = []
        limit = min(seconds, ANSWER_SECONDS)
        asked = (self._ask(each, question, limit, silent) for each in others)
        answers = await asyncio.gather(*asked)
        return WorkerAnswers([each for each in answers if each is not None], sorted(silent))

    async def _ask(
        self, path: Path, question: bytes, seconds: float, silent: list[int]
    ) -> bytes | None:
        """Ask the worker at `path`. Returns its answer, or None. A worker that is alive and does not answer is added to
        `silent`."""
        name = path.name.removesuffix(_SUFFIX)
        process = int(name) if name.isdecimal() and name.isascii() else 0
        try:
            async with asyncio.timeout(seconds):
                reader, writer = await asyncio.open_unix_connection(str(path))
                try:
                    require_own(writer.get_extra_info("socket"))
                    writer.write(framed(question))
                    answered = await _received(reader, _MAX_ANSWER)
                    if answered is None:
                        logger.warning("the answer of the worker %d is too large", process)
                        silent.append(process)
                    return answered
                finally:
                    writer.close()
        except ConnectionRefusedError:  # the worker was killed
            _remove(path)
        except FileNotFoundError:  # the worker has ended meanwhile
            pass
        except (OSError, EOFError, TimeoutError) as error:
            logger.warning("the worker %d does not answer: %s", process, str(error) or "it hangs")
            silent.append(process)
        return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError, TimeoutError, msgspec.MsgspecError):
                if not is_own(writer.get_extra_info("socket")):
                    return
                async with asyncio.timeout(ANSWER_SECONDS):
                    question = await _received(reader, _MAX_QUESTION)
                    if question is not None:
                        writer.write(framed(answer(self._services, question)))
                        await writer.drain()
        finally:
            writer.close()


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


async def _received(reader: asyncio.StreamReader, most: int) -> bytes | None:
    """Read one frame. Returns its content; None if it is larger than `most` bytes."""
    size = int.from_bytes(await reader.readexactly(HEAD), "big")
    return await reader.readexactly(size) if size <= most else None
