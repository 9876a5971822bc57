"""Taking outputs that an engine pushes as it receives them, and sending them to the sink."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Generic

from gateway.base.deltas import Delta
from gateway.generation.sinks import ACCEPTED
from gateway.generation.writers import OutT, Sink
from gateway.plugins.protocols import EngineOutput

MAX_TOGETHER: Final = 64
"""Maximum number of outputs that are parsed together, and of outputs that are read before other tasks may run. For the
latter, every 256 characters count as one more output."""


class Intake(Generic[OutT]):
    """Counts the tokens of a generation, and takes the outputs that a `PushingEngine` pushes between the first and the
    last one. They are parsed, written and sent in the engine's callback, without resuming the generation's task.

    A context manager. On exit it waits until everything taken is sent. If the generation was cancelled, it does not
    wait: the sink keeps the rest.
    """

    __slots__ = ("_kept", "_read", "_sending", "_write", "is_open", "sink", "tokens")

    def __init__(
        self,
        read: Callable[[EngineOutput], Sequence[Delta]],
        write: Callable[[Sequence[Delta]], OutT],
        sink: Sink[OutT],
        kept: list[EngineOutput] | None,
    ) -> None:
        """`kept`: a list to which outputs are added, up to `MAX_TOGETHER`, instead of being parsed, written and sent;
        None if they are not kept."""
        self.tokens = 0
        """Number of tokens so far."""
        self.is_open = False
        """Whether outputs are taken. The generation sets it while it waits for the next output, if the sink accepted
        the last."""
        self.sink = sink
        self._read = read
        self._write = write
        self._kept = kept
        self._sending: asyncio.Future[None] | None = None
        """The unfinished sending of the last output, if the sink did not accept it immediately; or a future with an
        error."""

    async def __aenter__(self) -> None:
        """Enter the context. No outputs are taken until `is_open` is set."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        cause: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._sending is not None and isinstance(cause, asyncio.CancelledError):
            # For example at a deadline: do not wait for a slow client. The sink keeps what is not sent.
            self._sending.cancel()
        await self.settle()

    def push(self, output: EngineOutput) -> bool:
        """Take an output; see `PushingEngine`. Returns False if it was not taken. `settle` raises errors that occur
        here."""
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
        if (kept := self._kept) is not None:
            kept.append(output)
            self.is_open = len(kept) < MAX_TOGETHER
            return True
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
        """Stop taking outputs, and wait until everything taken is sent. Raises the error that occurred in `push`, if
        any."""
        self.is_open = False
        if self._sending is not None:
            sending, self._sending = self._sending, None
            try:
                await sending
            finally:
                del sending  # break the reference cycle of its error and this frame


async def _failed(error: Exception) -> None:
    try:
        raise error
    finally:
        del error  # break the reference cycle: its traceback refers to this frame
