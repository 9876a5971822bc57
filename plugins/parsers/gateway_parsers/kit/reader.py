"""The frame of a call reader: steps, each of which reads on as far as it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from gateway.deltas import CallArgumentsDelta, CallEnded, CallStarted, Delta
from gateway_parsers.kit.syntax import Accept

Step: TypeAlias = Callable[[Any, str, int, bool], int]
"""`step(reader, text, pos, final)` reads from `pos` and returns where it stopped.

It either moves on, or sets another step or a status, or waits for more text; never two of the first in a circle.
"""


class StepReader:
    """A `CallReader` made of steps. What is read while undecided is kept, in case that it turns out to be text."""

    __slots__ = ("_accept", "_raw", "_step", "out", "recoveries", "status", "unclosed", "undecided")

    def __init__(self, marker: str, accept: Accept | None, step: Step) -> None:
        self.status: Literal["more", "done", "failed"] = "more"
        self.undecided = True
        self.unclosed = False
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

    def _start(self, name: str, call_id: str | None = None) -> bool:
        """A call begins, unless its name is none or cannot be one here: then False."""
        if not name or (self._accept is not None and not self._accept(name)):
            return False
        self.undecided = False
        self._raw.clear()
        self.out.append(CallStarted(name, call_id))
        return True

    def _arguments(self, text: str) -> None:
        if text:
            self.out.append(CallArgumentsDelta(text))

    def _end(self) -> None:
        self.out.append(CallEnded())

    def _undecide(self, raw: str) -> None:
        """What is read from here on, beginning with `raw`, may again turn out to be text."""
        self.undecided = True
        self._raw.append(raw)


def skip(text: str, pos: int, chars: str) -> int:
    """The first place at or after `pos` that holds none of `chars`."""
    end = len(text)
    while pos < end and text[pos] in chars:
        pos += 1
    return pos
