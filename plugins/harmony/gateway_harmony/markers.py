"""The special tokens of Harmony, and how they are found in streamed text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, TypeAlias

START: Final = "<|start|>"
END: Final = "<|end|>"
MESSAGE: Final = "<|message|>"
CHANNEL: Final = "<|channel|>"
CONSTRAIN: Final = "<|constrain|>"
RETURN: Final = "<|return|>"
CALL: Final = "<|call|>"

MARKERS: Final = (START, END, MESSAGE, CHANNEL, CONSTRAIN, RETURN, CALL)
LONGEST: Final = max(map(len, MARKERS))
PATTERN: Final = re.compile("|".join(map(re.escape, MARKERS)))

Markup: TypeAlias = Sequence[tuple[str, str]]
"""Markers, each with the text after it. That text is untrusted: markers spelled out in it do not count."""

PARTIAL: Final = frozenset(marker[:end] for marker in MARKERS for end in range(1, len(marker)))
"""All proper prefixes of markers."""


def possible_marker_length(text: str, pos: int) -> int:
    """Length of the suffix of `text[pos:]` that may still become a marker. Markers contain one `<`, at the start."""
    at = text.rfind("<", max(pos, len(text) - LONGEST + 1))
    return len(text) - at if at >= 0 and text[at:] in PARTIAL else 0
