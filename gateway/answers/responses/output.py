"""The `Output` of the Responses API: a response's prompts, generations, items and events, made with the model of one
plan."""

from __future__ import annotations

import logging
import time
from contextlib import AsyncExitStack
from functools import partial

from gateway.answers.answer import Output
from gateway.answers.responses.context_management import Compactor
from gateway.answers.responses.ending import failure_code
from gateway.answers.responses.plan import Plan
from gateway.answers.responses.storage import ResponseStorage
from gateway.answers.responses.turns import ResponseTurns
from gateway.answers.run_scope import RunScope
from gateway.answers.timings import answer_times
from gateway.base.errors import GatewayError, ServerShuttingDown
from gateway.generation.generation import Generation
from gateway.generation.generator import Generator
from gateway.generation.sinks import HeldSink
from gateway.generation.usage import ExpectedTokens, expected_tokens, total
from gateway.generation.writers import Sink
from gateway.items.assembler import ResponseAssembler
from gateway.items.builders import EventList
from gateway.items.logprobs import LogprobAligner
from gateway.models.media import sees_images
from gateway.plugins.protocols import StoredResponse
from gateway.services import Services
from gateway.tools.calls import ToolCalls
from gateway.tools.roles import with_unknown
from gateway.wire.ids import new_id
from gateway.wire.response import Response, Usage

logger = logging.getLogger("gateway.answers.responses.output")

OPENING = 3
"""Number of a background response's events before any output: created, queued, in progress. They do not depend on the
model."""


