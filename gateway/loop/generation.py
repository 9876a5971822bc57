"""One call of the model: a turn becomes a prompt, the engine's outputs become deltas, and deltas what is sent.

Shared by all APIs: what a delta becomes is the business of the writer that is handed in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TypeVar

import msgspec

from gateway.constraints import Constraint, Triggered
from gateway.deltas import CallEnded, Delta
from gateway.errors import EngineError, GatewayError, InvalidRequest
from gateway.loop.faults import Places, name_fault
from gateway.loop.logprobs import LogprobAligner
from gateway.loop.rendering import render
from gateway.loop.sinks import TAKEN
from gateway.loop.structure import enforced
from gateway.loop.text_stops import TextStops
from gateway.loop.truncation import turn_starts, without_oldest
from gateway.loop.usage import PromptCount, TokenCount
from gateway.protocols import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    ParserContext,
    RenderedPrompt,
    Sampling,
    Turn,
)
from gateway.serving.metrics import Metrics
from gateway.serving.served import ServedModel
from gateway.wire.ids import new_id

OutT = TypeVar("OutT")

CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the model, ready to be made."""

    turn: Turn
    rendered: RenderedPrompt
    request: EngineRequest


class GenerationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all generations of an answer have in common."""

    sampling: Sampling
    cache_salt: str | None = None
    priority: int = 0
    trace_headers: Mapping[str, str] | None = None
    hints: Mapping[str, str] = {}
    size: int = 0
    """Bytes of the request's body: a hint of how long rendering takes."""
    structure: Constraint | None = None
    """What the final text must look like, where the turn's text format cannot say it."""
    places: Places = Places()
    """Where the request says what is to be enforced; for errors about it."""
    raw_stops: bool = False
    """Whether stop strings end the raw output, in the engine, and not the answer's text alone (see `gateway.loop.text_stops`)."""


