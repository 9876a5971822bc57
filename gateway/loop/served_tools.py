"""The turn loop of APIs whose answers are not made of the Responses API's items: Chat Completions, and fronts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from gateway.deltas import Delta
from gateway.loop.choices import ByteSink
from gateway.loop.generation import Generation, Generator
from gateway.loop.turns import TurnLoop
from gateway.protocols import FinishReason, ToolResult
from gateway.responses.assembler import ResponseAssembler
from gateway.responses.open_item.item import OpenServerCall
from gateway.serving.served import Services
from gateway.tools.calls import ToolCalls
from gateway.tools.toolset import Toolset
from gateway.wire.events import Event
from gateway.wire.ids import new_id
from gateway.wire.response import Response


class ServedTools:
    """Runs the calls of the tools that the gateway serves, between the generations of one answer, whoever writes it.

    The items that the next turn is made of are those of a response that nobody sees, so that renderers and tools find what
    they find in the Responses API.
    """

    def __init__(self, toolset: Toolset, services: Services, generator: Generator) -> None:
        self.offered = bool(toolset.served)
        self.paused = False
        """Whether the answer could go on, and was ended by the limit on its turns."""
        self._toolset = toolset
        self._services = services
        self._generator = generator

    async def run(
        self,
        first: Generation,
        sink: ByteSink,
        *,
        write: Callable[[Sequence[Delta]], bytes],
        end: Callable[[Sequence[Delta], FinishReason], bytes],
        tell: Callable[[OpenServerCall, ToolResult], bytes],
        begin: Callable[[Generation], None] | None = None,
        max_turns: int | None = None,
        max_uses: Mapping[str, int] = {},
    ) -> None:
        """Make `first` and what follows from it; raises `GatewayError`.

        `write` and `end` turn the deltas of each generation into what is sent, those of served calls among them; `tell`
        does so with the results of these calls, in the order in which they were written. `begin` and `max_turns` are as
        `TurnLoop` takes them, `max_uses` are as `ToolCalls` does.
        """
        known = first.turn.results
        response = Response(
            id=new_id("resp_"),
            created_at=int(time.time()),
            model=self._generator.model.name,
            status="in_progress",
        )
        unseen = ResponseAssembler(
            response, roles=self._toolset.roles, new_id=new_id, clock=time.time, known=known
        )

        def write_both(deltas: Sequence[Delta]) -> bytes:
            unseen.feed(deltas)
            return write(deltas)

        def end_both(held: Sequence[Delta], reason: FinishReason) -> bytes:
            unseen.feed(held)
            unseen.end_generation(reason)
            return end(held, reason)

        calls = ToolCalls(
            response.id,
            self._toolset.served,
            known=known,
            max_calls=None,
            max_uses=max_uses,
            max_parallel=self._services.settings.max_parallel_tool_calls,
            metrics=self._services.metrics,
        )
        loop: TurnLoop[bytes] = TurnLoop(
            self._generator,
            unseen,
            calls,
            write=write_both,
            end=end_both,
            show=_unseen,
            tell=tell,
            begin=begin,
            max_turns=max_turns,
        )
        async with AsyncExitStack() as sessions:
            await loop.run(first, sink, sessions)
        self.paused = loop.paused


def _unseen(events: Sequence[Event]) -> bytes:
    return b""