class ResponseOutput(Output[EventList]):
    """The output of a response, as lists of events."""

    def __init__(
        self,
        plan: Plan,
        services: Services,
        scope: RunScope,
        storage: ResponseStorage,
        *,
        quiet: bool,
        holds: bool,
    ) -> None:
        """For the arguments see `response_answer`."""
        super().__init__()
        self.plan = plan
        self.model = plan.model
        self.params = plan.params
        self.storage = storage
        self.in_background = plan.background
        self.handed_over = False
        """Whether another process runs this background response again, because this process is being stopped."""
        self._services = services
        self._scope = scope
        self._quiet = quiet
        self._may_hold = holds and not quiet and not plan.background
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
        """The first generation, until it is run. Also None if a compaction must run before it."""
        self._generator = Generator(
            plan.model,
            plan.settings,
            services.metrics,
            aligner=aligner,
            stats=scope.stats,
            made_at=plan.response.created_at,
        )
        self._has_called_tools = False
        """Whether tool calls were run, which may have had side effects."""
        self._unsent: EventList = []
        """Events that are not sent yet, because storing the start of the response may fail."""
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

    @property
    def response(self) -> Response:
        """The response in its current state."""
        return self.plan.response

    @property
    def counts_as_request(self) -> bool:
        """False for a response that may be run again. The process that runs it to its end counts it."""
        return self.plan.body is None and not self.handed_over

    def record(self) -> StoredResponse:
        """Return the record of the response in its current state, for the store."""
        return self.storage.record(self.plan, self.assembler)

    # Before the work.

    async def prepare(self) -> ExpectedTokens:
        plan = self.plan
        with plan.params:
            if self._compactor is not None:
                first = await self._compactor.begin(self._generator, plan.turn)
            else:
                first = await self._generator.fitting(
                    plan.turn, truncate=plan.truncate, preamble=plan.preamble
                )
        self._first = first
        if plan.store and self._services.store is not None:
            await self._services.store.health()
        if first is None:
            return ExpectedTokens()
        return expected_tokens((first.request,), first.sequences())

    @property
    def began(self) -> bool:
        return self._generator.began

    @property
    def holds(self) -> bool:
        first = self._first
        return self._may_hold and self.model.may_refuse(None if first is None else first.request)

    def usage(self) -> Usage:
        """Return the usage so far. It includes compactions, but they do not count as turns."""
        counts = tokens = self._generator.tokens
        if self._compactor is not None:
            counts = total((tokens, self._compactor.tokens))
        return counts.usage(tokens.turns)

    # The work.

    def start(self) -> EventList:
        if not self.in_background:
            return self.assembler.start("in_progress")
        if not self.replaces_started:
            return self.assembler.start("queued")
        # The opening events were sent before, the last of them only if the work had begun.
        if self.storage.has_begun:
            self.assembler.resume(OPENING)
        else:
            self.assembler.resume(OPENING - 1)
            self.response.status = "queued"
        return []

    async def begin(self, sink: Sink[EventList]) -> bool:
        if not self.in_background or self.storage.has_begun:
            return True
        self._unsent = self.assembler.progress()
        if not await self.storage.begin(self.record()):
            return False
        events, self._unsent = self._unsent, []
        await sink(events)
        return True

    async def make(self, sink: Sink[EventList]) -> EventList:
        plan, assembler = self.plan, self.assembler
        first, self._first = self._first, None
        if first is None:
            assert self._compactor is not None, "prepare comes before make"
            first = await self._compactor.run(assembler, self._generator, sink)
        for listing in plan.listings if first is not None else ():
            await sink(assembler.list_tools(listing))
        if not plan.generates or first is None:
            return []
        if plan.toolset.bound_tools:
            await self._run_turns(first, sink)
            return []
        last = await self._generator.run(first, assembler, sink, together=self._quiet)
        if last and plan.store:
            await sink(last)  # send it now: the end of the response waits for the store
            return []
        return last

    async def _run_turns(self, first: Generation, sink: Sink[EventList]) -> None:
        """Run the turns of a response in which the gateway runs tools."""
        plan = self.plan
        if plan.approved and isinstance(sink, HeldSink):
            sink = await sink.release()  # approved calls run only once
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
        turns = ResponseTurns(self._generator, self.assembler, calls, self._compactor)
        try:
            async with AsyncExitStack() as sessions:
                if last := await turns.run_all(first, sink, sessions, plan.approved):
                    # Send it now: a cancellation while the sessions are closed would lose it.
                    await sink(last)
        finally:
            self._has_called_tools = calls.any_made

    # The end.

    def finish(self, rest: EventList) -> EventList:
        return self._ended([*rest, *self.assembler.finish(self.usage())])

    def fail(self, error: GatewayError) -> EventList:
        if isinstance(error, ServerShuttingDown) and self._may_be_handed_over:
            self.handed_over = True
            self.status = "cancelled"
            return []
        opening = self._opening()
        failed = self.assembler.fail(failure_code(error), error.message, self.usage())
        return self._ended([*opening, *self._unsent, *failed])

    def cancel(self) -> EventList:
        opening = self._opening()
        return self._ended([*opening, *self._unsent, *self.assembler.cancel(self.usage())])

    def _opening(self) -> EventList:
        """Return the events that come before the end of a response that ends before `start` was called."""
        return [] if self.assembler.started else self.start()

    def _ended(self, closing: EventList) -> EventList:
        response = self.plan.response
        self.status = response.status
        if self.plan.shows_times:
            response.timings, response.metrics = answer_times(self._scope.stats, self.usage())
        return closing

    @property
    def _may_be_handed_over(self) -> bool:
        """Whether this is a background response that another process can run again."""
        store = self._services.store
        return (
            self.plan.kept_body is not None
            and store is not None
            and store.lasting
            and not self._has_called_tools
            and self.storage.count_events() <= OPENING
        )

    async def keep(self, scope: RunScope) -> bool:
        if self.handed_over:
            return False
        kept = await self.storage.end(self.plan, self.assembler)
        self.status = self.plan.response.status
        return kept

    def terminal(self) -> EventList:
        return [] if self._quiet else [self.assembler.terminal()]

    def join(self, first: EventList, second: EventList) -> EventList:
        return [*first, *second]

    def report(self, error: GatewayError | None) -> None:
        hook = self._services.hook.gateway_response_finished
        if not hook.get_hookimpls():
            return
        try:
            hook(response=self.plan.response)
        except Exception:
            # A hook's failure must not affect the client.
            logger.exception("a gateway_response_finished hook failed")
