"""The work of a response's run with the model of one plan: its prompts, its generations, its items and events."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial

from gateway.assembly.assembler import ResponseAssembler
from gateway.assembly.logprobs import LogprobAligner
from gateway.loop.generation import Generation
from gateway.loop.generator import Generator
from gateway.loop.run_scope import RunScope
from gateway.loop.sinks import HeldSink
from gateway.loop.usage import ExpectedTokens, expected_tokens, total
from gateway.responses.context_management import Compactor
from gateway.responses.plan import Plan
from gateway.responses.turns import EventSink, ResponseTurns, ResponseWriter
from gateway.runtime.media import sees_images
from gateway.runtime.services import Services
from gateway.tools.calls import ToolCalls
from gateway.tools.roles import with_unknown
from gateway.wire.events import Event
from gateway.wire.ids import new_id
from gateway.wire.response import Usage

OPENING = 3
"""Events of a background response before any output: created, queued, in progress. They are the same for every model."""


class ResponseWork:
    """Makes one response with the model of its plan. If another model has to make it, its run begins anew with another work."""

    def __init__(self, plan: Plan, services: Services, scope: RunScope, *, quiet: bool) -> None:
        """`quiet`: build items without events, because none are sent."""
        self.plan = plan
        self._services = services
        self._scope = scope
        self._quiet = quiet
        aligner = LogprobAligner(shows_ids=plan.shows_ids) if plan.wants_logprobs else None
        self.assembler = ResponseAssembler(
            plan.response,
            roles=with_unknown(plan.toolset.roles),
            new_id=new_id,
            clock=time.time,
            aligner=aligner,
            seal=(
                partial(services.sealer.seal, owner=plan.owner, model=plan.model.name)
                if plan.seals_reasoning
                else None
            ),
            include=plan.include,
            known=plan.turn.results,
            summarizes=plan.summarizes_reasoning,
            quiet=quiet,
            approval_id=partial(
                services.approvals.request_id, owner=plan.owner, addresses=plan.addresses
            ),
        )
        self._first: Generation | None = None
        """The first generation, until it is run. None also if a compaction comes before it."""
        self._generator = Generator(
            plan.model,
            plan.settings,
            services.metrics,
            aligner=aligner,
            stats=scope.stats,
            made_at=plan.response.created_at,
        )
        self.has_called_tools = False
        """Whether calls were run, which may have changed something."""
        self._compactor: Compactor | None = None
        if plan.compaction is not None:
            self._compactor = Compactor(
                plan.compaction,
                plan.model,
                plan.settings,
                services.metrics,
                truncate=plan.truncate,
                preamble=plan.preamble,
                seal=partial(services.sealer.seal, owner=plan.owner, model=plan.model.name),
                made_at=plan.response.created_at,
            )

    async def prepare(self) -> ExpectedTokens:
        """Make the first prompt and let the engine check it. Returns what the response may use. Raises `GatewayError`."""
        plan = self.plan
        with plan.params:
            if self._compactor is not None:
                first = await self._compactor.begin(self._generator, plan.turn)
            else:
                first = await self._generator.fitting(
                    plan.turn, truncate=plan.truncate, preamble=plan.preamble
                )
        self._first = first
        if first is None:
            return ExpectedTokens()
        return expected_tokens((first.request,), first.sequences())

    @property
    def may_be_refused(self) -> bool:
        """Whether the engine may still refuse the request when it is to generate."""
        return self.plan.model.may_refuse(None if self._first is None else self._first.request)

    @property
    def usage(self) -> Usage:
        """So far; a compaction is a part of it, but not a turn."""
        counts = tokens = self._generator.tokens
        if self._compactor is not None:
            counts = total((tokens, self._compactor.tokens))
        return counts.usage(tokens.turns)

    async def run(
        self,
        common: EventSink,
        sink: EventSink,
        *,
        resumed: bool = False,
        leave_queue: Callable[[EventSink], Awaitable[bool]] | None = None,
    ) -> list[Event]:
        """Run all turns, handing events to `sink`. Returns those that close the response, but for the
        terminal one. `common` takes the events that are the same for every model.

        A background response has `leave_queue`, which is awaited when its turn has come; it returns False if the response has
        been ended from elsewhere. `resumed`: its opening events were sent before.
        """
        assembler, scope, plan = self.assembler, self._scope, self.plan
        first, self._first = self._first, None
        last: Sequence[Event] | None = None
        with plan.params:
            if resumed:
                assembler.resume(OPENING)
            elif leave_queue is not None:
                await common(assembler.start("queued"))
            elif opening := assembler.start("in_progress"):
                await sink(opening)
                del opening  # with the response as it was then
            if scope.cancelled:
                return assembler.cancel(self.usage)
            async with scope.turn:
                if leave_queue is not None and not resumed and not await leave_queue(common):
                    return assembler.cancel(self.usage)
                if first is None:
                    assert self._compactor is not None, "prepare comes before run"
                    first = await self._compactor.run(assembler, self._generator, sink)
                for listing in plan.listings if first is not None else ():
                    await sink(assembler.list_tools(listing))
                if plan.generates and first is not None:
                    writer = ResponseWriter(assembler)
                    if plan.toolset.bound_tools:
                        await self._run_turns(first, writer, sink)
                    else:  # the gateway runs no calls, so there is one turn
                        last = await self._generator.run(first, writer, sink, together=self._quiet)
                if last and plan.store:
                    await sink(last)  # now: the end of the response waits for the store
                    last = None
            closing = assembler.finish(self.usage)
            return [*last, *closing] if last else closing

    async def _run_turns(self, first: Generation, writer: ResponseWriter, sink: EventSink) -> None:
        """Run the turns of a response in which the gateway runs tools."""
        plan = self.plan
        if plan.approved and isinstance(sink, HeldSink):
            sink = await sink.release()  # the calls are run once
        calls = ToolCalls(
            plan.response.id,
            plan.toolset.bound_tools,
            turn=plan.turn,
            max_calls=plan.max_tool_calls,
            max_parallel=self._services.settings.max_parallel_tool_calls,
            metrics=self._services.metrics,
            once=partial(self._services.approvals.once, owner=plan.owner),
            sees_images=sees_images(plan.model.engine, plan.model.media_kinds),
        )
        turns = ResponseTurns(self._generator, self.assembler, calls, writer, self._compactor)
        try:
            async with AsyncExitStack() as sessions:
                if last := await turns.run_all(first, sink, sessions, plan.approved):
                    await sink(
                        last
                    )  # now: a cancellation while the sessions are closed would lose it
        finally:
            self.has_called_tools = calls.any_made
