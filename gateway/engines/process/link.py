"""The connection to an engine's process, which is opened again when the process has died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.base.errors import ConfigurationError, EngineUnavailable
from gateway.engines.process.connection import EngineConnection
from gateway.engines.process.messages import Description, Opened, QueueLimits
from gateway.engines.process.starting import EngineSpec, EngineStarter, NotStarted, StartLater

logger = logging.getLogger("gateway.engines.process.link")

_RETRY_SECONDS: Final = 0.05
_LEAVE_SECONDS: Final = 2.0
"""Seconds to wait until an engine closes after its last user has left."""


class EngineLink:
    """A server process's link to an engine's process. Opens the engine again when the process has died."""

    def __init__(
        self,
        spec: EngineSpec,
        starter: EngineStarter,
        limits: QueueLimits | None,
        reopened: Callable[[EngineConnection, Description], Awaitable[None]],
    ) -> None:
        """`limits` apply to all server processes together; None if there is only one. When the engine was opened again,
        `reopened` is called with the new connection and description before requests use it."""
        self._spec = spec
        self._starter = starter
        self.limits = limits
        self._reopened = reopened
        self._connection: EngineConnection | None = None
        self._path = ""
        self._down = "The engine's process is not open."
        self._closing = False
        self._restoring: asyncio.Task[None] | None = None

    @property
    def connection(self) -> EngineConnection:
        """The connection to the open engine. Raises `EngineUnavailable`."""
        connection = self._connection
        if connection is None or not connection.alive:
            raise EngineUnavailable(self._down)
        return connection

    @property
    def path(self) -> str:
        """The path of the open engine's socket. Raises `EngineUnavailable`."""
        _ = self.connection
        return self._path

    async def open(self) -> Description:
        """Open the engine, unless another server process has. Raises `ConfigurationError`."""
        self._connection, self._path, description = await self._open()
        return description

    async def _open(self) -> tuple[EngineConnection, str, Description]:
        ended = ConfigurationError(
            f"The process of the engine {self._spec.config.engine!r} has ended while it opened the model; the log says more."
        )
        tried = False
        while True:
            try:
                path = await self._starter.start(self._spec)
            except StartLater as later:
                if tried:
                    raise ended from None
                await asyncio.sleep(later.seconds)
                continue
            except NotStarted as error:
                raise ConfigurationError(str(error)) from None
            try:
                connection = await EngineConnection.open(path, self._lost)
            except OSError:  # the process is ending, or has ended
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            try:
                opened = await connection.call("open", self.limits, Opened)
            except EngineUnavailable:
                connection.close()
                if tried:
                    raise ended from None
                # The last user may just have left the engine: then a new process is started immediately. After a
                # failure, the starter delays it.
                tried = True
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            except BaseException:
                connection.close()
                raise
            if opened.description is None:
                connection.close()
                await connection.wait_closed()
                if not opened.error:  # the process was about to end
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                raise ConfigurationError(opened.error)
            return connection, path, opened.description

    async def close(self) -> None:
        """Leave the engine. If no other server process uses the engine, it is closed, and this waits for the end."""
        self._closing = True
        self._down = "The engine is shutting down."
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait((self._restoring,))
        connection, self._connection = self._connection, None
        if connection is None or not connection.alive:
            return
        connection.leave()
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await connection.wait_closed()
        except TimeoutError:
            logger.warning("model %s: its engine's process takes its time to end", self._spec.name)
        finally:
            connection.close()

    def _lost(self, connection: EngineConnection) -> None:
        if connection is not self._connection or self._closing:
            return
        self._connection = None
        self._down = "The engine's process has ended, and is being started again."
        logger.error("model %s: its engine's process has ended; its requests have failed", self._spec.name)  # fmt: skip
        self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        while self._connection is None:
            try:
                connection, path, description = await self._open()
            except ConfigurationError as error:
                if isinstance(error.__context__, NotStarted):
                    self._down = str(error)
                    return
                logger.error("model %s: %s", self._spec.name, error)  # noqa: TRY400  # a sentence, not a trace
                await asyncio.sleep(1)
            except Exception:  # an error in the gateway must not leave the model without an engine
                logger.exception("model %s: its engine could not be opened again", self._spec.name)
                await asyncio.sleep(1)
            else:
                try:
                    await self._reopened(connection, description)
                except BaseException:
                    connection.close()
                    raise
                if connection.alive:
                    self._connection, self._path = connection, path
                    logger.info("model %s: its engine's process serves again", self._spec.name)
