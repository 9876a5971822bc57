"""The heartbeat of an engine's process: the process writes to a pipe while its event loop runs, and the parent reads
from it."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import subprocess
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.observe.stall_watch import STALL_SECONDS, BeatWatch, StallWatch

logger = logging.getLogger("gateway.engines.process.heartbeat")

BEAT_SECONDS: Final = 1.0
_BEAT: Final = b"\x01"
_REST: Final = b"\x00"
"""Written when the beats stop on purpose: the parent expects nothing until the next beat."""


class HeartbeatWriter:
    """Writes the heartbeat in the engine's process."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is the file descriptor of the pipe."""
        os.set_inheritable(descriptor, False)
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    async def beat(self) -> None:
        """Write a beat every `BEAT_SECONDS` until this is cancelled. After that, the process may be silent for any
        time."""
        try:
            while True:
                self._write(_BEAT)
                await asyncio.sleep(BEAT_SECONDS)
        finally:
            self._write(_REST)

    def _write(self, beat: bytes) -> None:
        # These errors mean that the parent has ended, or has read nothing for hours.
        with suppress(BrokenPipeError, BlockingIOError):
            os.write(self._descriptor, beat)


class HeartbeatReader:
    """Reads the heartbeat in the parent. `beats` is the number of beats; 0 before the first beat and while none is
    expected."""

    def __init__(self, descriptor: int) -> None:
        """`descriptor` is the file descriptor of the pipe. `close` closes it."""
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self._total = 0
        self.beats = 0

    def read(self, seconds: float) -> bool:
        """Wait for the next beat, for at most `seconds`. Returns False if the process has closed its end."""
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

    If the event loop of the process has not run for `seconds`, `silent` is called, and the process is killed if it
    returns True. With `seconds` of 0 the process is never killed.
    """
    watch, stalls, killed = BeatWatch(lambda: heartbeat.beats, seconds), StallWatch(), False
    while process.poll() is None:
        if not heartbeat.read(BEAT_SECONDS):
            return process.wait()
        is_silent = (
            watch.silent()
        )  # before `stalled`: this process may be suspended between the two calls
        if stalls.stalled(STALL_SECONDS):
            watch.begin_anew()
        elif not killed and is_silent and silent():
            process.kill()
            killed = True
    return process.wait()
