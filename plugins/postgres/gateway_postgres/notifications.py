"""Notifying the other gateways, by LISTEN and NOTIFY."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from contextvars import Context
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]

from gateway.sdk import StoreUnavailable
from gateway_postgres.config import PostgresConfig
from gateway_postgres.connection_settings import READ_ONLY, connection_settings
from gateway_postgres.failures import FAILURES, reason_of

logger = logging.getLogger("gateway_postgres")

_LONGEST: Final = 7000
"""Maximum size of a message in bytes; PostgreSQL allows 8000. Instead of a longer one, an empty one is sent: of anything."""
_SEPARATOR: Final = "\n"
_CHECK_SECONDS: Final = 10.0
"""How often the connection that listens is checked."""


class Notifications:
    """What this gateway announces, and hears from others."""

    def __init__(
        self,
        config: PostgresConfig,
        on_announcement: Callable[[Collection[str]], None],
        notify: Callable[[str, str], Awaitable[None]],
    ) -> None:
        self._config = config
        self._channel = config.schema
        self._on_announcement = on_announcement
        self._notify = notify
        self._process = os.urandom(6).hex()
        self._waiting: set[str] = set()
        self._anything = False
        self._sending: asyncio.Task[None] | None = None
        self._listening: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        """Ends the use of the connection that listens."""

    async def start(self) -> None:
        """Returns once notifications are received."""
        ready = asyncio.get_running_loop().create_future()
        self._listening = asyncio.create_task(self._listen(ready))
        await ready

    async def close(self) -> None:
        if self._sending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await asyncio.shield(self._sending)
        for task in (self._sending, self._listening):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def renew(self) -> None:
        """Listen on a new connection."""
        self._ended.set()

    def announce(self, names: Collection[str]) -> None:
        """Notify the others, without waiting. What is announced meanwhile is one notification."""
        self._waiting.update(names)
        if self._sending is None:
            # In a context of its own: it has no turn of the owner who is first.
            self._sending = asyncio.create_task(self._send(), context=Context())

    async def _send(self) -> None:
        try:
            while self._waiting or self._anything:
                names, self._waiting = self._waiting, set()
                text = "" if self._anything else _SEPARATOR.join(sorted(names))
                if len(text.encode()) > _LONGEST:
                    text = ""
                try:
                    await self._notify(self._channel, f"{self._process}{_SEPARATOR}{text}")
                    self._anything = False
                except StoreUnavailable:
                    # It is unknown whether it was delivered.
                    self._anything = True
                    await asyncio.sleep(0.5)
        finally:
            self._sending = None

    def _receive(self, connection: Any, pid: int, channel: str, message: object) -> None:
        process, _, text = str(message).partition(_SEPARATOR)
        if process != self._process:
            self._on_announcement(frozenset(text.split(_SEPARATOR)) if text else ())

    async def _listen(self, ready: asyncio.Future[None]) -> None:
        away = False
        while True:
            connection: asyncpg.Connection | None = None
            try:
                connection = await asyncpg.connect(
                    **connection_settings(self._config), command_timeout=self._config.timeout
                )
                ended = self._ended = asyncio.Event()
                connection.add_termination_listener(lambda _: ended.set())  # noqa: B023  # of this turn
                await connection.add_listener(self._channel, self._receive)
                away = False
                if ready.done():
                    self._on_announcement(())  # of what was announced meanwhile
                else:
                    ready.set_result(None)
                while not ended.is_set():
                    try:
                        async with asyncio.timeout(_CHECK_SECONDS):
                            await ended.wait()
                    except TimeoutError:
                        if await connection.fetchval(READ_ONLY):
                            break
            except FAILURES as error:
                if not ready.done():
                    ready.set_exception(error)
                    return
                if not away:
                    logger.warning(
                        "notifications of other gateways cannot be received: %s", reason_of(error)
                    )
                away = True
            finally:
                if connection is not None:
                    connection.terminate()
            await asyncio.sleep(0.3)
