"""The way of an engine's outputs to the sink, for engines that hand them over as they receive them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Generic

from gateway.deltas import Delta
from gateway.loop.sinks import ACCEPTED
from gateway.loop.writers import OutT, Sink
from gateway.protocols import EngineOutput


class Intake(Generic[OutT]):
    """Counts the tokens of a generation, and takes outputs of a `PushingEngine` between the first and the last: they are parsed,
    written and sent in the engine's own callback, and the generation's task is not resumed.

    A context manager: when it is left, all that was taken is sent; or left to the sink, if the generation was cancelled.
    """

    __slots__ = ("_read", "_sending", "_write", "is_open", "sink", "tokens")

    def __init__(
        self,
        read: Callable[[EngineOutput], Sequence[Delta]],
        write: Callable[[Sequence[Delta]], OutT],
        sink: Sink[OutT],
    ) -> None:
        self.tokens = 0
        """Number of tokens so far."""
        self.is_open = False
        """Whether outputs are taken. Set by the generation while it waits for the next one, if the sink has accepted the last."""
        self.sink = sink
        self._read = read
        self._write = write
        self._sending: asyncio.Future[None] | None = None
        """The sending of what was taken last, if the sink has not accepted it at once; or what failed."""

    async def __aenter__(self) -> None:
        """Takes nothing yet."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        cause: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._sending is not None and isinstance(cause, asyncio.CancelledError):
            # As at a deadline: it is not waited for a slow client. The sink keeps what is not sent.
            self._sending.cancel()
        await self.settle()

    def push(self, output: EngineOutput) -> bool:
        """See `PushingEngine`. What fails here is raised by `settle`."""
        if not self.is_open:
            return False
        if (
            output.finish_reason is not None
            or output.prompt_tokens is not None
            or output.cached_tokens is not None
        ):
            self.is_open = False
            return False
        self.tokens += len(output.token_ids)
        try:
            deltas = self._read(output) if output.deltas is None else output.deltas
            if not (out := self._write(deltas)) or (taken := self.sink(out)) is ACCEPTED:
                return True
        except Exception as error:
            taken = _failed(error)
        self.is_open = False
        self._sending = asyncio.ensure_future(taken)
        return True

    async def settle(self) -> None:
        """Take nothing more, and wait until what was taken is sent. Raises what failed."""
        self.is_open = False
        if self._sending is not None:
            sending, self._sending = self._sending, None
            try:
                await sending
            finally:
                del sending  # its error refers to this frame


async def _failed(error: Exception) -> None:
    try:
        raise error
    finally:
        del error  # it refers to this frame
