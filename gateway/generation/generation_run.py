"""Running one generation: the engine's outputs are parsed to deltas, which pass the request's stages and are
written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Generic, Protocol

import msgspec

from gateway.base.deltas import Delta, joined
from gateway.base.errors import EngineError, GatewayError
from gateway.generation.engine_request import constraint_for, stops_in_text
from gateway.generation.generation import Generation, GenerationSettings
from gateway.generation.intake import MAX_TOGETHER, Intake
from gateway.generation.policies import OutputFilters
from gateway.generation.single_tokens import token_by_token
from gateway.generation.sinks import ACCEPTED, HeldSink
from gateway.generation.span_attributes import generation_attributes, span_name
from gateway.generation.stages import OneCall, Stage, Stopping
from gateway.generation.text_stops import TextStops
from gateway.generation.thinking_budget import ThinkingBudget, end_of_reasoning
from gateway.generation.usage import PromptCount
from gateway.generation.writers import (
    CallsWriter,
    GenerationWriter,
    OutT,
    ReportingWriter,
    Sink,
    WriterWithoutCalls,
)
from gateway.items.logprobs import LogprobAligner
from gateway.models.served_model import ServedModel
from gateway.observe.run_stats import LiveGeneration, RunStats, clock
from gateway.plugins.protocols import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    OutputFilter,
    ParserContext,
    Span,
    TokenLogprob,
    TokensPrompt,
)
from gateway.tools.called_names import called_names

_FEW = 16
"""A generation of at most this many tokens is not read in a task of its own, which would cost more than it saves."""
_BROKEN = ("error", "abort")
"""Finish reasons that report a failure."""


class Observer(Protocol):
    """Receives the engine's outputs before the parser."""

    def begin(self, generation: Generation) -> None:
        """Begin a generation."""
        ...

    def see(self, output: EngineOutput) -> None:
        """Receive an output. Called for every token."""
        ...

    async def see_prompt(self, scores: Sequence[TokenLogprob | None]) -> None:
        """Receive the prompt's log probabilities. Called after `see` for the output that contains them."""
        ...


