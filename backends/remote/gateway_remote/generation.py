"""One stream being read: pieces of a body become engine outputs."""

from __future__ import annotations

import msgspec

from gateway.protocols import EngineOutput
from gateway_remote.client import Reply
from gateway_remote.dialects import Dialect
from gateway_remote.failures import ReplicaFailure
from gateway_remote.output import OutputBuilder
from gateway_remote.sse import EventSplitter


class Generation:
    """Reads one reply. After an output with a finish reason there is nothing more to read."""

    def __init__(self, reply: Reply, dialect: Dialect, builder: OutputBuilder) -> None:
        self.reply = reply
        self.builder = builder
        self._dialect = dialect
        self._splitter = EventSplitter()

    async def next(self) -> EngineOutput:
        """What is ready, as one output; waits if that is nothing.

        Raises `ReplicaFailure` for a stream that breaks off, falls silent, or makes no sense, and `InvalidRequest` for a
        refusal that comes late.
        """
        builder, reply, read = self.builder, self.reply, self._dialect.read
        while True:
            try:
                piece = reply.take()
                if piece is None:
                    return self._ended()
                if not piece:
                    await reply.arrival()
                    continue
                for event in self._splitter.feed(piece):
                    if event == b"[DONE]":
                        builder.complete = True
                    else:
                        read(event, builder)
            except (msgspec.DecodeError, ValueError) as error:
                raise ReplicaFailure(f"what it sends makes no sense: {error}") from error
            except ReplicaFailure:
                if not builder.finished:
                    raise
                # All that matters has come.
                builder.cut()
            output = builder.take()
            if output is not None:
                return output
            if builder.complete and not builder.finished:
                raise ReplicaFailure("its stream ended without a finish reason")

    def _ended(self) -> EngineOutput:
        self.builder.complete = True
        output = self.builder.take()
        if output is None or output.finish_reason is None:
            raise ReplicaFailure("its stream ended without a finish reason")
        return output
