"""The turn loop: generate, run the calls of the gateway's own tools, extend the turn, go round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Generic, TypeVar

import msgspec

from gateway.deltas import Delta
from gateway.errors import GatewayError
from gateway.loop.generation import Generation, Generator
from gateway.protocols import FinishReason, ToolChoice, ToolResult, Turn
from gateway.responses.assembler import ResponseAssembler
from gateway.responses.open_item.item import OpenServerCall
from gateway.tools.calls import ToolCalls
from gateway.tools.requested import ApprovedCall
from gateway.wire.events import Event
from gateway.wire.items import Compaction, Item

OutT = TypeVar("OutT")

MAX_TURNS = 64
"""Generations in one answer: a model that calls tools without end stops here, failed."""


class TurnLoop(Generic[OutT]):
    """One answer's generations, until one ends without calls that the gateway runs."""

    def __init__(
        self,
        generator: Generator,
        assembler: ResponseAssembler,
        calls: ToolCalls,
        *,
        write: Callable[[Sequence[Delta]], OutT],
        end: Callable[[Sequence[Delta], FinishReason], OutT],
        show: Callable[[Sequence[Event]], OutT],
        tell: Callable[[OpenServerCall, ToolResult], OutT] | None = None,
        begin: Callable[[Generation], None] | None = None,
        max_turns: int | None = None,
        prepare: Callable[[Turn, Callable[[OutT], Awaitable[None]]], Awaitable[Generation]]
        | None = None,
    ) -> None:
        """`assembler` has the items and the calls; `write` and `end` are as `Generator.run` takes them, and must feed it.

        `show` turns the events of running calls into what the sink takes; with `tell`, that does so with their results.
        `begin` is told of each generation but the first. `max_turns` generations, and the answer is `paused`; without it,
        `MAX_TURNS`, and it fails. `prepare` makes each generation but the first in place of the loop,
        and may tell the sink of something before.
        """
        self._prepare = prepare
        self._context: Sequence[Item] = ()
        """What comes before all that was made since the last compaction."""
        self.paused = False
        """Whether the answer could go on, and was ended by `max_turns`."""
        self._tell = tell
        self._begin = begin
        self._max_turns = max_turns
        self._generator = generator
        self._assembler = assembler
        self._calls = calls
        self._write = write
        self._end = end
        self._show = show

    async def run(
        self,
        first: Generation,
        sink: Callable[[OutT], Awaitable[None]],
        sessions: AsyncExitStack,
        *,
        approved: Sequence[ApprovedCall] = (),
    ) -> None:
        """Make `first` and what follows from it. Raises `GatewayError`. Tool sessions are closed with `sessions`.

        `approved` calls are run before; what comes of them is in the first prompt.
        """
        assembler, generator = self._assembler, self._generator
        generation = first
        self._context = first.turn.items
        if approved:
            for call in approved:
                written = assembler.approved_call(call.name, call.arguments, call.request_id)
                if out := self._show(written):
                    await sink(out)
            await self._run_calls(sink, sessions)
            generation = await self._next_generation(first.turn, first.turn.tool_choice, sink)
        turns = 0
        while True:
            turns += 1
            await generator.run(generation, self._write, self._end, sink)
            if assembler.cut_off or not assembler.pending_calls:
                return
            await self._run_calls(sink, sessions)
            if assembler.calls_client:
                return
            if generator.spent:  # nothing is left to answer with
                if out := self._end((), "length"):
                    await sink(out)
                return
            if turns == self._max_turns:
                self.paused = True
                return
            if self._max_turns is None and turns == MAX_TURNS:
                raise GatewayError(
                    f"The model called tools in {MAX_TURNS} turns without coming to an answer.",
                    code="max_turns_exceeded",
                )
            generation = await self._next_generation(first.turn, "auto", sink)

    async def _next_generation(
        self, turn: Turn, choice: ToolChoice, sink: Callable[[OutT], Awaitable[None]]
    ) -> Generation:
        """The call of the model after `turn`, with all that was made since; the engine has looked at it."""
        made = self._made()
        next_turn = self._next_turn(turn, choice, made)
        if self._prepare is None:
            generation = await self._generator.prepare(next_turn)
            await self._generator.model.engine.check(generation.request)
        else:
            generation = await self._prepare(next_turn, sink)
            if len(self._made()) < len(made):  # all of that was compacted
                self._context = generation.turn.items
        if self._begin is not None:
            self._begin(generation)
        return generation

    def _made(self) -> Sequence[Item]:
        """What was made since the last compaction."""
        made = self._assembler.finished_items
        for index in range(len(made) - 1, -1, -1):
            if isinstance(made[index], Compaction):
                return made[index + 1 :]
        return made

    def _next_turn(self, turn: Turn, choice: ToolChoice, made: Sequence[Item]) -> Turn:
        return msgspec.structs.replace(
            turn,
            items=[*self._context, *made],
            results={**turn.results, **self._assembler.results},
            # A forced choice is for the first call; kept, it would force calls for ever.
            tool_choice="none" if self._calls.spent else choice,
            # What was continued is written now.
            continue_final_message=False,
            add_generation_prompt=True,
        )

    async def _run_calls(
        self, sink: Callable[[OutT], Awaitable[None]], sessions: AsyncExitStack
    ) -> None:
        """Run the pending server calls at once; tell of each in the order of the output."""
        assembler = self._assembler
        calls = assembler.pending_calls
        started = [event for call in calls for event in assembler.call_running(call)]
        if out := self._show(started):
            await sink(out)
        async with aclosing(self._calls.run(calls, sessions)) as results:
            async for call, result in results:
                events = assembler.call_finished(call, result)
                out = self._show(events) if self._tell is None else self._tell(call, result)
                if out:
                    await sink(out)
