"""Compaction within a response: `context_management`, and `compaction_trigger` items.

The model writes a summary as the response's first item and continues from it; earlier items are no longer part of the
prompt. With a trigger, the response consists of the summary only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from gateway.access.sealing import Replaces, compacted_context, is_summary
from gateway.base.deltas import Delta, TextDelta
from gateway.base.errors import EngineError, InvalidRequest, Unsupported
from gateway.generation.generation import Generation, GenerationSettings
from gateway.generation.generator import CONTEXT_LENGTH_EXCEEDED, Generator
from gateway.generation.media import prompt_length
from gateway.generation.text_stops import RequestStops
from gateway.generation.truncation import turn_starts
from gateway.generation.writers import Sink
from gateway.items.assembler import ResponseAssembler
from gateway.items.builders import EventList
from gateway.models.served_model import ServedModel
from gateway.observe.metrics import Metrics
from gateway.plugins.protocols import FinishReason, TextFormat, TokensPrompt, Turn
from gateway.wire.content import InputText
from gateway.wire.items import CompactionTrigger, Item, Message
from gateway.wire.request import ResponseRequest

DEFAULT_SHARE = 0.75
"""Default threshold, as a fraction of the model's context, for entries without `compact_threshold`."""

SUMMARY_REQUEST = Message(
    role="user",
    content=[
        InputText(
            text="The conversation above is about to be replaced by a summary. Write that summary now, for yourself, so that "
            "you can go on with the task from it alone: what the user wants and has decided, what was done and found out, the "
            "names, paths, numbers and code that will be needed again, what is open, and what comes next. Write nothing but "
            "the summary."
        )
    ],
)


class Seal(Protocol):
    """Encrypts a summary for the response's owner; see `Sealer.seal`."""

    def __call__(self, text: str, *, replaces: Replaces, kept: Sequence[Message]) -> str: ...


class CompactionSettings(Struct, frozen=True):
    """The condition under which a response compacts its history."""

    threshold: int | None
    """Prompt length in tokens above which the response compacts its history. None if the response only compacts,
    without a condition."""

    @property
    def replaces(self) -> Replaces:
        return "context" if self.threshold is None else "all"


def compaction_settings(
    request: ResponseRequest, model: ServedModel, *, triggered: bool
) -> CompactionSettings | None:
    """Return the compaction settings of a request, or None if it does not ask for compaction. `triggered`: whether its
    items include a trigger. Raises a `GatewayError` if the settings are invalid."""
    sent = request.input or ()
    for index, item in enumerate(sent) if triggered else ():
        if isinstance(item, CompactionTrigger):
            if index + 1 < len(sent):
                raise InvalidRequest(
                    "A compaction_trigger must be the last item of the input: it compacts what is before it.",
                    param=("input", index),
                    code="invalid_value",
                )
            if index == 0 and not (request.previous_response_id or request.conversation):
                raise InvalidRequest(
                    "There is nothing to compact. Send the items before the compaction_trigger, or previous_response_id.",
                    param="input",
                )
            return CompactionSettings(None)
    entries = request.context_management or ()
    if not entries:
        return None
    if len(entries) > 1:
        raise InvalidRequest(
            "context_management has one entry at most, of the type 'compaction'.",
            param="context_management",
            code="array_above_max_length",
        )
    threshold = entries[0].compact_threshold
    if threshold is None:
        if (length := model.info.max_model_len) is None:
            raise InvalidRequest(
                f"The length of the context of '{model.name}' is not known here, so compact_threshold must be sent.",
                param=("context_management", 0, "compact_threshold"),
                code="missing_required_parameter",
            )
        threshold = int(length * DEFAULT_SHARE)
    return CompactionSettings(threshold) if request.generates else None  # else there is no prompt


def without_trigger(sent: Sequence[Item]) -> list[Item]:
    """Return a request's items without the compaction trigger, which is not part of the conversation."""
    return [item for item in sent if not isinstance(item, CompactionTrigger)]


