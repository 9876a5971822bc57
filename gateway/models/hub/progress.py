"""Showing the progress of downloads and of loading: as a bar on a terminal, or as lines in a log."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

logger = logging.getLogger("gateway.models.hub")

STEP = 10
"""A line is logged at each multiple of this, in percent."""


class DownloadProgress(Protocol):
    """Receives the progress in bytes. May be called in any thread."""

    def advance(self, count: int) -> None:
        """Add `count` to the number of completed bytes. Negative if some must be transferred again."""
        ...


class _Lines:
    """Logs a line per 10 %."""

    def __init__(self, what: str, total: int, done: int) -> None:
        self._what = what
        self._total = total
        self._done = done
        self._next = (100 * done // max(total, 1) // STEP + 1) * STEP
        self._lock = threading.Lock()

    def advance(self, count: int) -> None:
        with self._lock:
            self._done += count
            percent = 100 * self._done // max(self._total, 1)
            if percent < self._next:
                return
            self._next = (percent // STEP + 1) * STEP
        logger.info("%s: %d %% of %s", self._what, min(percent, 100), human_size(self._total))


class _Bar:
    """Draws tqdm's bar on standard error."""

    def __init__(self, what: str, total: int, done: int) -> None:
        from tqdm import tqdm  # type: ignore[import-untyped]

        self.bar = tqdm(
            desc=what, total=total, initial=done, unit="B", unit_scale=True, dynamic_ncols=True
        )

    def advance(self, count: int) -> None:
        self.bar.update(count)


@contextmanager
def progress(what: str, total: int, done: int = 0) -> Iterator[DownloadProgress]:
    """Show the progress of `what`, which has `total` bytes; `done` of them are complete at the beginning."""
    if not sys.stderr.isatty():
        yield _Lines(what, total, done)
        return
    try:
        shown = _Bar(what, total, done)
    except ImportError:
        yield _Lines(what, total, done)
        return
    with shown.bar:
        yield shown


def human_size(size: int) -> str:
    """A size in bytes with a unit, as in `396.7 MB`. Units are powers of 1000, as on the hub."""
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 999.95 and len(units) > 1:
        value /= 1000
        units.pop(0)
    return f"{value:.0f} {units[0]}" if units[0] == "B" else f"{value:.1f} {units[0]}"
