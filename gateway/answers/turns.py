"""The turn loop: generate, run the gateway's tool calls, extend the turn, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Generic

import msgspec

from gateway.base.errors import GatewayError
from gateway.generation.generation import Generation
from gateway.generation.generator import Generator
from gateway.generation.writers import (
    CallProgressWriter,
    GenerationWriter,
    OutT,
    Sink,
    TurnWriter,
    WriterWithoutCalls,
)
from gateway.items.items import ItemAssembler
from gateway.plugins.protocols import NamedTool, ToolChoice, Turn
from gateway.tools.calls import ToolCalls
from gateway.wire.items import Item

MAX_TURNS = 64
"""Maximum number of generations in one answer. A model that keeps calling tools fails at this limit."""


class TurnLoop(Generic[OutT]):
    """Runs the generations of one answer, until one ends without gateway-run calls."""

    def __init__(
        self,
        generator: Generator,
        items: ItemAssembler,
        calls: ToolCalls,
        writer: TurnWriter[OutT],
        *,
        progress: CallProgressWriter[OutT] | None = None,
        max_turns: int | None = None,
    ) -> None:
        """`items` provides the finished items and the pending calls; `writer` writes into it. `progress` writes the
        states of running calls, if the API shows them. After `max_turns` generations the answer is `paused`. If
        `max_turns` is None, the answer fails after `MAX_TURNS`."""
        self.paused = False
        """Whether `max_turns` ended an answer that could continue."""
        self._generator = generator
        self._items = items
        self._calls = calls
        self._writer = writer
        self._progress = progress
        self._max_turns = max_turns

    async def run(
        self, first: Generation, sink: Sink[OutT], sessions: AsyncExitStack
    ) -> OutT | None:
        """Run `first` and the generations that follow. Returns the last part of their output, which is not sent yet, or
        None. Raises `GatewayError`. `sessions` closes the tool sessions."""
        return await self._run_turns(first, first.turn, sink, sessions)

    async def _run_turns(
        self, generation: Generation, first: Turn, sink: Sink[OutT], sessions: AsyncExitStack
    ) -> OutT | None:
        """Run `generation` and the generations that follow. `first` is the answer's first turn."""
        items, generator, writer = self._items, self._generator, self._writer
        turns = 0
        while True:
            turns += 1
            last = await generator.run(generation, self._generation_writer(), sink)
            if items.limit is not None or not items.pending_calls:
                return last
            if last:
                await sink(last)
            await self._run_calls(sink, sessions)
            if items.calls_client:
                return None
            if generator.spent:  # no tokens are left for an answer
                return writer.end((), "length")
            if turns == self._max_turns:
                self.paused = True
                return None
            if self._max_turns is None and turns == MAX_TURNS:
                raise GatewayError(
                    f"The model called tools in {MAX_TURNS} turns without coming to an answer.",
                    code="max_turns_exceeded",
                )
            generation = await self._prepare(self._next_turn(first, "auto"), sink)

    async def _prepare(self, turn: Turn, sink: Sink[OutT]) -> Generation:
        """Prepare a generation of `turn`, and let the engine check it. May write to `sink`."""
        generation = await self._generator.prepare(turn)
        await self._generator.accept(generation)
        return generation

    def _generation_writer(self) -> GenerationWriter[OutT]:
        """Return the writer of the next generation. Once the limit on calls is reached, it ignores calls of the
        gateway's tools, as OpenAI does."""
        if self._calls.limit_reached:
            return WriterWithoutCalls(self._writer, self._calls.runs)
        return self._writer

    def _context(self, first: Turn) -> Sequence[Item]:
        """Return the items of the next turn."""
        return [*first.items, *self._items.finished_items]

    def _next_turn(self, first: Turn, choice: ToolChoice) -> Turn:
        runs = self._calls.runs
        if self._calls.limit_reached:  # the limit applies to the gateway's tools only
            if all(runs(tool.name) for tool in first.tools):
                choice = "none"
            elif isinstance(choice, NamedTool) and runs(choice.name):
                choice = "auto"
        return msgspec.structs.replace(
            first,
            items=self._context(first),
            results={**first.results, **self._items.results},
            # A forced choice applies to the first call only; otherwise it would force calls endlessly.
            tool_choice=choice,
            # The continued message is now complete.
            continue_final_message=False,
            add_generation_prompt=True,
        )

    async def _run_calls(self, sink: Sink[OutT], sessions: AsyncExitStack) -> None:
        """Run the pending gateway calls concurrently, and write their results in the order of the output."""
        calls, writer, progress = self._items.pending_calls, self._writer, self._progress
        if progress is not None and (out := progress.running(calls)):
            await sink(out)
        async with aclosing(self._calls.run(calls, sessions)) as results:
            async for call, result in results:
                if result is not None:
                    out = writer.called(call, result)
                elif progress is not None:
                    out = progress.progressed(call)
                else:
                    continue
                if out:
                    await sink(out)