class GenerationRun(Generic[OutT]):
    """Runs one generation. Not reusable.

    The constructor selects the stages that the request needs, so that the loop over outputs does not check for the
    others. After `run`, the public fields describe the result.
    """

    def __init__(
        self,
        model: ServedModel,
        settings: GenerationSettings,
        generation: Generation,
        writer: GenerationWriter[OutT],
        sink: Sink[OutT],
        *,
        aligner: LogprobAligner | None,
        observer: Observer | None,
        stats: RunStats | None,
        together: bool,
    ) -> None:
        """For the arguments see `Generator`, and `Generator.run` for `together`."""
        turn = generation.turn
        no_calls = turn.tool_choice == "none"
        one_call = bool(turn.tools) and not (turn.parallel_tool_calls or no_calls)
        tools = called_names(turn.tools) if turn.tools else {}
        if tools:
            writer = CallsWriter(writer, tools, turn.items)
            if no_calls:
                writer = WriterWithoutCalls(writer)
        if stats is not None and stats.content is not None:
            writer = ReportingWriter(writer, stats.content.see)
        self.count = count = PromptCount(generation.request)
        if count.estimate is not None:
            writer = ReportingWriter(writer, count.estimate.see)

        self.finish: FinishReason | None = None
        """Why the output ended; None before the end."""
        self.stop_reason: str | int | None = None
        """The stop string or stop token that ended the output, as reported by the engine or a stage."""
        self.at = 0.0
        """When the first output with content arrived; 0.0 before. See `gateway.observe.run_stats.RunningGeneration`."""
        self.has_output = False
        """Whether the engine has given any output, with content or not."""
        self.has_answered = False
        """Whether the engine has given an output that is not the report of a failure."""
        self.was_cancelled = False

        self._model, self._settings, self._stats = model, settings, stats
        self._aligner, self._observer = aligner, observer
        self._span: Span | None = None
        if stats is not None and stats.span is not None:
            self._span = stats.span.child(span_name(stats.api, model), kind="client")
            traced = msgspec.structs.replace(generation.request, trace_headers=self._span.headers)
            generation = msgspec.structs.replace(generation, request=traced)
        self._generation = generation
        self.sampling = generation.request.sampling
        self._writer = writer
        filters = [] if settings.policies is None else settings.policies.filters()
        self._context = ParserContext(
            tail=generation.rendered.tail,
            tools=tools,
            tokenizer=model.engine.tokenizer,
            # Enforced text contains no calls, even if it looks like one.
            parse_tools=bool(turn.tools)
            and not (no_calls and generation.request.constraint is not None),
            turn=None if filters else turn,  # filters see the text of an answer as a whole
        )
        self.parser = model.output_format.parser(self._context)
        self._watch = self._begin_watching(generation)

        self._stages: list[Stage] = [OneCall()] if one_call else []
        searches = stops_in_text(model, settings)
        self._needs_tokens = searches or one_call
        """Whether outputs are divided into single tokens, because a stage may end the output after any token."""
        if searches or filters:
            self._stages.append(Stopping(_stopping(settings, aligner, filters, searches=searches)))
        self._min_tokens = settings.sampling.min_tokens or 0
        self._whole = False
        """Whether a stage has ended the output. Deltas that the parser still holds back are then dropped."""
        self._last: Sequence[Delta] = ()
        """The last deltas of the output, which are written together with its end."""
        plain = not (self._stages or self._watch)
        self._together = together and plain and not settings.thinking_budget
        self._kept: list[EngineOutput] = []
        """Outputs that are not parsed yet, if several are parsed together."""
        self._pushes = model.pushing is not None and plain
        """Whether the engine may push outputs as it receives them, because they are only kept, or parsed, written and
        sent."""
        limit = generation.request.sampling.max_tokens
        self._is_short = limit is not None and limit <= _FEW
        self._intake = Intake(
            self.parser.feed, writer.feed, sink, self._kept if self._together else None
        )

    @property
    def generated(self) -> int:
        """Number of output tokens so far, estimated if the engine does not report tokens."""
        estimate = self.count.estimate
        own = self.count.output or self._intake.tokens
        return own or (0 if estimate is None else estimate.tokens)

    @property
    def tokens(self) -> int:
        """Number of output tokens, as counted at the end of the generation."""
        return self.count.output or self._intake.tokens

    async def run(self, ended: Callable[[GenerationRun[OutT]], None]) -> OutT:
        """Run the generation. Returns the last part of its output, which is not sent yet. Raises `GatewayError` if the
        engine fails, after all output was written. `ended` is called when the generation ends, also if it failed or was
        cancelled."""
        intake, stats = self._intake, self._stats
        live = LiveGeneration(clock(), self)
        if stats is not None:
            stats.generates(live)
            stats.engine_request_id = self._generation.request.request_id
        try:
            if prefill := self._generation.rendered.prefill:
                begun = self.parser.feed(EngineOutput(text=prefill))
                if begun and (out := self._writer.feed(begun)):
                    await intake.sink(out)
            reading = self._read_together() if self._together else self._read()
            if self._is_short:
                await reading
            else:
                # A task of its own has a short stack: each token resumes it without passing through the callers' coroutines.
                await asyncio.create_task(reading)
            if self.finish is None:
                raise EngineError("The engine ended its output without a finish reason.")
            if self.finish in _BROKEN:
                raise EngineError("The engine ended this request before it was complete.")
        except GatewayError:
            if self._kept:
                self._writer.feed(self._parsed())
            finish = self.finish
            held = self._finish_stages(self.parser.finish("error"))
            self.finish = finish
            if (rest := [*self._last, *held]) and (out := self._writer.feed(rest)):
                await intake.sink(out)
            raise
        except asyncio.CancelledError:
            self.was_cancelled = True
            if self._kept:
                self._writer.feed(self._parsed())
            # Cancelled while the engine ended: the last deltas become part of the items, so their events are sent too.
            if self._last and (out := self._writer.feed(self._last)):
                await intake.sink(out)
            raise
        else:
            held = self._finish_stages(() if self._whole else self.parser.finish(self.finish))
            return self._writer.end([*self._last, *held], self.finish)
        finally:
            if self.was_cancelled or self.has_output:
                self.count.estimate_unreported()
            if stats is not None:
                stats.generated(live, self.tokens)
                if self._span is not None:
                    self._end_span(self._span, stats)
            ended(self)

    async def _read(self) -> None:
        """Read the engine's outputs up to the last one, and pass each on. The loop body runs for every token."""
        intake, watch, count = self._intake, self._watch, self.count
        read, write = self.parser.feed, self._writer.feed
        stages, pushes = self._stages, self._pushes
        read_at_once = 0
        async with intake, aclosing(self._outputs()) as outputs:
            async for output in outputs:
                if pushes:
                    await intake.settle()
                if not self.has_answered:
                    await self._begin_answer(output)
                intake.tokens += len(output.token_ids)
                if watch is not None:
                    watch(output)
                if not self.at and (output.token_ids or output.text or output.deltas):
                    self.at = clock()
                if output.prompt_logprobs is not None and self._observer is not None:
                    await self._observer.see_prompt(output.prompt_logprobs)
                if output.prompt_tokens is not None or output.cached_tokens is not None:
                    count.note(output)
                deltas = read(output) if output.deltas is None else output.deltas
                if output.finish_reason is not None:
                    self.finish, self.stop_reason = output.finish_reason, output.stop_reason
                if stages:
                    deltas = self._through_stages(deltas)
                if self.finish is not None:
                    self._last = deltas
                    return
                if (out := write(deltas)) and (taken := intake.sink(out)) is not ACCEPTED:
                    await taken
                elif pushes and self.at:
                    intake.is_open = True
                read_at_once += 1 + (len(output.text) >> 8)
                if read_at_once >= MAX_TOGETHER and not pushes:
                    read_at_once = 0
                    await asyncio.sleep(0)  # outputs that are ready are read without waiting

    async def _read_together(self) -> None:
        """Read the engine's outputs up to the last one, and parse many of them together. Used if no output is sent
        before the end."""
        intake, kept, pushes = self._intake, self._kept, self._pushes
        read_at_once = 0
        outputs = self._outputs()
        try:
            async for output in outputs:
                intake.is_open = False
                if not self.has_answered:
                    await self._begin_answer(output)
                intake.tokens += len(output.token_ids)
                if not self.at and (output.token_ids or output.text or output.deltas):
                    self.at = clock()
                kept.append(output)
                if output.finish_reason is not None:
                    self.finish, self.stop_reason = output.finish_reason, output.stop_reason
                    self._last = self._parsed()
                    return
                read_at_once += 1 + (len(output.text) >> 8)
                if len(kept) >= MAX_TOGETHER:
                    if out := self._writer.feed(self._parsed()):
                        await intake.sink(out)
                    if read_at_once >= MAX_TOGETHER:
                        read_at_once = 0
                        await asyncio.sleep(0)
                if pushes and self.at:
                    intake.is_open = True
        except Exception:
            # Also after a bug of the engine: what it gave before is written, as it is if outputs are parsed one by one.
            if kept:
                self._writer.feed(self._parsed())
            raise
        finally:
            intake.is_open = False
            await outputs.aclose()

    async def _begin_answer(self, output: EngineOutput) -> None:
        """Note the first output. Unless it reports a failure, release the held sink."""
        self.has_output = True
        if output.finish_reason in _BROKEN:
            return
        self.has_answered = True
        sink = self._intake.sink
        if isinstance(sink, HeldSink):
            self._intake.sink = await sink.release()

    def _parsed(self) -> Sequence[Delta]:
        """Parse and remove the kept outputs."""
        read, joins = self.parser.feed, self._model.joins_outputs
        deltas: list[Delta] = []
        texts: list[str] = []
        token_ids: list[int] = []
        for output in self._kept:
            if output.prompt_tokens is not None or output.cached_tokens is not None:
                self.count.note(output)
            if output.deltas is not None:
                deltas += output.deltas
            elif joins:
                texts.append(output.text)
                token_ids += output.token_ids
            else:
                deltas += read(output)
        self._kept.clear()
        if texts:
            deltas += read(EngineOutput(text="".join(texts), token_ids=token_ids))
        return joined(deltas)

    def _through_stages(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        searching = self._intake.tokens >= self._min_tokens
        for stage in self._stages:
            deltas = stage.read(deltas, searching=searching)
            if stage.ended is not None:
                self.finish, self._whole = stage.ended, True
        return deltas

    def _finish_stages(self, held: Sequence[Delta]) -> Sequence[Delta]:
        for stage in self._stages:
            held = stage.finish(held)
            if stage.ended is not None:
                self.finish = stage.ended
            if stage.matched is not None:
                self.stop_reason = stage.matched
        return held

    def _begin_watching(self, generation: Generation) -> Callable[[EngineOutput], None] | None:
        """Begin to observe the outputs. Returns the function that is called with each output before the parser, or
        None."""
        aligner, observer = self._aligner, self._observer
        if aligner is not None:
            aligner.begin()
            aligner.skip(generation.rendered.prefill)
        if observer is not None:
            observer.begin(generation)
            return observer.see
        return None if aligner is None else aligner.push

    def _outputs(self) -> AsyncGenerator[EngineOutput, None]:
        """Return the engine's outputs, each of one token if a stage needs that."""
        request = self._generation.request
        source = self._source(request)
        if not self._needs_tokens:
            return source
        return token_by_token(
            source,
            self._model.engine.tokenizer,
            skips_special=request.sampling.skip_special_tokens,
        )

    def _source(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Return the engine's outputs, with the reasoning ended by the thinking budget if there is one; or the output
        of the beam search. Unmodified outputs of the engine may be pushed to `_intake` instead."""
        model, settings, generation = self._model, self._settings, self._generation
        if generation.beams is not None:
            return generation.beams.outputs(model.engine, request, generation.beam)
        rendered, budget, marker = generation.rendered, settings.thinking_budget, None
        if budget is not None and isinstance(request.prompt, TokensPrompt):
            marker = end_of_reasoning(model.output_format, rendered.tail)
        if budget is None or marker is None:
            if not self._pushes or model.pushing is None:
                return model.engine.generate(request)
            return model.pushing.generate_pushing(request, self._intake.push)
        after = msgspec.structs.replace(rendered, tail="text")
        return ThinkingBudget(
            budget,
            marker,
            self.parser,
            lambda: model.output_format.parser(self._context),
            aligner=self._aligner,
            constraint=lambda: constraint_for(model, settings, generation.turn, after),
        ).generate(model.engine, request, rendered.prefill)

    def _end_span(self, span: Span, stats: RunStats) -> None:
        if self.at:
            span.event("first_token", self.at)
        attributes = generation_attributes(
            stats, self._model, self._settings.sampling, self.count, self.tokens, self.finish
        )
        unfinished = self.finish is None or self.finish in _BROKEN
        span.end(attributes, error="unfinished" if unfinished else None)


def _stopping(
    settings: GenerationSettings,
    aligner: LogprobAligner | None,
    filters: Sequence[OutputFilter],
    *,
    searches: bool,
) -> TextStops | OutputFilters:
    in_text = None
    if searches:
        included = settings.sampling.include_stop_str_in_output
        in_text = TextStops(settings.stops.automaton, included=included, aligner=aligner)
    if in_text is None or filters:
        return OutputFilters(filters, in_text)
    return in_text
