"""The heartbeat of an engine's process: it writes to a pipe while its event loop runs, and its parent reads that."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.stall_watch import STALL_SECONDS, BeatWatch, StallWatch

logger = logging.getLogger("gateway.engine_process.heartbeat")

BEAT_SECONDS: Final = 1.0
_BEAT: Final = b"\x01"
_REST: Final = b"\x00"
"""Nothing is counted until the next beat."""


class HeartbeatWriter:
    """The end of the engine's process."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is that of the pipe."""
        os.set_inheritable(descriptor, False)
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def beat(self) -> None:
        """Beat once in `BEAT_SECONDS`, until this is cancelled. After that the process may take any time."""
        try:
            while True:
                self._write(_BEAT)
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self._write(_REST)

    def _write(self, beat: bytes) -> None:
        # The parent has ended, or has read nothing for hours.
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._descriptor, beat)


class HeartbeatReader:
    """The parent's end. `beats` is the number of beats, or 0 before the first one and at rest."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is that of the pipe. It is closed by `close`."""
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._total = 0
        self.beats = 0

    def read(self, seconds: float) -> bool:
        """Wait for the next beat, for `seconds` at most. Returns False if the process has closed its end."""
        if not self._poll.poll(seconds * 1000):
            return True
        data = os.read(self._descriptor, 4096)
        self._total += len(data)
        self.beats = 0 if data.endswith(_REST) else self._total
        return bool(data)

    def close(self) -> None:
        os.close(self._descriptor)


def wait_for_end(
    process: subprocess.Popen[bytes],
    heartbeat: HeartbeatReader,
    seconds: float,
    silent: Callable[[], bool],
) -> int:
    """Wait until the process has ended, and return its exit code. Blocks.

    If its event loop has not run for `seconds` (0: any time), and `silent` then returns True, it is killed.
    """
    watch, stalls, killed = BeatWatch(lambda: heartbeat.beats, seconds), StallWatch(), False
    while process.poll() is None:
        if not heartbeat.read(BEAT_SECONDS):
            return process.wait()
        is_silent = watch.silent()  # first: this process may be stopped between the two
        if stalls.stalled(STALL_SECONDS):
            watch.begin_anew()
        elif not killed and is_silent and silent():
            process.kill()
            killed = True
    return process.wait()
