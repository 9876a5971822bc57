"""One generation: a turn is rendered to a prompt, and the engine's outputs are parsed to deltas, which are written.

Shared by all APIs; the writer that is passed in decides what a delta becomes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

import msgspec

from gateway.assembly.logprobs import LogprobAligner
from gateway.deltas import CallEnded, Delta, RefusalDelta, joined
from gateway.engines.estimates import TokenEstimate
from gateway.errors import EngineError, GatewayError, InvalidRequest
from gateway.loop.beam_search import Beams
from gateway.loop.engine_request import constraint_for, engine_request, stops_in_text
from gateway.loop.error_params import locate_fault
from gateway.loop.generation import (
    Generation,
    GenerationSettings,
    refused_generation,
)
from gateway.loop.intake import Intake
from gateway.loop.media import check_media
from gateway.loop.policies import OutputFilters
from gateway.loop.rendering import dated, render_parts
from gateway.loop.schema_limits import check_limits
from gateway.loop.single_tokens import token_by_token
from gateway.loop.sinks import ACCEPTED, HeldSink
from gateway.loop.span_attributes import generation_attributes, span_name
from gateway.loop.text_stops import TextStops
from gateway.loop.thinking_budget import ThinkingBudget, end_of_reasoning
from gateway.loop.truncation import droppable, moved_preamble, without_oldest
from gateway.loop.usage import PromptCount, TokenCounter, TurnTokens
from gateway.loop.writers import CallsWriter, GenerationWriter, OutT, Sink, WriterWithoutCalls
from gateway.metrics import Metrics
from gateway.protocols import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    OutputParser,
    ParserContext,
    PolicyRefusal,
    Span,
    TokenLogprob,
    TokensPrompt,
    Turn,
)
from gateway.request_stats import Content, LiveGeneration, RunStats, clock, current_request
from gateway.runtime.served_model import ServedModel
from gateway.tools.called_names import called_names
from gateway.wire.large_bodies import beside

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
_FEW = 16
"""Maximum number of tokens of a generation for which a task of its own costs more than it saves."""
_MAX_TOGETHER = 64
"""Maximum number of outputs that are parsed at once, and that are read without a pause for other requests. For the pause, 256
characters count as one more."""


class Observer(Protocol):
    """Receives the engine's outputs before the parser."""

    def begin(self, generation: Generation) -> None:
        """Begin a generation."""
        ...

    def see(self, output: EngineOutput) -> None:
        """Receive an output. Called for every token."""
        ...

    async def see_prompt(self, scores: Sequence[TokenLogprob | None]) -> None:
        """Receive the log probabilities of the prompt, after the output that has them."""
        ...


