"""Replacing matches in text, whole or as it comes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gateway.sdk import (
    CallArgumentsDelta,
    Delta,
    Ending,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
)


class Redaction:
    """Patterns, and what replaces their matches.

    At each place of a text, from left to right, the first pattern that matches there wins. A match is looked for in the
    next `window` characters, and sees as many before it. So a match in a stream needs `window` characters at most, and is
    the same however the text is cut.
    """

    def __init__(
        self, patterns: Sequence[re.Pattern[str]], replacement: str, *, window: int
    ) -> None:
        self._patterns = patterns
        self.replacement = replacement
        self.window = window

    def apply(self, text: str) -> str:
        """The whole text with its matches replaced."""
        return RedactedText(self).feed(text, last=True)

    def length_at(self, text: str, at: int) -> int:
        """The length of the match that begins at `at`; 0 if there is none."""
        for pattern in self._patterns:
            found = pattern.match(text, at, at + self.window)
            if found is not None and found.end() > at:
                return found.end() - at
        return 0


class RedactedText:
    """One text that comes in parts."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._text = ""
        """What was not decided yet, after the last characters that were."""
        self._at = 0
        """The first character of `_text` that was not decided."""

    def feed(self, more: str, *, last: bool = False) -> str:
        """The text that is decided now. `last`: nothing follows."""
        redaction = self._redaction
        text, at = self._text + more, self._at
        end = len(text) if last else len(text) - redaction.window
        out: list[str] = []
        kept = at
        while at < end:
            if length := redaction.length_at(text, at):
                out += (text[kept:at], redaction.replacement)
                at += length
                kept = at
            else:
                at += 1
        out.append(text[kept:at])
        # One character more than a window: a pattern must not take the beginning of the rest for that of the text.
        dropped = max(0, at - redaction.window - 1)
        self._text, self._at = text[dropped:], at - dropped
        return "".join(out)


class RedactingFilter:
    """Redacts one generation's output. Implements `gateway.sdk.OutputFilter`."""

    ended: Ending | None = None

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._kind: type[TextDelta | ReasoningDelta | RefusalDelta | CallArgumentsDelta] | None = (
            None
        )
        self._text = RedactedText(redaction)

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta | ReasoningDelta | RefusalDelta | CallArgumentsDelta):
                if type(delta) is not self._kind:
                    out += self.finish()
                    self._kind = type(delta)
                if text := self._text.feed(delta.text):
                    out.append(self._kind(text))
            else:
                out += self.finish()
                out.append(delta)
        return out

    def finish(self) -> Sequence[Delta]:
        kind, self._kind = self._kind, None
        text = self._text.feed("", last=True)
        self._text = RedactedText(self._redaction)
        return [kind(text)] if kind is not None and text else []
