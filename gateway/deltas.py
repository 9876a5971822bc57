"""What an output parser says: the small alphabet between a model's text and the API's items.

A parser emits these in the order of the model's output, and nothing else; `gateway.assembly.assembler` (Responses) and
`gateway.chat.assembler` (Chat Completions) turn them into events and items. Grammar:

    output := ( ReasoningDelta | EncryptedReasoning | text | RefusalDelta | MessageStarted | BlockEnded | call )*
    text   := TextDelta | CitationStarted TextDelta+ CitationEnded?
    call   := CallStarted CallArgumentsDelta* CallEnded

A change of kind ends the block before it. `BlockEnded` is needed only between two blocks of one kind (two messages in
a row). Deltas with empty text are not emitted.
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
    """The whole reasoning item in a form that only its upstream can read. Comes once per item, after its text, if any.

    Only engines with the capability `encrypted_reasoning` emit it, and read `content` back in a later turn.
    """

    content: str


class TextDelta(Struct, frozen=True, gc=False):
    """More of the answer's text.

    `start` is the offset of `text` in the raw output, in characters of the `EngineOutput.text` fed so far: `text` is a
    verbatim slice of it. Log probabilities are aligned by it. -1 where `text` is not a slice of the output.
    """

    text: str
    start: int = -1


class CitedSource(Struct, frozen=True, gc=False):
    """What a span of text is based on. `url` is its address, or a fragment (`#documents/0`) that names it."""

    url: str
    title: str = ""


class CitationStarted(Struct, frozen=True, gc=False):
    """A cited span begins with the next text. It replaces one that began before and has no end."""


class CitationEnded(Struct, frozen=True, gc=False):
    """The cited span that began in this text ends here. A span without an end is ordinary text."""

    sources: tuple[CitedSource, ...]


class RefusalDelta(Struct, frozen=True, gc=False):
    """More of a refusal, from engines or formats that tell one from an answer."""

    text: str


class MessageStarted(Struct, frozen=True, gc=False):
    """A message begins; `phase` says which kind, where the format knows (Harmony's commentary and final channels)."""

    phase: Literal["commentary", "final_answer"] | None = None


class BlockEnded(Struct, frozen=True, gc=False):
    """The open message or reasoning ends here; what follows is a new item even if it is of the same kind."""


class CallStarted(Struct, frozen=True, gc=False):
    """A tool call begins. `name` is whole, as the model wrote it.

    `call_id` is given only by formats that fix it (kimi, mistral); otherwise the assembler makes one.
    """

    name: str
    call_id: str | None = None


class CallArgumentsDelta(Struct, frozen=True, gc=False):
    """More of the open call's arguments: JSON text, whose parts add up to what the model wrote, `{}` for none."""

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
    """The same output in as few deltas as can be: neighbours that add to one text are one.

    Where they stand in the raw output is lost: this is not for log probabilities.
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
