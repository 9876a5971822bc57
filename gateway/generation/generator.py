"""The generations of one answer: each renders a turn to a prompt, lets the engine check it, and runs it.

Shared by all APIs. The writer that is passed in determines how deltas are written.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from functools import partial
from typing import Any

import msgspec

from gateway.base.deltas import RefusalDelta
from gateway.base.errors import InvalidRequest
from gateway.generation.beam_search import Beams
from gateway.generation.engine_request import engine_request
from gateway.generation.error_params import locate_fault
from gateway.generation.generation import Generation, GenerationSettings, refused_generation
from gateway.generation.generation_run import GenerationRun, Observer
from gateway.generation.media import check_media
from gateway.generation.rendering import dated, render_parts
from gateway.generation.schema_limits import check_limits
from gateway.generation.sinks import HeldSink
from gateway.generation.truncation import droppable, moved_preamble, without_oldest
from gateway.generation.usage import TokenCounter, TurnTokens
from gateway.generation.writers import GenerationWriter, OutT, Sink
from gateway.items.logprobs import LogprobAligner
from gateway.models.served_model import ServedModel
from gateway.observe.metrics import Metrics
from gateway.observe.request_context import current_context
from gateway.observe.run_stats import RunStats, clock
from gateway.plugins.protocols import PolicyRefusal, Sampling, TokensPrompt, Turn
from gateway.wire.large_bodies import threaded_if_large

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


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
        """`aligner` receives each output (from `observer` if there is one), and text that has no tokens. `stats`
        records the times of the outputs. `made_at` is the Unix time of the answer, whose date all prompts have; None
        means now."""
        self.model = model
        self.tokens = TokenCounter()
        self.counts_prompt = True
        """Whether the next generation's prompt is counted. If choices share a prompt, only the first choice counts
        it."""
        self.stop_reason: str | int | None = None
        """The stop string or token that ended the last generation. As in vLLM, None if the model's own end token ended
        it."""
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
        """Prepare a generation of `turn`, as the policies changed it."""
        decided = await self._decided(turn)
        if isinstance(decided, PolicyRefusal):
            return refused_generation(turn, decided, self._settings.sampling)
        return await self._prepare(decided)

    async def _decided(self, turn: Turn) -> Turn | PolicyRefusal:
        """Return the turn as the policies changed it, or their refusal."""
        policies = self._settings.policies
        if policies is None:
            return turn
        first, self._asked_policies = not self._asked_policies, True
        return await policies.turn(turn, first=first)

    async def accept(self, generation: Generation) -> None:
        """Let the engine check the generation. Raises the engine's error if it rejects the generation."""
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
                await threaded_if_large(
                    settings.size,
                    partial(check_limits, turn, settings.structure, settings.tool_params, limits),
                )
            self._checked = turn
        await settings.stops.build()
        current = current_context()
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
        """Prepare the first generation, and let the engine check it. If `truncate` is set, the conversation is
        shortened as needed, but its first `preamble` items are kept. Raises `InvalidRequest` if the engine does not
        accept it."""
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
            # Find the smallest number of parts to drop by bisection; each step renders the whole prompt.
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

    def _asked_stop(self, sampling: Sampling, reason: str | int | None) -> str | int | None:
        """Return `reason`, or None if it is the model's own end token and not a stop token of the request."""
        own = reason in self.model.info.eos_token_ids
        return None if own and reason not in sampling.stop_token_ids else reason

    def run(
        self,
        generation: Generation,
        writer: GenerationWriter[OutT],
        sink: Sink[OutT],
        *,
        together: bool = False,
    ) -> Awaitable[OutT]:
        """Run the generation. Its output is written by `writer` and sent to `sink`. Returns an awaitable of the last
        part of the output, which is not sent, so that it can be sent with what follows. Await it immediately.

        Raises `GatewayError` if the engine fails, after all output was written. `together`: whether many of the
        engine's outputs may be parsed together, because none is sent before the end.
        """
        if generation.refusal is not None:
            return self._refuse(generation.refusal, writer, sink)
        run = GenerationRun(
            self.model,
            self._settings,
            generation,
            writer,
            sink,
            aligner=self._aligner,
            observer=self._observer,
            stats=self.stats,
            together=together,
        )
        return run.run(self._count)

    def _count(self, run: GenerationRun[Any]) -> None:
        """Count the tokens of a generation that has ended."""
        tokens, count = self.tokens, run.count
        self.began = self.began or run.has_answered
        self.stop_reason = self._asked_stop(run.sampling, run.stop_reason)
        if self.counts_prompt:
            tokens.input += count.prompt
            tokens.cached += count.cached
        self.counts_prompt = True
        generated = run.tokens
        self.context = count.prompt + generated
        tokens.output += generated
        tokens.turns.append(TurnTokens(count.prompt, count.cached, generated))
        tokens.reasoning += min(count.reasoning or run.parser.reasoning_tokens, generated)
        if recoveries := run.parser.recoveries:
            self._metrics.parser_recovered(self.model.name, recoveries)

    async def _refuse(
        self, refusal: PolicyRefusal, writer: GenerationWriter[OutT], sink: Sink[OutT]
    ) -> OutT:
        """Write a policy's refusal in place of the output."""
        self.began = True
        if isinstance(sink, HeldSink):
            await sink.release()
        text = refusal.text
        return writer.end([RefusalDelta(text)] if text else (), "content_filter")
