"""The agent: the program inside the sandbox that runs commands, sessions and cells for the gateway.

It reads requests from its standard input and writes answers to its standard output, one JSON object per line.
Answers may come in any order; `id` matches them to requests. It is single-threaded, so that it also answers when
no process or thread can be created.

The code it runs has the same user: it can kill or stop the agent, but cannot read or write its memory or open its
descriptors. The gateway does not rely on that: it treats every answer as if that code had written it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from .cells import InterpreterProcess
from .files import Folder
from .processes import CHUNK, EventLoop, Process

_LONGEST_REASON = 500
TO_GIVE_IN = 2.0
"""Seconds between interrupting a cell and killing its interpreter."""
_STARTS = 40
"""How often a process is tried to be started while the killed ones make room for it."""
_PAUSE = 0.05
"""Seconds between two of them."""


class Agent:
    """Answers requests."""

    def __init__(
        self, loop: EventLoop, interpreter: list[str], requests: int, answers: int, *, alone: bool
    ) -> None:
        self._loop = loop
        self._command = interpreter
        self._alone = alone
        self._requests, self._answers = requests, answers
        self._buffer = bytearray()
        self._running: dict[int, Callable[[], None]] = {}
        """Functions that end a request early, by request id."""
        self._sessions: dict[str, Process] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        """Callbacks for output of a session; at most one per session."""
        self._interpreter: InterpreterProcess | None = None
        self._cell: tuple[int, str | None] | None = None
        """The request whose cell is running, and the reason if it was stopped."""
        self._queue: list[tuple[int, dict[str, Any]]] = []
        self._lost: str | None = None
        """How an interpreter ended between two cells; reported with the next answer."""
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
            os._exit(0)  # the gateway has closed the connection
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
        for left in range(_STARTS - 1, -1, -1):
            try:
                work()
            except (OSError, ValueError) as failure:  # ValueError: a null character in a command
                full = isinstance(failure, BlockingIOError)
                if full and left and self._end_leftovers():
                    time.sleep(_PAUSE)
                    continue
                self.answer(number, failed=str(failure)[:_LONGEST_REASON])
            return

    def _end_leftovers(self) -> bool:
        """Kill all processes that earlier requests have left running, as they leave no room for a new one. Returns
        False if that is not possible here, or processes of running requests or sessions would be killed too.

        One call kills them all, so a fork bomb cannot escape it. The interpreter is among them.
        """
        if not self._alone or self._running or self._sessions:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)  # spares the caller and the first process
        return True

    def _do_run(self, number: int, request: dict[str, Any]) -> None:
        """Run a command until it ends or its time limit expires."""
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
        """Use a named process that may outlive the request: start it if it is new, write to its input, and report its
        output for a while."""
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

        # Output goes to this request, so other requests that wait for it are answered now.
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
        """Run Python in the interpreter that keeps its variables, one cell at a time.

        The gateway sends one cell at a time, but does not wait for a cell that it has stopped.
        """
        if self._cell is not None:
            self._queue.append((number, request))
            return
        if self._interpreter is None:
            self._interpreter = InterpreterProcess(
                self._loop, self._command, self._interpreter_died
            )
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
            # Deferred: the interpreter that answered may be the one that died.
            self._loop.at(self, 0.0, self._next_cell)

    def _next_cell(self) -> None:
        if self._queue:
            number, request = self._queue.pop(0)
            self._answering(number, lambda: self._do_cell(number, request))


_PR_SET_DUMPABLE = 4


def _hide() -> None:
    """Deny the sandboxed code, which has the same user, access to this process's memory and descriptors."""
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise SystemExit("prctl: the agent cannot be kept apart from the code that it runs")


def _fork_from_init() -> None:
    """Fork and return in the child. The parent, the first process of the PID namespace, reaps orphans and exits with
    the agent.

    The parent closes its descriptors: the agent alone holds them.
    """
    agent = os.fork()
    if agent == 0:
        return
    os.closerange(0, 256)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(1))
    while True:
        ended, _ = os.wait()
        if ended == agent:
            os._exit(0)


def main(interpreter: list[str], *, alone: bool) -> None:
    """Answer requests until the gateway closes the connection. `interpreter` is the command of the cell interpreter.

    `alone`: the sandbox has a PID namespace of its own, so that all processes which can be seen are the sandbox's.
    """
    _hide()
    if os.getpid() == 1:
        _fork_from_init()
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    alone = alone and os.getppid() == 1  # as in each such sandbox
    loop = EventLoop()
    agent = Agent(loop, interpreter, requests, answers, alone=alone)
    agent.answer(0, ready=True)
    while True:
        loop.run_once()