class Generator:
    """Runs the generations of one answer, or of one choice of it, and counts their tokens."""

    def __init__(
        self,
        model: ServedModel,
        settings: GenerationSettings,
        metrics: Metrics,
        *,
        aligner: LogprobAligner | None = None,
        observer: Observer | None = None,
        stats: RunStats | None = None,
        made_at: float | None = None,
    ) -> None:
        """`made_at` is the Unix time of the answer, whose prompts all have its date; None: now. `aligner` receives each output, from `observer` if there is one, and text that has no tokens. `stats` records
        the times of the outputs."""
        self.model = model
        self.tokens = TokenCounter()
        self.counts_prompt = True
        """Whether the next generation's prompt is counted. Of choices that share a prompt, only the first counts it."""
        self.stop_reason: str | int | None = None
        """The stop string or token that ended the last generation; None if the model ended it itself, as vLLM has it."""
        self.context = 0
        """Length of the last generation in tokens, prompt and output together."""
        self.began = False
        """Whether an engine has given any output for the answer."""
        self._asked_policies = False
        """Whether the policies have seen a prompt of the answer."""
        self._settings = settings
        self._made_at = time.time() if made_at is None else made_at
        self._checked: Turn | None = None
        """The last turn whose schemas were checked against the limits."""
        self._metrics = metrics
        self._aligner = aligner
        self._observer = observer
        self.stats = stats

    @property
    def spent(self) -> bool:
        """Whether the answer has reached its token limit."""
        limit = self._settings.sampling.max_tokens
        return limit is not None and self.tokens.output >= limit

    async def prepare(self, turn: Turn) -> Generation:
        """Create the engine request for `turn`, as the policies let it pass."""
        decided = await self._decided(turn)
        if isinstance(decided, PolicyRefusal):
            return refused_generation(turn, decided, self._settings.sampling)
        return await self._prepare(decided)

    async def _decided(self, turn: Turn) -> Turn | PolicyRefusal:
        """The turn as the policies let it pass."""
        policies = self._settings.policies
        if policies is None:
            return turn
        first, self._asked_policies = not self._asked_policies, True
        return await policies.turn(turn, first=first)

    async def accept(self, generation: Generation) -> None:
        """Let the engine check the generation. Raises what it raises."""
        if generation.refusal is None:
            await generation.check(self.model.engine)

    async def _prepare(self, turn: Turn) -> Generation:
        settings = self._settings
        if turn.cache_scope is None:
            turn = msgspec.structs.replace(
                turn, cache_scope=settings.cache_scope, thinking_budget=settings.thinking_budget
            )
        turn = dated(self.model.renderer, turn, self._made_at)
        last = self._checked
        if last is None or turn.tools != last.tools or turn.text_format != last.text_format:
            if turn.tools or settings.structure is not None or turn.text_format.schema is not None:
                limits = self.model.schema_limits
                await beside(
                    settings.size,
                    partial(check_limits, turn, settings.structure, settings.tool_params, limits),
                )
            self._checked = turn
        await settings.stops.build()
        current = current_request()
        span = None if current is None else current.span
        began = 0.0 if span is None else clock()
        shown, rendered = await render_parts(
            self.model.renderer, turn, settings.parts, size=settings.size
        )
        if span is not None:
            span.record("render", began, clock())
        if isinstance(rendered.prompt, TokensPrompt) and rendered.prompt.media:
            check_media(rendered.prompt.media, self.model.engine)
        request = engine_request(
            self.model,
            settings,
            turn,
            rendered,
            shown=shown,
            spent=self.tokens.output,
            began=self.began,
        )
        beams = None
        if settings.beams is not None and isinstance(rendered.prompt, TokensPrompt):
            beams = Beams(settings.beams)
        return Generation(turn=turn, rendered=rendered, request=request, beams=beams)

    async def fitting(self, turn: Turn, *, truncate: bool = False, preamble: int = 0) -> Generation:
        """The first generation, accepted by the engine. If `truncate` is set, the conversation is shortened as needed; its
        first `preamble` items are kept."""
        decided = await self._decided(turn)
        if isinstance(decided, PolicyRefusal):
            return refused_generation(turn, decided, self._settings.sampling)
        if truncate:
            preamble = moved_preamble(turn.items, decided.items, preamble)
        turn, generation = decided, None
        try:
            generation = await self._prepare(turn)
            await generation.check(self.model.engine)
        except InvalidRequest as error:
            if not truncate or error.code != CONTEXT_LENGTH_EXCEEDED:
                settings = self._settings
                if generation is not None:
                    await locate_fault(
                        error,
                        generation.request,
                        settings.structure,
                        self.model.engine,
                        settings.tool_params,
                    )
                raise
            # Find the smallest number of parts to leave out by bisection; each attempt renders the whole prompt.
            low, high = 1, len(droppable(turn.items[preamble:]))
            found: Generation | None = None
            while low <= high:
                middle = (low + high) // 2
                items = without_oldest(turn.items, middle, preamble=preamble)
                shorter = msgspec.structs.replace(turn, items=items)
                if (tried := await self._if_it_fits(shorter)) is not None:
                    found, high = tried, middle - 1
                else:
                    low = middle + 1
            if found is None:
                raise
            return found
        return generation

    async def _if_it_fits(self, turn: Turn) -> Generation | None:
        try:
            generation = await self._prepare(turn)
            await generation.check(self.model.engine)
        except InvalidRequest as error:
            if error.code != CONTEXT_LENGTH_EXCEEDED:
                raise
            return None
        return generation

    def _asked_stop(self, request: EngineRequest, reason: str | int | None) -> str | int | None:
        """`reason`, unless it is the model's own end token, and none that the request asks for."""
        own = reason in self.model.info.eos_token_ids
        return None if own and reason not in request.sampling.stop_token_ids else reason

    def _begin(self, generation: Generation) -> Callable[[EngineOutput], None] | None:
        """Begin the observation of a generation. Returns what is called with each output before the parser, if
        anything."""
        aligner, observer = self._aligner, self._observer
        if aligner is not None:
            aligner.begin()
            aligner.skip(generation.rendered.prefill)
        if observer is not None:
            observer.begin(generation)
            return observer.see
        return None if aligner is None else aligner.push

    def _outputs(
        self,
        generation: Generation,
        parser: OutputParser,
        context: ParserContext,
        push: Callable[[EngineOutput], bool] | None,
    ) -> AsyncGenerator[EngineOutput, None]:
        """The engine's outputs, with an end of the reasoning where the budget ends; or the one of the beam search. Outputs that are
        nothing but the engine's may be given to `push`."""
        model, request, rendered = self.model, generation.request, generation.rendered
        if generation.beams is not None:
            return generation.beams.outputs(model.engine, request, generation.beam)
        tokens = self._settings.thinking_budget
        marker = None
        if tokens is not None and isinstance(request.prompt, TokensPrompt):
            marker = end_of_reasoning(model.output_format, rendered.tail)
        if tokens is None or marker is None:
            if push is None or model.pushing is None:
                return model.engine.generate(request)
            return model.pushing.generate_pushing(request, push)
        after = msgspec.structs.replace(rendered, tail="text")
        budget = ThinkingBudget(
            tokens,
            marker,
            parser,
            lambda: model.output_format.parser(context),
            aligner=self._aligner,
            constraint=lambda: constraint_for(model, self._settings, generation.turn, after),
        )
        return budget.generate(model.engine, request, rendered.prefill)

    def run(
        self,
        generation: Generation,
        writer: GenerationWriter[OutT],
        sink: Sink[OutT],
        *,
        together: bool = False,
    ) -> Awaitable[OutT]:
        """Run the generation. Its output goes through `writer` to `sink`; returns the last of it, which is left to be sent with what
        follows. Awaited at once; raises `GatewayError` if the engine fails, after all its output was written.
        `together`: nobody reads the output before its end, so many of the engine's outputs may be parsed and written at
        once."""
        if generation.refusal is not None:
            return self._refuse(generation.refusal, writer, sink)
        ends: list[OutT] = []
        work = self._run(generation, writer, sink, ends, together=together)
        limit = generation.request.sampling.max_tokens
        if limit is not None and limit <= _FEW:
            return work
        # Each token resumes this task only: its stack is short, and the callers' coroutines are not traversed.
        return _in_own_task(work, ends, sink)

    async def _refuse(
        self, refusal: PolicyRefusal, writer: GenerationWriter[OutT], sink: Sink[OutT]
    ) -> OutT:
        """Write a policy's refusal in place of the output."""
        self.began = True
        if isinstance(sink, HeldSink):
            await sink.release()
        text = refusal.text
        return writer.end([RefusalDelta(text)] if text else (), "content_filter")

    async def _run(
        self,
        generation: Generation,
        writer: GenerationWriter[OutT],
        sink: Sink[OutT],
        ends: list[OutT],
        *,
        together: bool,
    ) -> OutT:
        """See `run`. The loop body runs for every token. What is returned is put into `ends`, too."""
        tools = called_names(generation.turn.tools) if generation.turn.tools else {}
        if tools:
            writer = CallsWriter(writer, tools, generation.turn.items)
            if generation.turn.tool_choice == "none":
                writer = WriterWithoutCalls(writer)
        write: Callable[[Sequence[Delta]], OutT] = writer.feed
        content = None if self.stats is None else self.stats.content
        if content is not None:
            write = _seen(content, write)
        span: Span | None = None
        if self.stats is not None and self.stats.span is not None:
            span = self.stats.span.child(span_name(self.stats.api, self.model), kind="client")
            traced = msgspec.structs.replace(generation.request, trace_headers=span.headers)
            generation = msgspec.structs.replace(generation, request=traced)
        request, rendered = generation.request, generation.rendered
        turn = generation.turn
        no_calls = turn.tool_choice == "none"
        policies = self._settings.policies
        filters = [] if policies is None else policies.filters()
        context = ParserContext(
            tail=rendered.tail,
            tools=tools,
            tokenizer=self.model.engine.tokenizer,
            # Enforced text has no calls, though it may look like one.
            parse_tools=bool(turn.tools) and not (no_calls and request.constraint is not None),
            turn=None if filters else turn,  # which see the text of an answer as one
        )
        parser = self.model.output_format.parser(context)
        watch = self._begin(generation)
        first = _FirstOutput(watch)
        observe: Callable[[EngineOutput], object] | None = first.see
        read = parser.feed
        count = PromptCount(request)
        if count.estimate is not None:
            write = _weighed(count.estimate, write)
        left = False
        """Whether the generation was cancelled."""
        intake = Intake(read, write, sink)
        finish: FinishReason | None = None
        last: Sequence[Delta] = ()
        """What the output ends with, which is written together with its end."""
        whole = False
        """Whether the output was ended here, so that what the parser holds back is not a part of it."""
        one_call = bool(turn.tools) and not (turn.parallel_tool_calls or no_calls)
        sampling = self._settings.sampling
        in_text = (
            TextStops(
                self._settings.stops.automaton,
                included=sampling.include_stop_str_in_output,
                aligner=self._aligner,
            )
            if stops_in_text(self.model, self._settings)
            else None
        )
        stops: TextStops | OutputFilters | None = in_text
        if filters:
            stops = OutputFilters(filters, in_text)
        batch: _Batch | None = None
        if together and not (one_call or watch or stops or self._settings.thinking_budget):
            batch = _Batch(read, count, joins=self.model.joins_outputs)
        pushes = self.model.pushing is not None and not (one_call or watch or stops or batch)
        """Whether outputs are only parsed, written and sent, so that the engine may hand them over as it receives them."""
        held_back = sink if isinstance(sink, HeldSink) else None
        output: EngineOutput | None = None
        read_at_once = 0
        estimate = count.estimate
        live = LiveGeneration(
            clock(),
            first,
            lambda: count.output or intake.tokens or (0 if estimate is None else estimate.tokens),
        )
        if self.stats is not None:
            self.stats.generates(live)
            self.stats.engine_request_id = request.request_id
        try:
            if rendered.prefill:
                begun = read(EngineOutput(text=rendered.prefill))
                if begun and (out := write(begun)):
                    await sink(out)
            source = self._outputs(generation, parser, context, intake.push if pushes else None)
            if in_text is not None or one_call:
                source = token_by_token(
                    source,
                    self.model.engine.tokenizer,
                    skips_special=request.sampling.skip_special_tokens,
                )
            async with intake, aclosing(source) as outputs:
                async for output in outputs:
                    if pushes:
                        await intake.settle()
                    if held_back is not None and output.finish_reason not in ("error", "abort"):
                        intake.sink = sink = await held_back.release()
                        held_back = None
                    intake.tokens += len(output.token_ids)
                    if observe is not None and observe(output):
                        observe = watch
                    if output.prompt_logprobs is not None and self._observer is not None:
                        await self._observer.see_prompt(output.prompt_logprobs)
                    finish = output.finish_reason
                    read_at_once += 1 + (len(output.text) >> 8)
                    if batch is not None:
                        batch.outputs.append(output)
                        if finish is None and len(batch.outputs) < _MAX_TOGETHER:
                            continue
                        deltas = batch.parsed()
                    else:
                        if output.prompt_tokens is not None or output.cached_tokens is not None:
                            count.note(output)
                        deltas = read(output) if output.deltas is None else output.deltas
                    if one_call and (kept := up_to_first_call(deltas)) is not None:
                        deltas, finish, whole = kept, "stop", True
                    if stops is not None:
                        searching = intake.tokens >= (sampling.min_tokens or 0)
                        deltas = stops.read(deltas, searching=searching)
                        if stops.ended is not None:
                            finish, whole = stops.ended, True
                    if finish is not None:
                        last = deltas
                        self.stop_reason = self._asked_stop(request, output.stop_reason)
                        break
                    if (out := write(deltas)) and (taken := sink(out)) is not ACCEPTED:
                        await taken
                    elif pushes and observe is None:
                        intake.is_open = True
                    if read_at_once >= _MAX_TOGETHER and not pushes:
                        read_at_once = 0
                        await asyncio.sleep(0)  # an engine that is ahead is read without waiting
            if finish is None:
                raise EngineError("The engine ended its output without a finish reason.")
            if finish in ("error", "abort"):
                raise EngineError("The engine ended this request before it was complete.")
        except GatewayError:
            if batch is not None:
                write(batch.parsed())
            held = parser.finish("error")
            if stops is not None:
                held = [*stops.read(held), *stops.rest()]
            held, last = [*last, *held], ()
            if held and (out := write(held)):
                await sink(out)
            raise
        except asyncio.CancelledError:
            left = True
            # It was cancelled while the engine ended: what came last is a part of the items, so its events are sent too.
            if last and (out := write(last)):
                await sink(out)
            raise
        else:
            held = () if whole else parser.finish(finish)
            if stops is not None:
                held = [*stops.read(held), *stops.rest()]
                if stops.ended is not None:
                    finish = stops.ended
                if stops.matched is not None:
                    self.stop_reason = stops.matched
            held, last = [*last, *held], ()
            if content is not None:
                content.see(held)
            if estimate is not None:
                estimate.see(held)
            out = writer.end(held, finish)
            ends.append(out)
            return out
        finally:
            if batch is not None and batch.outputs:  # it was cancelled
                write(batch.parsed())
            tokens, generated = self.tokens, intake.tokens
            if output is not None and (generated or output.finish_reason not in ("error", "abort")):
                self.began = True
            if left or output is not None:
                count.estimate_unreported()
            if self.counts_prompt:
                tokens.input += count.prompt
                tokens.cached += count.cached
            self.counts_prompt = True
            generated = count.output or generated
            self.context = count.prompt + generated
            tokens.output += generated
            tokens.turns.append(TurnTokens(count.prompt, count.cached, generated))
            if self.stats is not None:
                self.stats.generated(live, generated)
            tokens.reasoning += min(count.reasoning or parser.reasoning_tokens, generated)
            if span is not None and self.stats is not None:
                if first.at:
                    span.event("first_token", first.at)
                attributes = generation_attributes(
                    self.stats, self.model, sampling, count, generated, finish
                )
                unfinished = finish is None or finish in ("error", "abort")
                span.end(attributes, error="unfinished" if unfinished else None)
            if parser.recoveries:
                self._metrics.parser_recovered(self.model.name, parser.recoveries)


