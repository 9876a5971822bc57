"""The turn loop of a response: the loop of all APIs, with approved calls and compaction between generations."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack

from gateway.answers.responses.context_management import Compactor
from gateway.answers.turns import TurnLoop
from gateway.generation.generation import Generation
from gateway.generation.generator import Generator
from gateway.generation.writers import Sink
from gateway.items.assembler import ResponseAssembler
from gateway.items.builders import EventList
from gateway.plugins.protocols import Turn
from gateway.tools.approved import ApprovedCall
from gateway.tools.calls import ToolCalls
from gateway.wire.items import Compaction, Item


class ResponseTurns(TurnLoop[EventList]):
    """Runs the generations of one response."""

    def __init__(
        self,
        generator: Generator,
        assembler: ResponseAssembler,
        calls: ToolCalls,
        compactor: Compactor | None,
    ) -> None:
        super().__init__(generator, assembler.items, calls, assembler, progress=assembler)
        self._assembler = assembler
        self._compactor = compactor
        self._compacted: Sequence[Item] | None = None
        """The items that remained of the conversation after the last compaction between generations; None if there was
        none."""

    async def run_all(
        self,
        first: Generation,
        sink: Sink[EventList],
        sessions: AsyncExitStack,
        approved: Sequence[ApprovedCall],
    ) -> EventList | None:
        """Like `run`, but first run the `approved` calls. Their results are part of the first prompt."""
        if not approved:
            return await self.run(first, sink, sessions)
        for call in approved:
            await sink(self._assembler.approved_call(call.name, call.arguments, call.request_id))
        await self._run_calls(sink, sessions)
        turn = self._next_turn(first.turn, first.turn.tool_choice)
        following = await self._prepare(turn, sink)
        return await self._run_turns(following, first.turn, sink, sessions)

    async def _prepare(self, turn: Turn, sink: Sink[EventList]) -> Generation:
        compactor = self._compactor
        if compactor is None:
            return await super()._prepare(turn, sink)
        if (generation := await compactor.begin(self._generator, turn)) is not None:
            return generation
        generation = await compactor.run(self._assembler, self._generator, sink)
        assert generation is not None, "a trigger is followed by none"
        self._compacted = generation.turn.items
        return generation

    def _context(self, first: Turn) -> Sequence[Item]:
        made = self._items.finished_items
        # The last compaction replaces the items before it.
        begun = max(
            (i + 1 for i, item in enumerate(made) if isinstance(item, Compaction)), default=0
        )
        return [*(first.items if self._compacted is None else self._compacted), *made[begun:]]