class Compactor:
    """Runs the generations that write a response's summaries, if needed."""

    def __init__(
        self,
        wanted: CompactionSettings,
        model: ServedModel,
        settings: GenerationSettings,
        metrics: Metrics,
        *,
        truncate: bool,
        seal: Seal,
        preamble: int = 0,
        made_at: float | None = None,
    ) -> None:
        """`settings` are the response's settings; their limits and stop strings do not apply to summaries. `truncate`
        applies to the response's prompts. `seal` encrypts the summaries. `preamble` is the number of items at the
        beginning of each turn that come from a stored prompt, and are kept. `made_at`: see `Generator`."""
        self._seal = seal
        sampling = msgspec.structs.replace(
            settings.sampling,
            max_tokens=None,
            min_tokens=None,
            stop=(),
            stop_token_ids=(),
            ignore_eos=False,
            include_stop_str_in_output=False,
            logit_bias=None,
            allowed_token_ids=(),
            logprobs=None,
            prompt_logprobs=None,
        )
        own = msgspec.structs.replace(
            settings,
            sampling=sampling,
            stops=RequestStops(()),
            structure=None,
            thinking_budget=None,
        )
        self._wanted = wanted
        self._threshold = wanted.threshold
        self._model = model
        self._writer = Generator(model, own, metrics, made_at=made_at)
        self._truncate = truncate
        self._preamble = preamble
        self._begun: tuple[Turn, Sequence[Message], Generation] | None = None
        """The turn to summarize, the messages to keep, and the summarizing generation."""
        self.tokens = self._writer.tokens

    async def begin(self, generator: Generator, turn: Turn) -> Generation | None:
        """Prepare the generation of `turn`, and let the engine check it. Returns None if `run` must compact the history
        first.

        Raises a `GatewayError` that is answered with an HTTP status.
        """
        kept: Sequence[Message] = ()
        if (threshold := self._threshold) is not None:
            conversation = turn.items[self._preamble :]
            kept = kept_messages(conversation)
            if not _exceeds(conversation, kept):
                return await generator.fitting(
                    turn, truncate=self._truncate, preamble=self._preamble
                )
            try:
                first = await generator.fitting(turn)
            except InvalidRequest as error:
                if error.code != CONTEXT_LENGTH_EXCEEDED:
                    raise
            else:
                if await self._length(first) <= threshold:
                    return first
        asked = msgspec.structs.replace(
            turn,
            items=[*turn.items, SUMMARY_REQUEST],
            tools=(),
            tool_choice="auto",
            text_format=TextFormat(),
            add_generation_prompt=True,
            continue_final_message=False,
        )
        # If the conversation is too long even for the summary, its oldest turns are left out.
        self._begun = (
            turn,
            kept,
            await self._writer.fitting(asked, truncate=True, preamble=self._preamble),
        )
        return None

    async def run(
        self,
        assembler: ResponseAssembler,
        generator: Generator,
        sink: Sink[EventList],
    ) -> Generation | None:
        """Write the summary. Returns the generation that continues from it, or None if the response only compacts.

        Raises `GatewayError` if the summary is missing or incomplete.
        """
        assert self._begun is not None, "begin comes before run"
        turn, kept, asked = self._begun
        wanted = self._wanted
        await sink(assembler.open_compaction())
        summary = await self._summary(asked, assembler, sink)
        sealed = self._seal(summary, replaces=wanted.replaces, kept=kept)
        await sink(assembler.end_compaction(sealed))
        if wanted.threshold is None:
            return None
        context = compacted_context(summary, wanted.replaces, kept)
        stored = turn.items[: self._preamble]
        after = msgspec.structs.replace(turn, items=[*stored, *context])
        generation = await generator.fitting(
            after, truncate=self._truncate, preamble=self._preamble
        )
        # The remaining prompt may exceed the threshold; do not compact again after each tool call.
        self._threshold = max(wanted.threshold, 2 * await self._length(generation))
        return generation

    async def _length(self, first: Generation) -> int:
        """Return the length of a prompt in tokens. Raises `Unsupported` if the gateway does not know it."""
        prompt = first.request.prompt
        if not isinstance(prompt, TokensPrompt):
            raise Unsupported(
                "The engine of this model counts its tokens itself, so no threshold can be kept here. Send a"
                " compaction_trigger item when it is time.",
                param="context_management",
            )
        return await prompt_length(prompt, self._model.engine)

    async def _summary(
        self,
        asked: Generation,
        assembler: ResponseAssembler,
        sink: Sink[EventList],
    ) -> str:
        writer = _SummaryWriter(assembler)
        if last := await self._writer.run(asked, writer, sink):
            await sink(last)
        summary = "".join(writer.said).strip()
        if writer.reason != "stop" or not summary:
            raise EngineError("The model did not produce a summary of the conversation. Try again.")
        return summary


class _SummaryWriter:
    """Collects a summary. Implements `gateway.generation.writers.GenerationWriter`."""

    def __init__(self, assembler: ResponseAssembler) -> None:
        self.said: list[str] = []
        self.reason: FinishReason | None = None
        self._assembler = assembler

    def feed(self, deltas: Sequence[Delta]) -> EventList:
        begun = bool(self.said)
        self.said.extend(delta.text for delta in deltas if isinstance(delta, TextDelta))
        return self._assembler.compacting() if self.said and not begun else []

    def end(self, held: Sequence[Delta], reason: FinishReason) -> EventList:
        self.reason = reason
        return self.feed(held)


def kept_messages(context: Sequence[Item]) -> list[Message]:
    """Return the messages that are kept in addition to a summary of `context`: system and developer messages, and the
    user messages at the beginning of the last turn."""
    kept = [
        item
        for item in context
        if isinstance(item, Message) and item.role in ("system", "developer")
    ]
    for item in context[(turn_starts(context) or [0])[-1] :]:
        if not isinstance(item, Message):
            break
        if item.role == "user" and not is_summary(item):
            kept.append(item)
    return kept


def _exceeds(context: Sequence[Item], kept: Sequence[Message]) -> bool:
    """Whether `context` contains more than the kept messages and earlier summaries."""
    own = [each for each in context if not (isinstance(each, Message) and is_summary(each))]
    return len(own) > len(kept)
