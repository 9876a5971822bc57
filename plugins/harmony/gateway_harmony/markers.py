"""The special tokens of Harmony, and how they are found in a text that arrives in pieces."""

from __future__ import annotations

import re
from typing import Final

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

PARTIAL: Final = frozenset(marker[:end] for marker in MARKERS for end in range(1, len(marker)))
"""What may still become a marker."""


def held(text: str, pos: int) -> int:
    """How many characters at the end of `text[pos:]` may still become a marker. Markers have one `<`, their first."""
    at = text.rfind("<", max(pos, len(text) - LONGEST + 1))
    return len(text) - at if at >= 0 and text[at:] in PARTIAL else 0
