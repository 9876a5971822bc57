"""Deltas: the events that an output parser emits while it reads a model's text.

A parser emits only these, in the order of the model's output. `gateway.items.assembler` (Responses) and
`gateway.answers.chat.assembler` (Chat Completions) turn them into events and items. Grammar:

    output := ( ReasoningDelta | EncryptedReasoning | text | RefusalDelta | MessageStarted | BlockEnded | call )*
    text   := TextDelta | CitationStarted TextDelta+ CitationEnded?
    call   := CallStarted CallArgumentsDelta* CallEnded

A change of kind ends the previous block. `BlockEnded` is needed only between two blocks of the same kind, such as two
messages in a row. Deltas with empty text are not emitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Literal, TypeAlias

from msgspec import Struct


class ReasoningDelta(Struct, frozen=True, gc=False):
    """More of the model's chain of thought."""

    text: str


class EncryptedReasoning(Struct, frozen=True, gc=False):
    """A whole reasoning item, encrypted by the upstream server. Emitted once per item, after the item's text, if any.

    Only engines with the capability `encrypted_reasoning` emit it. They accept `content` in a later turn.
    """

    content: str


class TextDelta(Struct, frozen=True, gc=False):
    """More of the answer's text.

    `start` is the offset of `text` in the raw output, counted in characters of all `EngineOutput.text` fed so far;
    `text` is a verbatim slice of that output. Log probabilities are aligned by `start`. It is -1 if `text` is not
    such a slice.
    """

    text: str
    start: int = -1


class CitedSource(Struct, frozen=True, gc=False):
    """A source that a span of text cites. `url` is the source's address, or a fragment (`#documents/0`) that names
    it."""

    url: str
    title: str = ""


class CitationStarted(Struct, frozen=True, gc=False):
    """A cited span begins with the next text. An earlier span that has not ended is discarded."""


class CitationEnded(Struct, frozen=True, gc=False):
    """The open cited span ends here. A span without an end is ordinary text."""

    sources: tuple[CitedSource, ...]


class RefusalDelta(Struct, frozen=True, gc=False):
    """More of a refusal, from engines or output formats that distinguish refusals from answers."""

    text: str


class MessageStarted(Struct, frozen=True, gc=False):
    """A message begins. `phase` is its kind, if the output format knows it (Harmony's commentary and final
    channels)."""

    phase: Literal["commentary", "final_answer"] | None = None


class BlockEnded(Struct, frozen=True, gc=False):
    """The open message or reasoning ends here. The next delta begins a new item, even if it is of the same kind."""


class CallStarted(Struct, frozen=True, gc=False):
    """A tool call begins. `name` is the complete name, as the model wrote it.

    `call_id` is set only by output formats in which the model writes it (kimi, mistral); otherwise the assembler
    makes one.
    """

    name: str
    call_id: str | None = None


class CallArgumentsDelta(Struct, frozen=True, gc=False):
    """More of the open call's arguments: JSON text. The texts of a call add up to what the model wrote, or to `{}` if
    the call has no arguments."""

    text: str


class CallEnded(Struct, frozen=True, gc=False):
    """The open call is complete. A call that is still open when the output ends was cut off."""


Delta: TypeAlias = (
    ReasoningDelta
    | EncryptedReasoning
    | TextDelta
    | CitationStarted
    | CitationEnded
    | RefusalDelta
    | MessageStarted
    | BlockEnded
    | CallStarted
    | CallArgumentsDelta
    | CallEnded
)


def joined(deltas: Iterable[Delta]) -> list[Delta]:
    """Return an equivalent list of deltas in which adjacent deltas of one text are merged.

    Offsets in the raw output are lost, so log probabilities can no longer be aligned.
    """
    out: list[Delta] = []
    for kind, group in groupby(deltas, type):
        if kind is TextDelta:
            out.append(TextDelta("".join([delta.text for delta in group])))  # type: ignore[union-attr]  # of one kind
        elif kind is ReasoningDelta:
            out.append(ReasoningDelta("".join([delta.text for delta in group])))  # type: ignore[union-attr]
        elif kind is CallArgumentsDelta:
            out.append(CallArgumentsDelta("".join([delta.text for delta in group])))  # type: ignore[union-attr]
        else:
            out += group
    return out
