"""The interpreter of cells from the agent's side: a process that answers requests and may be interrupted or die."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from .processes import CHUNK, BoundedOutput, EventLoop

MAX_ANSWER = 16 * 1024 * 1024
"""Maximum size of one answer in bytes; an interpreter that exceeds it is killed."""


class InterpreterProcess:
    """A Python process that keeps its variables from cell to cell."""

    def __init__(self, loop: EventLoop, command: list[str], died: Callable[[str], None]) -> None:
        self._loop = loop
        self._died = died
        self._answered: Callable[[dict[str, Any]], None] | None = None
        self.text = BoundedOutput(0)
        self._buffer = bytearray()
        requests, self._requests = os.pipe()
        self._answers, answers = os.pipe()
        self._output, output = os.pipe()
        try:
            self._popen = subprocess.Popen(  # noqa: S603 - the interpreter itself
                [*command, str(requests), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(requests, answers),
                start_new_session=True,
            )
        except OSError:
            for descriptor in (self._requests, self._answers, self._output):
                os.close(descriptor)
            raise
        finally:
            for descriptor in (requests, answers, output):
                os.close(descriptor)
        loop.watch(self._output, self._read_output)
        loop.watch(self._answers, self._read_answer)

    def run(self, code: str, limit: int, answered: Callable[[dict[str, Any]], None]) -> None:
        self.text = BoundedOutput(limit)
        self._answered = answered
        data = json.dumps({"code": code}).encode() + b"\n"
        os.set_blocking(self._requests, True)  # blocking is fine: it waits for nothing else
        try:
            while data:
                data = data[os.write(self._requests, data) :]
        except OSError:
            self._end()

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            os.kill(self._popen.pid, signal.SIGINT)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._loop.at(self, 0.1, self._end)  # its pipes may be held open by processes it has forked

    def _read_output(self) -> None:
        """Read all available output. The output of a cell is available before its answer is."""
        while True:
            try:
                data = os.read(self._output, CHUNK)
            except BlockingIOError:
                return
            if not data:
                return
            self.text.add(data)
            if len(data) < CHUNK:
                return

    def _read_answer(self) -> None:
        try:
            data = os.read(self._answers, CHUNK)
        except BlockingIOError:
            return
        self._buffer += data
        if not data or len(self._buffer) > MAX_ANSWER:
            self._end()
            return
        if b"\n" not in data:
            return
        line, _, rest = self._buffer.partition(b"\n")
        self._buffer = bytearray(rest)
        answered, self._answered = self._answered, None
        if answered is None:
            return  # unsolicited: written by the cell's own code
        try:
            answer = json.loads(line)
        except ValueError:
            self._end()
            return
        self._read_rest()
        self._kill_children()
        answered(answer if isinstance(answer, dict) else {})

    def _read_rest(self) -> None:
        for _ in range(64):  # a pipe holds less; processes left running may write forever
            try:
                data = os.read(self._output, CHUNK)
            except BlockingIOError:
                return
            if not data:
                return
            self.text.add(data)

    def _kill_children(self) -> None:
        """Kill processes that the cell has left running, if they are still in the interpreter's session."""
        own = self._popen.pid
        try:
            numbers = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        except OSError:
            return
        for number in numbers:
            try:
                with open(f"/proc/{number}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                if number != own and int(fields[3]) == own:
                    os.kill(number, signal.SIGKILL)
            except (OSError, ValueError, IndexError):
                continue

    def _end(self) -> None:
        self.kill()
        self._loop.cancel(self)
        code = self._popen.wait()
        self._read_rest()
        self._kill_children()
        for descriptor in (self._output, self._answers):
            self._loop.forget(descriptor)
        os.close(self._requests)
        self._died(f"signal {-code}" if code < 0 else f"exit code {code}")
