"""One stream being read: pieces of a body become engine outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from gateway.errors import GatewayError
from gateway.protocols import EngineOutput
from gateway_remote.client import Reply
from gateway_remote.failures import ReplicaFailure
from gateway_remote.sse import EventSplitter


class Builder(Protocol):
    """Makes outputs of what events say."""

    complete: bool
    """The server has said all that it will."""

    @property
    def finished(self) -> bool:
        """Whether it is known why the output ended."""
        ...

    @property
    def count(self) -> int:
        """Tokens so far."""
        ...

    def cut(self) -> None:
        """Nothing more will come, though `complete` is not set."""
        ...

    def take(self) -> EngineOutput | None:
        """What is ready; None for nothing. The last one has the finish reason, once all has been said."""
        ...


BuilderT = TypeVar("BuilderT", bound=Builder)


class Generation(Generic[BuilderT]):
    """Reads one reply. Satisfies `gateway_remote.dispatch.Stream`."""

    def __init__(
        self, reply: Reply, read: Callable[[bytes, BuilderT], None], builder: BuilderT
    ) -> None:
        """`read` hands what an event says to the builder; its `DecodeError` or `ValueError` is the server's fault."""
        self.reply = reply
        self.builder = builder
        self._read = read
        self._splitter = EventSplitter()
        self._failure: Exception | None = None
        """What is wrong with the stream, after what it gave before."""

    @property
    def complete(self) -> bool:
        return self.builder.complete

    @property
    def count(self) -> int:
        return self.builder.count

    async def next(self) -> EngineOutput:
        """What is ready, as one output; waits if that is nothing.

        Raises `ReplicaFailure` for a stream that breaks off, falls silent, or makes no sense, and `InvalidRequest` for a
        refusal that comes late.
        """
        if self._failure is not None:
            raise self._failure
        builder, reply, read = self.builder, self.reply, self._read
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
                return self._broken(ReplicaFailure(f"what it sends makes no sense: {error}"))
            except GatewayError as refusal:
                return self._broken(refusal)
            except ReplicaFailure as failure:
                if not builder.finished:
                    return self._broken(failure)
                # All that matters has come.
                builder.cut()
            output = builder.take()
            if output is not None:
                return output
            if builder.complete and not builder.finished:
                raise ReplicaFailure("its stream ended without a finish reason")

    def _broken(self, failure: Exception) -> EngineOutput:
        """What came before the failure, which is raised next time; raises it where nothing did."""
        output = self.builder.take()
        if output is None:
            raise failure
        self._failure = failure
        return output

    def _ended(self) -> EngineOutput:
        self.builder.complete = True
        output = self.builder.take()
        if output is None or output.finish_reason is None:
            raise ReplicaFailure("its stream ended without a finish reason")
        return output
