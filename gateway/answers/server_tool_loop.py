"""Running the gateway's tool calls in APIs whose answers do not consist of Responses items: Chat Completions, plugins'
APIs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Protocol

from gateway.answers.turns import TurnLoop
from gateway.base.deltas import Delta
from gateway.generation.generation import Generation
from gateway.generation.generator import Generator
from gateway.generation.sinks import ByteSink
from gateway.generation.writers import GenerationWriter
from gateway.items.builders import ServerCallBuilder
from gateway.items.items import ItemAssembler
from gateway.models.media import sees_images
from gateway.plugins.protocols import FinishReason, ToolResult
from gateway.services import Services
from gateway.tools.calls import ToolCalls
from gateway.tools.roles import with_unknown
from gateway.tools.toolset import Toolset
from gateway.wire.ids import new_id


class ToolAnswerWriter(GenerationWriter[bytes], Protocol):
    """Writes an answer in which the gateway runs tools. It receives the deltas of these calls like the deltas of other
    calls."""

    def called(self, result: ToolResult) -> bytes:
        """Write the result of a call. Called after `end`, in the order of the calls in the output."""
        ...


class ServerToolLoop:
    """Runs the gateway's tool calls between the generations of one answer.

    It also builds the Responses items of the answer, from which the next turn is made. Renderers and tools thus receive
    the same input from each API.
    """

    def __init__(self, toolset: Toolset, services: Services, generator: Generator) -> None:
        self.offered = bool(toolset.bound_tools)
        self.paused = False
        """Whether the turn limit ended an answer that could continue."""
        self._toolset = toolset
        self._services = services
        self._generator = generator

    async def run(
        self,
        first: Generation,
        writer: ToolAnswerWriter,
        sink: ByteSink,
        *,
        max_turns: int | None = None,
        max_uses: Mapping[str, int] = {},
    ) -> bytes:
        """Run `first` and the generations that follow. Returns the last bytes of their output. Raises `GatewayError`.

        For `max_turns` see `TurnLoop`, for `max_uses` see `ToolCalls`.
        """
        known = first.turn.results
        items = ItemAssembler(roles=with_unknown(self._toolset.roles), new_id=new_id, known=known)
        calls = ToolCalls(
            new_id("resp_"),
            self._toolset.bound_tools,
            turn=first.turn,
            max_calls=None,
            max_uses=max_uses,
            max_parallel=self._services.settings.max_parallel_tool_calls,
            metrics=self._services.metrics,
            sees_images=sees_images(
                self._generator.model.engine, self._generator.model.media_kinds
            ),
        )
        loop = TurnLoop(
            self._generator, items, calls, _WriterWithItems(writer, items), max_turns=max_turns
        )
        async with AsyncExitStack() as sessions:
            last = await loop.run(first, sink, sessions)
        self.paused = loop.paused
        return last or b""


class _WriterWithItems:
    """Writes an answer, and builds its items as well. Implements `TurnWriter`."""

    def __init__(self, writer: ToolAnswerWriter, items: ItemAssembler) -> None:
        self._writer = writer
        self._items = items
        self._feed = writer.feed
        self._write = items.write

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        self._write(deltas)
        return self._feed(deltas)

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        self._write(held)
        self._items.end_generation(reason)
        return self._writer.end(held, reason)

    def called(self, call: ServerCallBuilder, result: ToolResult) -> bytes:
        self._items.call_finished(call, result)
        return self._writer.called(result)
