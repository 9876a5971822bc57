"""Base of call readers: a sequence of steps, each of which reads as far as it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from gateway.sdk import CallArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.syntax import Accept

Step: TypeAlias = Callable[[Any, str, int, bool], int]
"""`step(reader, text, pos, final)` reads from `pos` and returns where it stopped.

It advances, or sets another step or a status, or waits for more text. Steps must not switch to each other endlessly
without advancing.
"""


class StepReader:
    """A `CallReader` made of steps. Text read while undecided is kept in case it is not a call."""

    __slots__ = (
        "_accept", "_raw", "_step", "out", "recoveries", "status", "unclosed", "undecided", "verbatim",
    )  # fmt: skip

    def __init__(self, marker: str, accept: Accept | None, step: Step) -> None:
        self.status: Literal["more", "done", "failed"] = "more"
        self.undecided = True
        self.unclosed = False
        self.verbatim = False
        self.recoveries = 0
        self.out: list[Delta] = []
        self._accept = accept
        self._raw = [marker]
        self._step = step

    @property
    def raw(self) -> str:
        return "".join(self._raw)

    def read(self, text: str, pos: int, *, final: bool) -> int:
        end = len(text)
        while pos < end and self.status == "more":
            step, undecided = self._step, self.undecided
            reached = step(self, text, pos, final)
            if undecided and self.undecided:
                self._raw.append(text[pos:reached])
            if reached == pos and self._step is step:
                break
            pos = reached
        return pos

    def _accepts(self, name: str) -> bool:
        """Whether a call of this name is acceptable here."""
        return bool(name) and (self._accept is None or bool(self._accept(name)))

    def _start(self, name: str, call_id: str | None = None, *, lead: str = "") -> bool:
        """Start a call. Returns False if the name is empty or not acceptable here. `lead`: what the model wrote in the
        call that is none of it; it becomes text before the call."""
        if not self._accepts(name):
            return False
        self.undecided = False
        self._raw.clear()
        if lead := lead.strip(WHITESPACE):
            self.out.append(TextDelta(lead))
        self.out.append(CallStarted(name, call_id))
        return True

    def _arguments(self, text: str) -> None:
        if text:
            self.out.append(CallArgumentsDelta(text))

    def _end(self) -> None:
        self.out.append(CallEnded())

    def _undecide(self, raw: str) -> None:
        """From here on, starting with `raw`, what is read may again turn out to be text."""
        if not self.undecided:
            self.undecided = True
            self._raw.append(raw)


def may_become(text: str, pos: int, marker: str) -> bool:
    """Whether all text from `pos` on is a beginning of `marker`."""
    return len(text) - pos <= len(marker) and marker.startswith(text[pos:])


def skip(text: str, pos: int, chars: str) -> int:
    """The first position at or after `pos` whose character is not in `chars`."""
    end = len(text)
    while pos < end and text[pos] in chars:
        pos += 1
    return pos
