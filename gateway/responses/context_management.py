"""A response that compacts what it goes on from: `context_management`, and `compaction_trigger` items.

The model writes a summary as the response's first item, and goes on from that; what was before is in no prompt again. After a
trigger the summary is all that the response makes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from gateway.deltas import Delta, TextDelta
from gateway.errors import EngineError, InvalidRequest, Unsupported
from gateway.loop.generation import (
    CONTEXT_LENGTH_EXCEEDED,
    Generation,
    GenerationSettings,
    Generator,
)
from gateway.loop.truncation import turn_starts
from gateway.protocols import FinishReason, TextFormat, TokensPrompt, Turn
from gateway.responses.sealing import Replaces, compacted_context, is_summary
from gateway.serving.metrics import Metrics
from gateway.serving.served import ServedModel
from gateway.wire.content import InputText
from gateway.wire.items import CompactionTrigger, Item, Message
from gateway.wire.request import ResponseRequest

if TYPE_CHECKING:
    from gateway.responses.assembler import ResponseAssembler
    from gateway.responses.open_item import Out

DEFAULT_SHARE = 0.75
"""Of the model's context: where an entry has no `compact_threshold`."""

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
    """Seals a summary for the response's owner; see `Sealer.seal`."""

    def __call__(self, text: str, *, replaces: Replaces, kept: Sequence[Message]) -> str: ...


class WantedCompaction(Struct, frozen=True):
    """When a response compacts what it goes on from."""

    threshold: int | None
    """Tokens of the prompt beyond which it does; None: at once, and does nothing else."""

    @property
    def replaces(self) -> Replaces:
        return "context" if self.threshold is None else "all"


def wanted_compaction(request: ResponseRequest, model: ServedModel) -> WantedCompaction | None:
    """What a request asks for, if it does. Raises for what cannot be."""
    sent = request.input or []
    for index, item in enumerate(sent):
        if isinstance(item, CompactionTrigger):
            if index + 1 < len(sent):
                raise InvalidRequest(
                    "A compaction_trigger must be the last item of the input: it compacts what is before it.",
                    param=f"input[{index}]",
                    code="invalid_value",
                )
            if index == 0 and not (request.previous_response_id or request.conversation):
                raise InvalidRequest(
                    "There is nothing to compact. Send the items before the compaction_trigger, or previous_response_id.",
                    param="input",
                )
            return WantedCompaction(None)
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
                param="context_management[0].compact_threshold",
                code="missing_required_parameter",
            )
        threshold = int(length * DEFAULT_SHARE)
    return WantedCompaction(threshold)


def without_trigger(sent: Sequence[Item]) -> list[Item]:
    """A request's items but for its trigger, which is none of the conversation."""
    return [item for item in sent if not isinstance(item, CompactionTrigger)]


class Compactor:
    """The calls of the model that write a response's summaries, where there are to be some."""

    def __init__(
        self,
        wanted: WantedCompaction,
        model: ServedModel,
        settings: GenerationSettings,
        metrics: Metrics,
        *,
        truncate: bool,
    ) -> None:
        """`settings` are those of the response, whose limits and stops do not hold for a summary; `truncate` holds for the
        prompts of the response.
        """
        sampling = msgspec.structs.replace(
            settings.sampling,
            max_tokens=None,
            min_tokens=None,
            stop=(),
            stop_token_ids=(),
            ignore_eos=False,
            include_stop_str_in_output=False,
            logit_bias=None,
            logprobs=None,
            prompt_logprobs=None,
        )
        own = msgspec.structs.replace(settings, sampling=sampling)
        self._wanted = wanted
        self._threshold = wanted.threshold
        self._writer = Generator(model, own, metrics)
        self._truncate = truncate
        self._begun: tuple[Turn, Sequence[Message], Generation] | None = None
        """What is to be summarized, what of it is kept, and the call that does it."""
        self.tokens = self._writer.tokens

    async def begin(self, generator: Generator, turn: Turn) -> Generation | None:
        """The generation of `turn`, which the engine has looked at; None where it is to be compacted first: see `run`.

        Raises what a client must be told by HTTP status.
        """
        kept: Sequence[Message] = ()
        if (threshold := self._threshold) is not None:
            kept = kept_messages(turn.items)
            if not _is_more(turn.items, kept):
                return await generator.fitting(turn, truncate=self._truncate)
            try:
                first = await generator.fitting(turn)
            except InvalidRequest as error:
                if error.code != CONTEXT_LENGTH_EXCEEDED:
                    raise
            else:
                if _length(first) <= threshold:
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
        # What is too long even for a summary is summarized without its oldest turns.
        self._begun = turn, kept, await self._writer.fitting(asked, truncate=True)
        return None

    async def run(
        self,
        assembler: ResponseAssembler,
        generator: Generator,
        sink: Callable[[Out], Awaitable[None]],
        seal: Seal,
    ) -> Generation | None:
        """Write the summary; the generation that goes on from it, or None where there is none to be.

        Raises `GatewayError` where there is no summary, or not a whole one.
        """
        assert self._begun is not None, "begin comes before run"
        turn, kept, asked = self._begun
        wanted = self._wanted
        await sink(assembler.open_compaction())
        summary = await self._summary(asked, assembler, sink)
        sealed = seal(summary, replaces=wanted.replaces, kept=kept)
        await sink(assembler.end_compaction(sealed))
        if wanted.threshold is None:
            return None
        context = compacted_context(summary, wanted.replaces, kept)
        after = msgspec.structs.replace(turn, items=context)
        generation = await generator.fitting(after, truncate=self._truncate)
        # What stays may be beyond the threshold by itself: it must not be compacted for each call of a tool.
        self._threshold = max(wanted.threshold, 2 * _length(generation))
        return generation

    async def _summary(
        self,
        asked: Generation,
        assembler: ResponseAssembler,
        sink: Callable[[Out], Awaitable[None]],
    ) -> str:
        said: list[str] = []
        reasons: list[FinishReason] = []

        def write(deltas: Sequence[Delta]) -> Out:
            begun = bool(said)
            said.extend(delta.text for delta in deltas if isinstance(delta, TextDelta))
            return assembler.compacting() if said and not begun else []

        def end(deltas: Sequence[Delta], reason: FinishReason) -> Out:
            reasons.append(reason)
            return write(deltas)

        await self._writer.run(asked, write, end, sink)
        summary = "".join(said).strip()
        if reasons != ["stop"] or not summary:
            raise EngineError("The model came to no summary of the conversation. Try again.")
        return summary


def kept_messages(context: Sequence[Item]) -> list[Message]:
    """What stays as it is beside a summary of `context`: who gives instructions, and what the user has said last."""
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


def _is_more(context: Sequence[Item], kept: Sequence[Message]) -> bool:
    """Whether there is more in `context` than what is kept, and what was compacted before."""
    own = [each for each in context if not (isinstance(each, Message) and is_summary(each))]
    return len(own) > len(kept)


def _length(first: Generation) -> int:
    """Tokens of a prompt; raises where the gateway does not know them."""
    prompt = first.request.prompt
    if not isinstance(prompt, TokensPrompt):
        raise Unsupported(
            "The engine of this model counts its tokens itself, so no threshold can be kept here. Send a compaction_trigger "
            "item when it is time.",
            param="context_management",
        )
    return len(prompt.token_ids)
