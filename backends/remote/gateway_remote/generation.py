"""Reads one stream: converts pieces of a body to engine outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from gateway.sdk import EngineOutput, GatewayError
from gateway_remote.client import StreamedReply
from gateway_remote.failures import ReplicaFailure
from gateway_remote.sse import EventSplitter

END_WITHIN = 1.0
"""Seconds between the finish reason and the end of the stream. Then the output ends without what is missing, such as usage."""


class Builder(Protocol):
    """Builds outputs from events."""

    complete: bool
    """Whether the server's output is complete."""

    @property
    def finished(self) -> bool:
        """Whether the finish reason is known."""
        ...

    @property
    def count(self) -> int:
        """Number of tokens so far."""
        ...

    def cut(self) -> None:
        """End the output although `complete` is not set."""
        ...

    def take(self) -> EngineOutput | None:
        """Return the available output, or None. The last one has the finish reason."""
        ...


BuilderT = TypeVar("BuilderT", bound=Builder)


class RemoteGeneration(Generic[BuilderT]):
    """Reads one reply. Implements `gateway_remote.dispatch.ReplyStream`."""

    def __init__(
        self, reply: StreamedReply, read: Callable[[bytes, BuilderT], None], builder: BuilderT
    ) -> None:
        """`read` passes an event to the builder. `DecodeError` and `ValueError` from it count as failures of the
        server."""
        self.reply = reply
        self.builder = builder
        self._take = reply.take
        self._read = read
        self._splitter = EventSplitter()
        self._streamed = False
        """Whether there was an event."""
        self._failure: Exception | None = None
        """The stream's failure, raised after its earlier output has been returned."""

    @property
    def complete(self) -> bool:
        return self.builder.complete

    @property
    def count(self) -> int:
        return self.builder.count

    def poll(self) -> EngineOutput | None:
        """Return the available output, or None if there is none: `reply.arrival` then has to be awaited.

        Raises `ReplicaFailure` if the stream breaks, stalls or is malformed, and `InvalidRequest` for a late rejection.
        """
        if self._failure is not None:
            raise self._failure
        builder, read = self.builder, self._read
        while True:
            try:
                piece = self._take()
                if piece is None:
                    return self._ended()
                if not piece:
                    return self._awaiting_end() if builder.finished else None
                for event in self._splitter.feed(piece):
                    self._streamed = True
                    if event == b"[DONE]":
                        builder.complete = True
                    else:
                        read(event, builder)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                return self._broken(ReplicaFailure(f"what it sends makes no sense: {error}"))
            except GatewayError as refusal:
                return self._broken(refusal)
            except ReplicaFailure as failure:
                if not builder.finished:
                    return self._broken(failure)
                # All relevant data has arrived.
                builder.cut()
            output = builder.take()
            if output is not None:
                return output
            if builder.complete and not builder.finished:
                raise ReplicaFailure("its stream ended without a finish reason")

    def _awaiting_end(self) -> EngineOutput | None:
        """The finish reason is known, but neither the end of the stream nor, where it would do, the usage: some servers send
        no end and leave the connection open. They get a while."""
        if not self.reply.overdue:
            self.reply.expect_end(END_WITHIN)
            return None
        self.builder.cut()
        return self.builder.take()

    def _broken(self, failure: Exception) -> EngineOutput:
        """Return the output that preceded the failure and raise the failure next time. Raises it now if there is
        none."""
        output = self.builder.take()
        if output is None:
            raise failure
        self._failure = failure
        return output

    def _ended(self) -> EngineOutput:
        rest = self._splitter.rest.strip()
        if rest.startswith(b"{") and not self._streamed:
            # A server that answers with the whole at once, or with an error, though it was asked for a stream.
            try:
                self._read(rest, self.builder)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise ReplicaFailure(f"what it sends makes no sense: {error}") from error
        self.builder.complete = True
        output = self.builder.take()
        if output is None or output.finish_reason is None:
            raise ReplicaFailure("its stream ended without a finish reason")
        return output
