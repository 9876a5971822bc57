"""Restores line breaks of tokenizers that decode them as a backslash and an `n` (MiniCPM-V)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from gateway.sdk import Delta, EngineOutput, FinishReason, OutputParser, ReasoningDelta, TextDelta

_SPECIAL: Final = re.compile(r"[`$\\]")
_RUN: Final = re.compile(r"`{1,3}|\${1,2}|\\+")
_FORMULAS: Final = {"(": "\\)", "[": "\\]"}
_Block: TypeAlias = type[TextDelta] | type[ReasoningDelta]


class Newlines:
    """Converts one block of text. Code, formulas and doubled backslashes are kept."""

    __slots__ = ("_held", "_held_from", "_in_run", "_until")

    def __init__(self) -> None:
        self._held = ""
        """Trailing text that may be the beginning of an escape or a delimiter."""
        self._held_from = 0
        """Its offset."""
        self._until = ""
        """The end of the open code or formula."""
        self._in_run = False
        """Whether the text so far ends with two or more backslashes, and more may follow."""

    def feed(self, text: str, start: int, *, final: bool = False) -> Iterator[tuple[str, int]]:
        """The converted pieces with their offsets, which are -1 for line breaks. `start` is that of `text`, or -1."""
        join, held_from = len(self._held), self._held_from
        text = self._held + text
        self._held = ""

        def offset(place: int) -> int:
            """The offset of `text[place]`."""
            if place < join:
                return held_from + place if held_from >= 0 else -1
            return start + place - join if start >= 0 else -1

        def slices(begin: int, end: int) -> Iterator[tuple[str, int]]:
            """The slices of the output that `text[begin:end]` consists of."""
            adjoins = offset(0) + join == start
            if begin < join < end and not adjoins:  # there is hidden markup between them
                yield text[begin:join], offset(begin)
                begin = join
            if end > begin:
                yield text[begin:end], offset(begin)

        pos = begun = 0
        if self._in_run and text:
            pos = len(text) - len(text.lstrip("\\"))
            self._in_run = pos == len(text)
        while pos < len(text):
            if self._until:
                pos, whole = self._inside(text, pos, final=final)
                if not whole:
                    break
                continue
            hit = _SPECIAL.search(text, pos)
            if hit is None:
                pos = len(text)
                break
            pos = hit.start()
            after, decoded = self._special(text, pos, final=final)
            if after == pos:
                break
            if decoded:
                yield from slices(begun, pos)
                yield decoded, -1
                begun = after
            pos = after
        yield from slices(begun, pos)
        self._held, self._held_from = text[pos:], offset(pos)

    def _inside(self, text: str, pos: int, *, final: bool) -> tuple[int, bool]:
        until = self._until
        end = text.find(until, pos)
        if end >= 0:
            self._until = ""
            return end + len(until), True
        keep = (
            0
            if final
            else next((n for n in (2, 1) if n < len(until) and text.endswith(until[:n])), 0)
        )
        return max(pos, len(text) - keep), False

    def _special(self, text: str, pos: int, *, final: bool) -> tuple[int, str]:
        """Read a delimiter or an escape. Returns its end and a line break; the end is `pos` if more text is needed."""
        run = _RUN.match(text, pos)
        assert run is not None, "the search found its first character"
        end = run.end()
        mark = run[0]
        grows = end == len(text) and mark not in ("```", "$$")
        if grows and not final:
            if mark[0] != "\\" or len(mark) == 1:
                return pos, ""
            self._in_run = True
            return end, ""
        if mark[0] != "\\":
            self._until = mark if mark != "``" else "`"
            return (end if mark != "``" else end - 1), ""
        if len(mark) > 1 or end == len(text):
            return end, ""
        follower = text[end]
        if follower in _FORMULAS:
            self._until = _FORMULAS[follower]
        if follower == "n":
            return end + 1, "\n"
        if follower == "r":
            rest = text[end + 1 : end + 3]
            if not final and rest != "\\n" and "\\n".startswith(rest):
                return pos, ""
            return end + (3 if rest == "\\n" else 1), "\n"
        return end + 1, ""


class NewlineParser:
    """An `OutputParser` that restores the line breaks of another one's text and reasoning."""

    def __init__(self, parser: OutputParser) -> None:
        self._parser = parser
        self._newlines = Newlines()
        self._block: _Block | None = None
        self.reasoning_tokens = 0
        self.recoveries = 0

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        return self._converted(self._parser.feed(output))

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        return [*self._converted(self._parser.finish(reason)), *self._end()]

    def _converted(self, deltas: Sequence[Delta]) -> list[Delta]:
        self.reasoning_tokens = self._parser.reasoning_tokens
        self.recoveries = self._parser.recoveries
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, (TextDelta, ReasoningDelta)):
                if type(delta) is not self._block:
                    out += self._end()
                    self._block = type(delta)
                out += self._converted_text(
                    delta.text, delta.start if isinstance(delta, TextDelta) else -1
                )
            else:
                out += self._end()
                out.append(delta)
        return out

    def _converted_text(self, text: str, start: int, *, final: bool = False) -> Iterator[Delta]:
        for piece, at in self._newlines.feed(text, start, final=final):
            yield TextDelta(piece, at) if self._block is TextDelta else ReasoningDelta(piece)

    def _end(self) -> list[Delta]:
        """End the open block."""
        ended = list(self._converted_text("", 0, final=True)) if self._block is not None else []
        self._newlines = Newlines()
        self._block = None
        return ended
