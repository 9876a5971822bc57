"""Writers: objects that turn the output of generations into values for a sink."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from gateway.base.deltas import BlockEnded, CallArgumentsDelta, CallEnded, CallStarted, Delta
from gateway.items.builders import ServerCallBuilder
from gateway.plugins.protocols import FinishReason, ToolDefinition, ToolResult
from gateway.wire.items import Item

OutT = TypeVar("OutT")
OutT_co = TypeVar("OutT_co", covariant=True)

Sink: TypeAlias = Callable[[OutT], Awaitable[None]]
"""Receives output that is ready to be sent. Awaiting its result applies back-pressure; see `gateway.generation.sinks`."""


class GenerationWriter(Protocol[OutT_co]):
    """Writes the output of a generation. Each method returns a value for the sink, which is skipped if it is empty."""

    def feed(self, deltas: Sequence[Delta]) -> OutT_co:
        """Write further output. Called for every token."""
        ...

    def end(self, held: Sequence[Delta], reason: FinishReason) -> OutT_co:
        """Write the end of the output. `held` are its last deltas."""
        ...


class WriterWithoutCalls(Generic[OutT]):
    """Writes the output of a generation without disallowed tool calls. A block before a dropped call ends where the
    call begins."""

    def __init__(
        self, writer: GenerationWriter[OutT], drops: Callable[[str], bool] = lambda name: True
    ) -> None:
        """`drops` returns whether calls of a name are dropped; by default all calls are."""
        self._writer = writer
        self._drops = drops
        self._dropping = False
        """Whether the open call is dropped."""

    def feed(self, deltas: Sequence[Delta]) -> OutT:
        return self._writer.feed(self._kept(deltas))

    def end(self, held: Sequence[Delta], reason: FinishReason) -> OutT:
        return self._writer.end(self._kept(held), reason)

    def _kept(self, deltas: Sequence[Delta]) -> list[Delta]:
        kept: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, CallStarted):
                self._dropping = self._drops(delta.name)
                kept.append(BlockEnded() if self._dropping else delta)
            elif not (self._dropping and isinstance(delta, CallArgumentsDelta | CallEnded)):
                kept.append(delta)
        return kept


class CallsWriter(Generic[OutT]):
    """Writes the output of a generation, with corrected names and ids of its calls.

    A model may use another name of a tool, and an upstream may give several calls the same id, although clients match
    results by id.
    """

    def __init__(
        self,
        writer: GenerationWriter[OutT],
        tools: Mapping[str, ToolDefinition],
        earlier: Sequence[Item],
    ) -> None:
        """`tools` is the result of `called_names`. `earlier` are the items of the turn."""
        self._writer = writer
        self._tools = tools
        self._earlier = earlier
        self._ids: set[str] | None = None
        """The ids of all calls so far; None before the first call with an id."""

    def feed(self, deltas: Sequence[Delta]) -> OutT:
        for delta in deltas:
            if type(delta) is CallStarted:
                return self._writer.feed([*map(self._resolved, deltas)])
        return self._writer.feed(deltas)

    def end(self, held: Sequence[Delta], reason: FinishReason) -> OutT:
        return self._writer.end([*map(self._resolved, held)], reason)

    def _resolved(self, delta: Delta) -> Delta:
        if type(delta) is not CallStarted:
            return delta
        tool = self._tools.get(delta.name)
        call_id = delta.call_id
        if call_id:
            if self._ids is None:
                self._ids = {
                    str(made) for item in self._earlier if (made := getattr(item, "call_id", None))
                }
            call_id = unused_call_id(call_id, self._ids)
        return CallStarted(delta.name if tool is None else tool.name, call_id or None)


class ReportingWriter(Generic[OutT]):
    """Writes the output of a generation, and also reports its deltas, for the text log or for a token estimate."""

    def __init__(
        self, writer: GenerationWriter[OutT], report: Callable[[Sequence[Delta]], None]
    ) -> None:
        self._writer = writer
        self._report = report

    def feed(self, deltas: Sequence[Delta]) -> OutT:
        self._report(deltas)
        return self._writer.feed(deltas)

    def end(self, held: Sequence[Delta], reason: FinishReason) -> OutT:
        self._report(held)
        return self._writer.end(held, reason)


_COUNTED = re.compile(r"(.{1,200}:)(\d{1,6})", re.DOTALL)


def unused_call_id(call_id: str, used: set[str]) -> str | None:
    """Return an unused id for a call, and add it to `used`; or None, so that the caller makes a new id.

    This is `call_id` if no other call has it. If the model numbers its calls (Kimi's `functions.NAME:0`), it is the
    next unused number, because the prompt shows these ids. Otherwise the result is None.
    """
    if call_id in used:
        counted = _COUNTED.fullmatch(call_id)
        if counted is None:
            return None
        number = int(counted[2]) + 1
        while (call_id := f"{counted[1]}{number}") in used:
            number += 1
    used.add(call_id)
    return call_id


class TurnWriter(GenerationWriter[OutT_co], Protocol[OutT_co]):
    """Writes the output of several generations and the results of the gateway-run calls between them."""

    def called(self, call: ServerCallBuilder, result: ToolResult) -> OutT_co:
        """Write the result of a call. Called for each call, in the order of the output."""
        ...


class CallProgressWriter(Protocol[OutT_co]):
    """Writes the states of running gateway calls, for APIs that show them."""

    def running(self, calls: Sequence[ServerCallBuilder]) -> OutT_co:
        """Write that `calls` are running. Called after `TurnWriter.end`, if the model called tools of the gateway."""
        ...

    def progressed(self, call: ServerCallBuilder) -> OutT_co:
        """Write that a running call has reported progress. Called before its `TurnWriter.called`."""
        ...
