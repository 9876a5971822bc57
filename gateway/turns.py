"""The turn loop: generate, run the calls of the gateway's own tools, extend the turn, go round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Generic, TypeVar

import msgspec

from gateway.assembler import ResponseAssembler
from gateway.deltas import Delta
from gateway.errors import GatewayError
from gateway.generation import Generation, Generator
from gateway.protocols import FinishReason, ToolChoice, Turn
from gateway.request_tools import ApprovedCall
from gateway.tool_calls import ToolCalls
from gateway.wire.events import Event

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
    ) -> None:
        """`assembler` has the items and the calls; `write` and `end` are as `Generator.run` takes them, and must feed it.

        `show` turns the events of running calls into what the sink takes.
        """
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
        if approved:
            for call in approved:
                written = assembler.approved_call(call.name, call.arguments, call.request_id)
                if out := self._show(written):
                    await sink(out)
            await self._run_calls(sink, sessions)
            generation = await self._next_generation(first.turn, first.turn.tool_choice)
        for _ in range(MAX_TURNS):
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
            generation = await self._next_generation(first.turn, "auto")
        raise GatewayError(
            f"The model called tools in {MAX_TURNS} turns without coming to an answer.",
            code="max_turns_exceeded",
        )

    async def _next_generation(self, turn: Turn, choice: ToolChoice) -> Generation:
        """The call of the model after `turn`, with all that was made since; the engine has looked at it."""
        generation = await self._generator.prepare(self._next_turn(turn, choice))
        await self._generator.model.engine.check(generation.request)
        return generation

    def _next_turn(self, turn: Turn, choice: ToolChoice) -> Turn:
        return msgspec.structs.replace(
            turn,
            items=[*turn.items, *self._assembler.finished_items],
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
                if out := self._show(assembler.call_finished(call, result)):
                    await sink(out)