async def _in_own_task(
    work: Coroutine[Any, Any, OutT], ends: Sequence[OutT], sink: Sink[OutT]
) -> OutT:
    """Do `work` in a task. If the caller is cancelled just as it is done, its result, which nobody gets, goes to `sink`. `ends`
    has it even then: a task that is cancelled in its last step drops what it returns."""
    task = asyncio.create_task(work)
    try:
        return await task
    except asyncio.CancelledError:
        if ends and ends[0]:
            await sink(ends[0])
        raise
    finally:
        del task  # its error refers to this frame


def _seen(
    content: Content, write: Callable[[Sequence[Delta]], OutT]
) -> Callable[[Sequence[Delta]], OutT]:
    """`write`, for a request whose texts are logged."""

    def observe_and_write(deltas: Sequence[Delta]) -> OutT:
        content.see(deltas)
        return write(deltas)

    return observe_and_write


def _weighed(
    estimate: TokenEstimate, write: Callable[[Sequence[Delta]], OutT]
) -> Callable[[Sequence[Delta]], OutT]:
    """`write`, for an engine whose outputs have no tokens."""

    def weigh_and_write(deltas: Sequence[Delta]) -> OutT:
        estimate.see(deltas)
        return write(deltas)

    return weigh_and_write


class _FirstOutput:
    """Notes when the first output came, in front of the observer of all outputs."""

    __slots__ = ("_watch", "at")

    def __init__(self, watch: Callable[[EngineOutput], None] | None) -> None:
        self.at = 0.0
        """See `gateway.request_stats.clock`."""
        self._watch = watch

    def see(self, output: EngineOutput) -> bool:
        """Receive an output. Returns whether it is the first with content, after which this is not needed any more."""
        if self._watch is not None:
            self._watch(output)
        if not (output.token_ids or output.text or output.deltas):
            return False
        self.at = clock()
        return True


