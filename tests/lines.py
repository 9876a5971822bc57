"""Counting what a piece of code does, in lines of source that are run: a measure of work that no machine changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Lines:
    """Counts lines of some files as they are run."""

    def __init__(self, endings: tuple[str, ...]) -> None:
        self.count = 0
        self._endings = endings

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename.endswith(self._endings):
            return self._line
        return None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line":
            self.count += 1
        return self._line


@contextmanager
def lines_run(*files: str) -> Iterator[Lines]:
    """Counts the lines of `files`, named by the ends of their paths, that this thread runs within the context."""
    lines, before = Lines(files), sys.gettrace()
    sys.settrace(lines)
    try:
        yield lines
    finally:
        sys.settrace(before)
