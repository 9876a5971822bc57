"""Reads arguments that a model wrote as a JSON string containing JSON."""

from __future__ import annotations

from typing import Final

from gateway_parsers.kit.json_text import JsonStringReader
from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.markers import WHITESPACE, MarkerSet

_LONGEST_ESCAPE: Final = len("\\ud83d\\ude00")
_NO_STOPS: Final = MarkerSet(())
_LEFTOVERS: Final = WHITESPACE + "}]`\"'\\"
"""Characters after an object that say nothing: superfluous brackets and quotation marks, the end of a code block."""


class EncodedArguments:
    """Reads the string after its opening quote and returns the object that it contains, repaired if necessary."""

    __slots__ = ("_after", "_held", "_text", "_value", "failed", "is_object", "repairs")

    def __init__(self, quote: str) -> None:
        self.is_object = False
        """Whether the string contains an object, as far as it was read."""
        self.failed = False
        """Whether it contains something else."""
        self.repairs = 0
        self._text = JsonStringReader(quote)
        self._value = JsonValue(_NO_STOPS)
        self._held = ""
        self._after: list[str] = []
        """What follows the object within the string."""

    @property
    def spare(self) -> str:
        """What the string says after its object."""
        return "".join(self._after).lstrip(_LEFTOVERS).rstrip(WHITESPACE)

    @property
    def done(self) -> bool:
        return self._text.done

    def read(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Like `JsonValue.read`. An empty string gives nothing."""
        decoded = ""
        while not self.is_object:
            pos, decoded = self._first(text, pos, final=final)
            if self.done or not decoded:
                return pos, ""
            self.is_object = decoded == "{"
            self.failed = not self.is_object and decoded not in WHITESPACE
            if self.failed:
                return pos, ""
        pos, more = self._text.read(text, pos, final=final)
        decoded = self._held + decoded * (decoded == "{") + more
        end, found = self._value.read(decoded, 0, final=self.done)
        self._held = decoded[end:] if not self._value.done else ""
        if self._value.done and end < len(decoded):
            self._after.append(decoded[end:])
        if self.done and not self._value.done:
            found += self.ending()
        self.repairs = self._value.repairs
        return pos, found

    def _first(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Read one character."""
        for size in range(1, min(_LONGEST_ESCAPE, len(text) - pos) + 1):
            reached, decoded = self._text.read(text[pos : pos + size], 0, final=False)
            if reached:
                return pos + reached, decoded
        return (len(text), "") if final else (pos, "")

    def ending(self) -> str:
        """What completes the object if the string ends here."""
        return self._value.ending()
