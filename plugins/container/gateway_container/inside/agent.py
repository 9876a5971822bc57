"""The agent: the sandbox's one program, which runs commands, sessions and cells for the gateway.

It reads requests from its standard input and writes answers to its standard output, one JSON object to a line, in any
order; `id` says what belongs together. One thread, so that it answers also where no process or thread can be made. It has
no rights that the code it runs does not have: what it answers is to be doubted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from .cells import Interpreter
from .files import Folder
from .processes import CHUNK, Loop, Process

TO_GIVE_IN = 2.0
"""Seconds between the interruption of a cell and the end of its interpreter."""


class Agent:
    """Answers requests."""

    def __init__(self, loop: Loop, interpreter: list[str], requests: int, answers: int) -> None:
        self._loop = loop
        self._command = interpreter
        self._requests, self._answers = requests, answers
        self._buffer = bytearray()
        self._running: dict[int, Callable[[], None]] = {}
        """What ends a request before its time, by its id."""
        self._sessions: dict[str, Process] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        """Who waits to hear a session's output: at most one."""
        self._interpreter: Interpreter | None = None
        self._cell: tuple[int, str | None] | None = None
        """The request whose cell runs, and why it was stopped, if it was."""
        self._queue: list[tuple[int, dict[str, Any]]] = []
        self._lost: str | None = None
        """How an interpreter has ended between two cells, until the next answer tells of it."""
        self._folder = Folder(os.getcwd())
        loop.watch(requests, self._read)

    def answer(self, number: int, **fields: Any) -> None:
        self._running.pop(number, None)
        self._loop.cancel(number)
        data = json.dumps({"id": number, **fields}).encode() + b"\n"
        while data:
            data = data[os.write(self._answers, data) :]

    def _read(self) -> None:
        try:
            data = os.read(self._requests, CHUNK)
        except BlockingIOError:
            return
        if not data:
            os._exit(0)  # the gateway has left
        self._buffer += data
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            self._do(json.loads(line))

    def _do(self, request: dict[str, Any]) -> None:
        number = request["id"]
        if request["do"] == "stop":
            stop = self._running.get(request["which"])
            if stop is not None:
                stop()
            return
        work = getattr(self, "_do_" + request["do"])
        self._answering(number, lambda: work(number, request))

    def _answering(self, number: int, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, ValueError) as failure:  # ValueError: a null character in a command
            self.answer(number, failed=str(failure))

    def _do_run(self, number: int, request: dict[str, Any]) -> None:
        """A command, until it ends or its time is over."""
        timed_out = False

        def over() -> None:
            nonlocal timed_out
            timed_out = True
            process.kill()

        def ended() -> None:
            self.answer(
                number,
                stdout=process.out.take(),
                stderr=process.err.take(),
                code=process.code,
                timed_out=timed_out,
            )

        process = Process(self._loop, request, ended)
        self._running[number] = process.kill
        self._loop.at(number, request["seconds"], over)

    def _do_files(self, number: int, request: dict[str, Any]) -> None:
        self.answer(number, **self._folder.list(request["limit"]))

    def _do_read(self, number: int, request: dict[str, Any]) -> None:
        self.answer(
            number, **self._folder.read(request["path"], request["offset"], request["size"])
        )

    def _do_write(self, number: int, request: dict[str, Any]) -> None:
        self.answer(
            number, **self._folder.write(request["path"], request["offset"], request["data"])
        )

    def _do_remove(self, number: int, request: dict[str, Any]) -> None:
        self.answer(number, **self._folder.remove(request["path"]))

    def _do_session(self, number: int, request: dict[str, Any]) -> None:
        """A named process that may outlive the request: start it if it is new, feed it, and tell what it says for a while."""
        name = request["session"]
        process = self._sessions.get(name)
        if process is None:
            if not request.get("command"):
                self.answer(number, failed=f"there is no session '{name}'")
                return
            process = Process(self._loop, request, lambda: self._session_ended(name))
            self._listeners[name] = []
            self._sessions[name] = process
        elif request.get("command"):
            self.answer(number, failed=f"the session '{name}' runs already; feed it")
            return
        if request.get("chars") and not process.feed(request["chars"]):
            self.answer(number, failed=f"the session '{name}' takes no input")
            return
        running = process

        def tell() -> None:
            self.answer(number, stdout=running.out.take(), code=running.code)
            self._listeners.get(name, []).clear()

        # What another request waits to hear, this one hears.
        for listener in list(self._listeners[name]):
            listener()
        self._listeners[name].append(tell)
        self._running[number] = tell
        self._loop.at(number, request["seconds"], tell)

    def _session_ended(self, name: str) -> None:
        for listener in self._listeners.pop(name, []):
            listener()
        self._sessions.pop(name, None)

    def _do_cell(self, number: int, request: dict[str, Any]) -> None:
        """Python, in the interpreter that keeps its variables: one cell at a time.

        The gateway sends one at a time, but does not wait for one that it has stopped.
        """
        if self._cell is not None:
            self._queue.append((number, request))
            return
        if self._interpreter is None:
            self._interpreter = Interpreter(self._loop, self._command, self._interpreter_died)
        self._cell = (number, None)
        self._running[number] = lambda: self._stop_cell("stopped")
        self._loop.at(number, request["seconds"], lambda: self._stop_cell("timed out"))
        self._interpreter.run(request["code"], int(request["limit"]), self._cell_answered)

    def _stop_cell(self, why: str) -> None:
        if self._cell is None or self._interpreter is None:
            return
        self._cell = (self._cell[0], why)
        self._interpreter.interrupt()
        self._loop.at(self._cell[0], TO_GIVE_IN, self._interpreter.kill)

    def _cell_answered(self, answer: dict[str, Any]) -> None:
        self._end_cell(answer, None)

    def _interpreter_died(self, how: str) -> None:
        if self._cell is not None:
            self._end_cell({}, how)
        else:
            self._lost = how
        self._interpreter = None

    def _end_cell(self, answer: dict[str, Any], died: str | None) -> None:
        assert self._cell is not None
        assert self._interpreter is not None
        (number, stopped), self._cell = self._cell, None
        lost, self._lost = self._lost, None
        self.answer(
            number,
            logs=self._interpreter.text.take(),
            images=answer.get("images"),
            stopped=stopped,
            died=died,
            lost=lost,
        )
        if self._queue:
            # Not from here: the interpreter that has answered may be the one that has died.
            self._loop.at(self, 0.0, self._next_cell)

    def _next_cell(self) -> None:
        if self._queue:
            number, request = self._queue.pop(0)
            self._answering(number, lambda: self._do_cell(number, request))


def main(interpreter: list[str]) -> None:
    """Answer until the gateway leaves. `interpreter` is the command of the interpreter of cells."""
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    loop = Loop()
    agent = Agent(loop, interpreter, requests, answers)
    agent.answer(0, ready=True)
    while True:
        loop.run_once()