class _Batch:
    """Outputs of an engine that are parsed together."""

    __slots__ = ("_count", "_joins", "_read", "outputs")

    def __init__(
        self,
        read: Callable[[EngineOutput], Sequence[Delta]],
        count: PromptCount,
        *,
        joins: bool,
    ) -> None:
        """`joins`: see `JoiningFormat`."""
        self.outputs: list[EngineOutput] = []
        """Those that are not parsed yet."""
        self._read = read
        self._count = count
        self._joins = joins

    def parsed(self) -> Sequence[Delta]:
        """Parse them, and forget them."""
        outputs, self.outputs = self.outputs, []
        joins = self._joins
        deltas: list[Delta] = []
        texts: list[str] = []
        token_ids: list[int] = []
        for output in outputs:
            if output.prompt_tokens is not None or output.cached_tokens is not None:
                self._count.note(output)
            if output.deltas is not None:
                deltas += output.deltas
            elif joins:
                texts.append(output.text)
                token_ids += output.token_ids
            else:
                deltas += self._read(output)
        if texts:
            deltas += self._read(EngineOutput(text="".join(texts), token_ids=token_ids))
        return joined(deltas)


def up_to_first_call(deltas: Sequence[Delta]) -> Sequence[Delta] | None:
    """`deltas` up to the end of the first call in them, after which `parallel_tool_calls: false` stops; None if no call
    ends."""
    for index, delta in enumerate(deltas):
        if isinstance(delta, CallEnded):
            return deltas[: index + 1]
    return None
