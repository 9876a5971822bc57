"""The turn loop: render, generate, parse, assemble, call tools, go round."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial

import msgspec

from gateway.admission import Reservation
from gateway.assembler import ResponseAssembler
from gateway.constraints import Constraint, Triggered
from gateway.deltas import CallEnded, Delta
from gateway.errors import (
    DeadlineExceeded,
    EngineError,
    GatewayError,
    InvalidRequest,
    RateLimited,
    StoreUnavailable,
)
from gateway.logprobs import LogprobAligner
from gateway.plan import Plan
from gateway.protocols import (
    UNFINISHED,
    EngineOutput,
    EngineRequest,
    FinishReason,
    ParserContext,
    RenderedPrompt,
    StoredResponse,
    TokensPrompt,
    Turn,
)
from gateway.served import ServedModel, Services
from gateway.tool_calls import ToolCalls
from gateway.truncation import turn_starts, without_oldest
from gateway.wire.events import Event
from gateway.wire.ids import new_id
from gateway.wire.response import (
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    Usage,
    snapshot,
)

logger = logging.getLogger("gateway.run")

Sink = Callable[[Sequence[Event]], Awaitable[None]]
"""Takes the events that are ready at once; awaiting it is the back-pressure."""

MAX_TURNS = 64
"""Generations in one response: a model that calls tools without end stops here, incomplete."""

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"

KEPT_IN_CONVERSATION = ("completed", "incomplete")
"""What a conversation goes on with: a response that failed or was cancelled leaves no trace in it."""

RENDER_IN_THREAD = 200_000
"""Characters of conversation beyond which rendering and tokenizing leave the event loop."""


class TokenCount:
    """What a response has used so far, over all its generations."""

    def __init__(self) -> None:
        self.input = 0
        self.cached = 0
        self.output = 0
        self.reasoning = 0

    def usage(self) -> Usage:
        return Usage(
            input_tokens=self.input,
            input_tokens_details=InputTokensDetails(cached_tokens=self.cached),
            output_tokens=self.output,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=self.reasoning),
            total_tokens=self.input + self.output,
        )


class PromptCount:
    """A generation's prompt tokens, as the engine has them, else as the prompt has them."""

    def __init__(self, request: EngineRequest) -> None:
        prompt = request.prompt
        self.prompt = len(prompt.token_ids) if isinstance(prompt, TokensPrompt) else 0
        self.cached = 0

    def note(self, output: EngineOutput) -> None:
        if output.prompt_tokens is not None:
            self.prompt = output.prompt_tokens
        if output.cached_tokens is not None:
            self.cached = output.cached_tokens


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model, ready to be made."""

    turn: Turn
    rendered: RenderedPrompt
    request: EngineRequest


class ResponseRun:
    """One response, from a plan to its terminal event.

    `prepare` refuses what cannot be run, before anything is sent. `run` never raises but for the cancellation of its
    task: whatever fails becomes the terminal event, after which nothing follows.
    """

    def __init__(self, plan: Plan, services: Services) -> None:
        self.plan = plan
        self.model: ServedModel = plan.model
        self.services = services
        self.response: Response = plan.response
        self.error: GatewayError | None = None
        """Why the response failed, once it has."""
        self._tokens = TokenCount()
        self._aligner = LogprobAligner() if plan.wants_logprobs else None
        self._assembler = ResponseAssembler(
            plan.response,
            roles=plan.toolset.roles,
            new_id=new_id,
            clock=time.time,
            aligner=self._aligner,
            seal=partial(services.sealer.seal, owner=plan.owner) if plan.seals_reasoning else None,
        )
        self._first: Generation | None = None
        self._reservation: Reservation | None = None
        self._calls = ToolCalls(
            plan.response.id,
            plan.toolset.served,
            max_calls=plan.max_tool_calls,
            max_parallel=services.settings.max_parallel_tool_calls,
            metrics=services.metrics,
        )
        self._task: asyncio.Task[object] | None = None
        self._stopped_by: GatewayError | None = None
        self._cancelled = False

    async def prepare(self) -> None:
        """Make the first prompt and let the engine look at it: raises what a client must be told by HTTP status."""
        self._first = await self._fitting(self.plan.turn)
        if self.plan.store and self.services.store is not None:
            await self.services.store.health()
        self._reservation = self.model.admission.reserve()

    async def _fitting(self, turn: Turn) -> Generation:
        """The first generation, which the engine has looked at; shortened where the request allows it and must be."""
        generation = await self._generation(turn)
        try:
            await self.model.engine.check(generation.request)
        except InvalidRequest as error:
            if not self.plan.truncate or error.code != CONTEXT_LENGTH_EXCEEDED:
                raise
            # The fewest turns to leave out, by halving: each try renders the whole prompt.
            low, high = 1, len(turn_starts(turn.items)) - 1
            found: Generation | None = None
            while low <= high:
                middle = (low + high) // 2
                shorter = msgspec.structs.replace(turn, items=without_oldest(turn.items, middle))
                tried = await self._generation(shorter)
                if await self._fits(tried):
                    found, high = tried, middle - 1
                else:
                    low = middle + 1
            if found is None:
                raise
            return found
        return generation

    async def _fits(self, generation: Generation) -> bool:
        try:
            await self.model.engine.check(generation.request)
        except InvalidRequest as error:
            if error.code != CONTEXT_LENGTH_EXCEEDED:
                raise
            return False
        return True

    def abandon(self) -> None:
        """Give back what `prepare` took, if `run` was never called."""
        if self._reservation is not None:
            self._reservation.cancel()

    def stop(self, error: GatewayError) -> None:
        """End the run from outside: it fails with `error`, keeping what was written."""
        if self._task is not None and self._stopped_by is None:
            self._stopped_by = error
            self._task.cancel()

    def cancel(self) -> None:
        """End the run as cancelled, keeping what was written. Does nothing once it has ended, or twice."""
        if not self._cancelled and self._stopped_by is None:
            self._cancelled = True
            if self._task is not None:
                self._task.cancel()

    def record(self) -> StoredResponse:
        """The response as it is now, as it is stored."""
        plan = self.plan
        return StoredResponse(
            response=snapshot(self.response),
            input=plan.input,
            previous_response_id=plan.previous_response_id,
            conversation_id=plan.conversation_id,
            owner=plan.owner,
            streamed=plan.background and plan.stream,
        )

    async def run(self, sink: Sink) -> Response:
        """Make the response, handing its events to `sink`; returns it in its terminal status."""
        self._task = asyncio.current_task()
        self.services.runs.add(self)
        try:
            await sink(self._assembler.start("queued" if self.plan.background else "in_progress"))
            closing = await self._until_end(sink)
            self._task = None  # from here on there is nothing to stop
            if await self._store():
                self._tell_plugins()
                await sink([*closing, self._assembler.terminal()])
        finally:
            self._task = None
            self.abandon()
            self.services.runs.discard(self)
        return self.response

    async def _until_end(self, sink: Sink) -> list[Event]:
        """Run all turns; the events that close the response, but for the terminal one."""
        assembler, reservation = self._assembler, self._reservation
        assert reservation is not None, "prepare comes before run"
        error: GatewayError
        try:
            if self._cancelled:
                return assembler.cancel(self._tokens.usage())
            async with (
                asyncio.timeout(self.services.settings.request_timeout),
                reservation.slot(),
                AsyncExitStack() as sessions,
            ):
                if self.plan.background:
                    await self._leave_queue(sink)
                await self._turns(sink, sessions)
            return assembler.finish(self._tokens.usage())
        except TimeoutError:
            error = DeadlineExceeded(
                f"The response took longer than {self.services.settings.request_timeout:g} seconds, "
                "which is this server's limit."
            )
        except GatewayError as failure:
            error = failure
        except asyncio.CancelledError:
            if self._task is not None and (self._cancelled or self._stopped_by is not None):
                self._task.uncancel()
            if self._cancelled:
                return assembler.cancel(self._tokens.usage())
            if self._stopped_by is None:
                assembler.cancel(self._tokens.usage())
                # The client has gone: nobody reads on, but what was made is kept.
                await asyncio.shield(self._store())
                self._tell_plugins()
                raise
            error = self._stopped_by
        except Exception:
            # A plugin or the gateway itself is at fault; the client is told that, the log is told what.
            logger.exception("response %s failed", self.response.id)
            error = GatewayError("The server had an internal error on this request.")
        self.error = error
        return assembler.fail(failure_code(error), error.message, self._tokens.usage())

    async def _leave_queue(self, sink: Sink) -> None:
        """A background response begins to run; where it has been ended from elsewhere, it does not."""
        events = self._assembler.progress()
        store = self.services.store
        if store is not None and not await store.advance(self.record(), expected={"queued"}):
            self._cancelled = True
            raise asyncio.CancelledError
        await sink(events)

    async def _turns(self, sink: Sink, sessions: AsyncExitStack) -> None:
        assembler = self._assembler
        generation = self._first
        assert generation is not None, "prepare comes before run"
        turn = generation.turn
        self._first = None
        for _ in range(MAX_TURNS):
            await self._generate(generation, sink)
            if assembler.cut_off or not assembler.pending_calls:
                return
            await self._run_calls(sink, sessions)
            if assembler.calls_client:
                return
            generation = await self._generation(self._next_turn(turn))
            await self.model.engine.check(generation.request)
        raise GatewayError(
            f"The model called tools in {MAX_TURNS} turns without coming to an answer.",
            code="max_turns_exceeded",
        )

    def _next_turn(self, turn: Turn) -> Turn:
        """The first turn, with all that was made since."""
        return msgspec.structs.replace(
            turn,
            items=[*turn.items, *self._assembler.finished_items],
            # A forced choice is for the first call; kept, it would force calls for ever.
            tool_choice="none" if self._calls.spent else "auto",
        )

    async def _generation(self, turn: Turn) -> Generation:
        """Everything that the engine is asked, made from `turn`."""
        renderer = self.model.renderer
        if self.plan.size > RENDER_IN_THREAD:
            rendered = await asyncio.to_thread(renderer.render, turn)
        else:
            rendered = renderer.render(turn)
        output_format = self.model.output_format
        sampling = self.plan.sampling
        limit = sampling.max_tokens
        if limit is not None and self._tokens.output:
            limit = max(1, limit - self._tokens.output)
        request = EngineRequest(
            request_id=new_id("gen_"),
            prompt=rendered.prompt,
            sampling=msgspec.structs.replace(
                sampling,
                max_tokens=limit,
                stop=(*sampling.stop, *rendered.stop),
                stop_token_ids=(*sampling.stop_token_ids, *rendered.stop_token_ids),
                skip_special_tokens=not output_format.keeps_special_tokens,
            ),
            constraint=self._constraint(turn, rendered),
            adapter=self.model.adapter,
            cache_salt=self.plan.cache_salt,
            priority=self.plan.priority,
            trace_headers=self.plan.trace_headers,
            multi_modal=rendered.multi_modal,
            turn=turn,
            tail=rendered.tail,
        )
        return Generation(turn=turn, rendered=rendered, request=request)

    def _constraint(self, turn: Turn, rendered: RenderedPrompt) -> Constraint | None:
        """What the engine shall enforce. Strict arguments of calls that the model need not make are the one thing that is
        left to the model where an engine cannot: most clients ask for them by default.
        """
        constraint = self.model.output_format.constraint(turn, tail=rendered.tail)
        if isinstance(constraint, Triggered) and "triggered" not in self.model.engine.capabilities:
            return None
        return constraint

    async def _generate(self, generation: Generation, sink: Sink) -> None:
        """One call of the model. The body of the loop is the path of every token."""
        request, rendered = generation.request, generation.rendered
        turn = generation.turn
        parser = self.model.output_format.parser(
            ParserContext(
                tail=rendered.tail,
                tools={tool.name: tool for tool in turn.tools},
                tokenizer=self.model.engine.tokenizer,
                parse_tools=bool(turn.tools) and turn.tool_choice != "none",
            )
        )
        aligner = self._aligner
        write, read = self._assembler.feed, parser.feed
        count = PromptCount(request)
        generated = 0
        finish: FinishReason | None = None
        kept: Sequence[Delta] | None = None
        one_call = bool(turn.tools) and not turn.parallel_tool_calls
        try:
            if rendered.prefill:
                if aligner is not None:
                    aligner.skip(rendered.prefill)
                if events := write(read(EngineOutput(text=rendered.prefill))):
                    await sink(events)
            async with aclosing(self.model.engine.generate(request)) as outputs:
                async for output in outputs:
                    generated += len(output.token_ids)
                    if aligner is not None:
                        aligner.push(output)
                    if output.prompt_tokens is not None or output.cached_tokens is not None:
                        count.note(output)
                    deltas = read(output) if output.deltas is None else output.deltas
                    finish = output.finish_reason
                    if one_call and (kept := up_to_first_call(deltas)) is not None:
                        deltas, finish = kept, "stop"
                    if events := write(deltas):
                        await sink(events)
                    if finish is not None:
                        break
            if finish is None:
                raise EngineError("The engine ended its output without a finish reason.")
            if finish in ("error", "abort"):
                raise EngineError("The engine ended this request before it was complete.")
        except GatewayError:
            if events := write(parser.finish("error")):
                await sink(events)
            raise
        else:
            held = () if kept is not None else parser.finish(finish)
            events = [*write(held), *self._assembler.end_generation(finish)]
            if events:
                await sink(events)
        finally:
            tokens = self._tokens
            tokens.input += count.prompt
            tokens.cached += count.cached
            tokens.output += generated
            tokens.reasoning += min(parser.reasoning_tokens, generated)
            if parser.recoveries:
                self.services.metrics.parser_recovered(self.model.name, parser.recoveries)

    async def _run_calls(self, sink: Sink, sessions: AsyncExitStack) -> None:
        """Run the pending server calls at once; tell of each in the order of the output."""
        assembler = self._assembler
        calls = assembler.pending_calls
        if events := [event for call in calls for event in assembler.call_running(call)]:
            await sink(events)
        async with aclosing(self._calls.run(calls, sessions)) as results:
            async for call, result in results:
                await sink(assembler.call_finished(call, result))

    async def _store(self) -> bool:
        """Keep the response, before anybody is told that it has ended. False: somebody else has ended it already.

        A foreground response that cannot be stored has failed: completed means kept.
        """
        store, plan = self.services.store, self.plan
        if store is None or not plan.store:
            return True
        try:
            if not plan.background:
                await store.put(self.record())
            elif not await store.advance(self.record(), expected=UNFINISHED):
                return False
            if plan.conversation_id is not None and self.response.status in KEPT_IN_CONVERSATION:
                await store.append_items(
                    plan.conversation_id, [*plan.input, *self.response.output], owner=plan.owner
                )
        except StoreUnavailable as error:
            if plan.background:
                raise
            logger.warning("response %s could not be stored: %s", self.response.id, error.message)
            self.error = error
            self._assembler.spoil(failure_code(error), f"Not stored: {error.message}")
        return True

    def _tell_plugins(self) -> None:
        self.services.metrics.response_finished(self.model.name, self.response)
        try:
            self.services.hook.gateway_response_finished(response=self.response)
        except Exception:
            # An observer's failure must not become the client's.
            logger.exception("a gateway_response_finished hook failed")


def up_to_first_call(deltas: Sequence[Delta]) -> Sequence[Delta] | None:
    """`deltas` up to the end of the first call in them, which `parallel_tool_calls: false` makes the last; None if none ends."""
    for index, delta in enumerate(deltas):
        if isinstance(delta, CallEnded):
            return deltas[: index + 1]
    return None


def failure_code(error: GatewayError) -> str:
    """The `error.code` of a failed response, out of those that the API knows (`ResponseError.code`)."""
    match error:
        case RateLimited():
            return "rate_limit_exceeded"
        case InvalidRequest():
            return "invalid_prompt"
        case _:
            return "server_error"
