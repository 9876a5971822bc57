"""Selects a call reader by the first character after the marker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from gateway.sdk import Delta
from gateway_parsers.kit.markers import WHITESPACE
from gateway_parsers.kit.reader import may_become, skip
from gateway_parsers.kit.syntax import CallReader


class ChoiceReader:
    """A `CallReader` that delegates to the one that `choose` returns for the first character not in `passed`.

    `mark`: a marker that may precede that character; empty if there is none.
    """

    __slots__ = (
        "_choose", "_empty", "_inner", "_mark", "_marker", "_passed", "_rest", "_spaces", "_status",
    )  # fmt: skip

    def __init__(
        self,
        marker: str,
        choose: Callable[[str], CallReader],
        *,
        passed: str = WHITESPACE,
        mark: str = "",
    ) -> None:
        self._choose = choose
        self._passed = passed
        self._mark = mark
        self._inner: CallReader | None = None
        self._marker = marker
        self._rest = ""
        """Skipped text, if the inner reader failed without taking it."""
        self._spaces: list[str] = []
        self._status: Literal["more", "done", "failed"] = "more"
        self._empty: list[Delta] = []

    @property
    def status(self) -> Literal["more", "done", "failed"]:
        return self._inner.status if self._inner is not None else self._status

    @property
    def undecided(self) -> bool:
        return self._inner.undecided if self._inner is not None else True

    @property
    def unclosed(self) -> bool:
        return self._inner.unclosed if self._inner is not None else False

    @property
    def verbatim(self) -> bool:
        return self._inner.verbatim if self._inner is not None else False

    @property
    def recoveries(self) -> int:
        return self._inner.recoveries if self._inner is not None else 0

    @property
    def out(self) -> list[Delta]:
        return self._inner.out if self._inner is not None else self._empty

    @property
    def raw(self) -> str:
        if self._inner is not None:
            return self._inner.raw + self._rest
        return self._marker + "".join(self._spaces)

    def read(self, text: str, pos: int, *, final: bool) -> int:
        while self._inner is None:
            start = skip(text, pos, self._passed)
            if start > pos:
                self._spaces.append(text[pos:start])
            if start == len(text):
                return start
            pos = start
            mark = self._mark
            if mark and text.startswith(mark, pos):
                self._mark = ""
                self._spaces.append(mark)
                pos += len(mark)
            elif mark and not final and may_become(text, pos, mark):
                return pos
            else:
                self._inner = self._choose(text[pos])
                passed = "".join(self._spaces)
                self._rest = passed[self._inner.read(passed, 0, final=False) :]
        return self._inner.read(text, pos, final=final)

    def finish(self, *, stopped: bool) -> None:
        if self._inner is not None:
            self._inner.finish(stopped=stopped)
        else:
            self._status = "failed"