class Generator:
    """Makes the generations of one answer, or of one choice of it, and counts what they use."""

    def __init__(
        self,
        model: ServedModel,
        settings: GenerationSettings,
        metrics: Metrics,
        *,
        aligner: LogprobAligner | None = None,
        observe: Callable[[EngineOutput], None] | None = None,
    ) -> None:
        """`observe` sees each output before the parser does; `aligner` is told of text that no token stands for."""
        self.model = model
        self.tokens = TokenCount()
        self.counts_prompt = True
        """Whether the next generation's prompt is counted: of choices that share one prompt, only the first counts it."""
        self.stop_reason: str | int | None = None
        """The stop string or token that ended the last generation, where one did."""
        self.context = 0
        """Tokens of the last generation: of its prompt, and of what it made."""
        self._settings = settings
        self._metrics = metrics
        self._aligner = aligner
        self._observe = observe

    @property
    def spent(self) -> bool:
        """Whether the answer has all the tokens that it may have."""
        limit = self._settings.sampling.max_tokens
        return limit is not None and self.tokens.output >= limit

    @property
    def _stops_in_text(self) -> bool:
        """Whether stop strings are looked for here. Upstreams at message level, which count their tokens at the end, do it."""
        settings = self._settings
        return bool(
            settings.sampling.stop
            and not settings.raw_stops
            and "tokens" in self.model.engine.capabilities
        )

    async def prepare(self, turn: Turn) -> Generation:
        """Everything that the engine is asked, made from `turn`."""
        settings = self._settings
        rendered = await render(self.model.renderer, turn, size=settings.size)
        output_format = self.model.output_format
        sampling = settings.sampling
        limit = sampling.max_tokens
        if limit is not None and self.tokens.output:
            limit -= self.tokens.output
        request = EngineRequest(
            request_id=new_id("gen_"),
            prompt=rendered.prompt,
            sampling=msgspec.structs.replace(
                sampling,
                max_tokens=limit,
                stop=(rendered.stop if self._stops_in_text else (*sampling.stop, *rendered.stop)),
                include_stop_str_in_output=(
                    sampling.include_stop_str_in_output and not self._stops_in_text
                ),
                stop_token_ids=(*sampling.stop_token_ids, *rendered.stop_token_ids),
                skip_special_tokens=not output_format.keeps_special_tokens,
            ),
            constraint=self._constraint(turn, rendered),
            adapter=self.model.adapter,
            cache_salt=settings.cache_salt,
            priority=settings.priority,
            trace_headers=settings.trace_headers,
            multi_modal=rendered.multi_modal,
            hints=settings.hints,
            turn=turn,
            tail=rendered.tail,
        )
        return Generation(turn=turn, rendered=rendered, request=request)

    async def fitting(self, turn: Turn, *, truncate: bool = False) -> Generation:
        """The first generation, which the engine has looked at; shortened where `truncate` allows it and it must be."""
        generation: Generation | None = None
        try:
            generation = await self.prepare(turn)
            await self.model.engine.check(generation.request)
        except InvalidRequest as error:
            if not truncate or error.code != CONTEXT_LENGTH_EXCEEDED:
                settings = self._settings
                if generation is not None:
                    await name_fault(
                        error,
                        generation.request,
                        settings.structure,
                        self.model.engine,
                        settings.places,
                    )
                raise
            # The fewest turns to leave out, by halving: each try renders the whole prompt.
            low, high = 1, len(turn_starts(turn.items)) - 1
            found: Generation | None = None
            while low <= high:
                middle = (low + high) // 2
                shorter = msgspec.structs.replace(turn, items=without_oldest(turn.items, middle))
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
            generation = await self.prepare(turn)
            await self.model.engine.check(generation.request)
        except InvalidRequest as error:
            if error.code != CONTEXT_LENGTH_EXCEEDED:
                raise
            return None
        return generation

    def _constraint(self, turn: Turn, rendered: RenderedPrompt) -> Constraint | None:
        """What the engine shall enforce. Strict arguments of calls that the model need not make are the one thing that is
        left to the model where an engine cannot: most clients ask for them by default.
        """
        settings = self._settings
        try:
            constraint = enforced(self.model.output_format, turn, rendered.tail, settings.structure)
        except InvalidRequest as error:
            if error.param == "structured_outputs":
                error.param = settings.places.text
            raise
        if isinstance(constraint, Triggered) and "triggered" not in self.model.engine.capabilities:
            return None
        return constraint

    async def run(
        self,
        generation: Generation,
        write: Callable[[Sequence[Delta]], OutT],
        end: Callable[[Sequence[Delta], FinishReason], OutT],
        sink: Callable[[OutT], Awaitable[None]],
    ) -> None:
        """Make the call. `write` turns deltas into what `sink` takes, if it is not empty; `end` does so with the last
        ones. Raises `GatewayError` where the engine fails, after all that it gave is written.
        """
        # In a task of its own, which each token resumes: its stack is short, and those of all callers wait.
        await asyncio.create_task(self._run(generation, write, end, sink))

    async def _run(
        self,
        generation: Generation,
        write: Callable[[Sequence[Delta]], OutT],
        end: Callable[[Sequence[Delta], FinishReason], OutT],
        sink: Callable[[OutT], Awaitable[None]],
    ) -> None:
        """See `run`. The body of the loop is the path of every token."""
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
        observe, read = self._observe, parser.feed
        count = PromptCount(request)
        generated = 0
        finish: FinishReason | None = None
        kept: Sequence[Delta] | None = None
        one_call = bool(turn.tools) and not turn.parallel_tool_calls
        sampling = self._settings.sampling
        stops = (
            TextStops(
                sampling.stop,
                included=sampling.include_stop_str_in_output,
                aligner=self._aligner,
            )
            if self._stops_in_text
            else None
        )
        try:
            if self._aligner is not None:
                self._aligner.begin()
                self._aligner.skip(rendered.prefill)
            if rendered.prefill:
                begun = read(EngineOutput(text=rendered.prefill))
                if begun and (out := write(begun)):
                    await sink(out)
            async with aclosing(self.model.engine.generate(request)) as outputs:
                async for output in outputs:
                    generated += len(output.token_ids)
                    if observe is not None:
                        observe(output)
                    if output.prompt_tokens is not None or output.cached_tokens is not None:
                        count.note(output)
                    deltas = read(output) if output.deltas is None else output.deltas
                    finish = output.finish_reason
                    if one_call and (kept := up_to_first_call(deltas)) is not None:
                        deltas, finish = kept, "stop"
                    if stops is not None:
                        searching = generated >= (sampling.min_tokens or 0)
                        deltas = stops.read(deltas, searching=searching)
                        if stops.matched is not None:
                            kept, finish = deltas, "stop"
                    if (out := write(deltas)) and (taken := sink(out)) is not TAKEN:
                        await taken
                    if finish is not None:
                        self.stop_reason = output.stop_reason
                        break
            if finish is None:
                raise EngineError("The engine ended its output without a finish reason.")
            if finish in ("error", "abort"):
                raise EngineError("The engine ended this request before it was complete.")
        except GatewayError:
            held = parser.finish("error")
            if stops is not None:
                held = [*stops.read(held), *stops.rest()]
            if held and (out := write(held)):
                await sink(out)
            raise
        else:
            held = () if kept is not None else parser.finish(finish)
            if stops is not None:
                held = [*stops.read(held), *stops.rest()]
                if stops.matched is not None:
                    finish, self.stop_reason = "stop", stops.matched
            if out := end(held, finish):
                await sink(out)
        finally:
            tokens = self.tokens
            if self.counts_prompt:
                tokens.input += count.prompt
                tokens.cached += count.cached
            self.counts_prompt = True
            generated = count.output or generated
            self.context = count.prompt + generated
            tokens.output += generated
            tokens.reasoning += min(count.reasoning or parser.reasoning_tokens, generated)
            if parser.recoveries:
                self._metrics.parser_recovered(self.model.name, parser.recoveries)


def up_to_first_call(deltas: Sequence[Delta]) -> Sequence[Delta] | None:
    """`deltas` up to the end of the first call in them, which `parallel_tool_calls: false` makes the last; None if none ends."""
    for index, delta in enumerate(deltas):
        if isinstance(delta, CallEnded):
            return deltas[: index + 1]
    return None


def variant(first: Generation, index: int) -> Generation:
    """The same generation for a further choice: under an id of its own, and with another seed."""
    if index == 0:
        return first
    sampling = first.request.sampling
    seed = None if sampling.seed is None else sampling.seed + index
    request = msgspec.structs.replace(
        first.request,
        request_id=new_id("gen_"),
        sampling=msgspec.structs.replace(sampling, seed=seed),
    )
    return msgspec.structs.replace(first, request=request)
