"""Connects llama.cpp's blocking threads to the event loop.

A thread appends outputs to its stream and marks the stream in the engine's mailbox. Only the first mark wakes the loop,
which then serves all streams marked so far. A reader gets everything that is ready as one output.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable

from gateway.sdk import EngineOutput


class RunningRequest:
    """One running request. A thread writes, one coroutine reads.

    Unread data is bounded by the number of tokens that the request may generate.
    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._ready: deque[EngineOutput] = deque()
        self._reader: asyncio.Future[None] | None = None
        self.slot: int | None = None
        """The assigned slot; None if any slot may be used."""
        self.marked = False
        self.aborted = False
        """Set by the reader; the thread checks it at each chunk."""
        self.failure: Exception | None = None
        self._outside: Exception | None = None
        self.ended = False
        """Set by the thread when its llama.cpp call has ended."""
        self.buried = False
        """Set by the loop when it has notified the engine of the end."""

    def put(self, output: EngineOutput) -> None:
        """Pass `output` to the reader. Called in the thread."""
        self._ready.append(output)
        self._mailbox.mark(self)

    def end(self, failure: Exception | None) -> None:
        """End the stream. Called in the thread."""
        self.failure = failure
        self.ended = True
        self._mailbox.mark(self)

    def abandon(self, failure: Exception) -> None:
        """Abort the request from outside: its reader gets `failure`. Called in the loop."""
        self.aborted = True
        self._ready.clear()
        self._outside = failure
        self.wake()

    async def take(self) -> EngineOutput:
        """Return everything that is ready; waits if there is nothing. Raises the failure that ended the stream."""
        while not self._ready or self._outside is not None:
            if self._outside is not None:
                raise self._outside
            if self.ended:
                raise self.failure or EOFError
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._merged()

    def wake(self) -> None:
        """Wake the reader. Called in the loop."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _merged(self) -> EngineOutput:
        output = self._ready.popleft()
        if not self._ready:
            return output
        texts = [output.text]
        ids = list(output.token_ids)
        logprobs = list(output.logprobs) if output.logprobs is not None else None
        while self._ready:
            more = self._ready.popleft()
            texts.append(more.text)
            ids += more.token_ids
            if logprobs is not None:
                logprobs += more.logprobs or ()
            output.finish_reason, output.stop_reason = more.finish_reason, more.stop_reason
        output.text = "".join(texts)
        output.token_ids = ids
        output.logprobs = logprobs
        return output


class Mailbox:
    """Collects the streams with new outputs. One wake-up of the loop serves them all."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ended: Callable[[RunningRequest], None]
    ) -> None:
        """`ended` is called in the loop once for each stream that ends."""
        self._loop = loop
        self._ended = ended
        self._marked: deque[RunningRequest] = deque()
        self._scheduled = False

    def mark(self, stream: RunningRequest) -> None:
        """Notify the loop that `stream` has new outputs. Called in any thread."""
        # Flags are cleared before the data is read, so a mark in between costs at most a needless wake-up.
        if not stream.marked:
            stream.marked = True
            self._marked.append(stream)
        if not self._scheduled:
            self._scheduled = True
            # The loop is closed: there are no readers, and the thread ends at its next chunk.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._scheduled = False
        while self._marked:
            stream = self._marked.popleft()
            stream.marked = False
            if stream.ended and not stream.buried:
                # A thread may end, and mark its stream again, during this check.
                stream.buried = True
                self._ended(stream)
            stream.wake()
