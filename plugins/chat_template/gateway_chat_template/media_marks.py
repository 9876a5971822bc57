"""Marks for images and sounds in rendered prompts, for templates that need not know of them.

A mark is text of the template's origin, so text from outside that is spelled the same is not a mark.
"""

from __future__ import annotations

import re

from msgspec import Struct

from gateway.sdk.engines import Origin, Part
from gateway_chat_template.marked_text import parts_of

_MARK = re.compile("\u2060\u2063-([0-9]{1,9})-\u2063\u2060")
"""Has no letters and no white space, so that filters that trim or change the case keep it."""


class PromptSegment(Struct, frozen=True):
    """The parts of a prompt up to a mark, or up to its end."""

    parts: list[Part]
    index: int | None
    """The number in the mark; None at the end of the prompt."""

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts)


def mark_of(index: int) -> str:
    """The mark of the image or sound with this index."""
    return f"\u2060\u2063-{index}-\u2063\u2060"


def without_marks(text: str) -> list[PromptSegment]:
    """The stretches of a rendered prompt between its marks. The last one ends with the prompt."""
    stretches: list[PromptSegment] = []
    parts: list[Part] = []
    for part, origin in parts_of(text):
        at = 0
        if origin is Origin.TEMPLATE:
            for mark in _MARK.finditer(part):
                parts.append((part[at : mark.start()], origin))
                stretches.append(PromptSegment([each for each in parts if each[0]], int(mark[1])))
                parts, at = [], mark.end()
        parts.append((part[at:], origin))
    return [*stretches, PromptSegment([each for each in parts if each[0]], None)]
