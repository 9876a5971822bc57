"""The interpreter of cells: runs code in one namespace for as long as it lives.

Its arguments are two open pipes, one to read cells from and one to write answers to, one JSON object per line.
Output of cells goes to the standard streams.
"""

from __future__ import annotations

import ast
import base64
import ctypes
import io
import json
import linecache
import os
import signal
import sys
import traceback
import types
from contextlib import suppress
from typing import Any

MAX_IMAGES = 8
MAX_IMAGE_BYTES = 4 * 1024 * 1024
MAX_ALL_BYTES = 8 * 1024 * 1024


class Interpreter:
    """Runs cells one after the other."""

    def __init__(self) -> None:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self._names = vars(module)
        self._count = 0
        self._running = False
        signal.signal(signal.SIGINT, self._interrupted)

    def _interrupted(self, number: int, frame: object) -> None:
        """Handle an interrupt. Interrupts between cells are ignored."""
        if self._running:
            raise KeyboardInterrupt

    def run(self, code: str) -> list[str]:
        """Run a cell. Returns the images it displayed, as base64-encoded PNG."""
        shown: list[bytes] = []
        _reap_children()
        try:
            self._running = True
            self._run(code, shown)
            self._running = False
        except KeyboardInterrupt:
            self._running = False
            self._print_traceback()
        except BaseException:  # whatever the cell raises is its output, including SystemExit
            self._running = False
            self._print_traceback()
        try:
            shown += _figure_pngs()
        except Exception:  # the cell may have replaced the library
            traceback.print_exc(limit=1)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # a cell may close or replace its streams
                stream.flush()
        return _encoded(shown)

    def _run(self, code: str, shown: list[bytes]) -> None:
        self._count += 1
        name = f"<cell {self._count}>"
        linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
        tree = ast.parse(code, name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), self._names)  # noqa: S102 - what it is for
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), self._names)  # noqa: S307
            if value is not None:
                self._names["_"] = value
                picture = _png_of(value)
                if picture is None:
                    print(repr(value))
                else:
                    shown.append(picture)

    def _print_traceback(self) -> None:
        """Print the traceback as Python does, without frames outside the cell."""
        kind, error, frames = sys.exc_info()
        try:
            shown = traceback.TracebackException(kind, error, frames)  # type: ignore[arg-type]
            own = [frame for frame in shown.stack if frame.filename != __file__]
            shown.stack = traceback.StackSummary.from_list(own)
            print("".join(shown.format()), end="", file=sys.stderr)
        except (
            Exception
        ):  # an exception's own __str__ may fail, and the cell may have replaced the stream
            os.write(2, f"{kind}\n".encode())


def _reap_children() -> None:
    """Reap children that were killed when their cell ended: zombies count towards the process limit."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _png_of(value: Any) -> bytes | None:
    """The PNG of a value that supports `_repr_png_`, as in notebooks; else None."""
    make = getattr(type(value), "_repr_png_", None)
    picture = make(value) if callable(make) else None
    return picture if isinstance(picture, bytes) else None


def _figure_pngs() -> list[bytes]:
    """PNGs of the open matplotlib figures, which are closed."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    drawn: list[bytes] = []
    for number in pyplot.get_fignums()[:MAX_IMAGES]:
        buffer = io.BytesIO()
        pyplot.figure(number).savefig(buffer, format="png")
        drawn.append(buffer.getvalue())
    pyplot.close("all")
    return drawn


def _encoded(shown: list[bytes]) -> list[str]:
    kept: list[str] = []
    total = 0
    for picture in shown[:MAX_IMAGES]:
        total += len(picture)
        if len(picture) > MAX_IMAGE_BYTES or total > MAX_ALL_BYTES:
            print("[An image was too large to show.]")
            sys.stdout.flush()
            continue
        kept.append(base64.b64encode(picture).decode())
    return kept


_PR_SET_DUMPABLE = 4


def main() -> None:
    # What earlier cells have left running has the same user: it gets neither the memory nor the pipes of later cells.
    with suppress(AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    requests, answers = int(sys.argv[1]), int(sys.argv[2])
    for descriptor in (requests, answers):
        os.set_inheritable(descriptor, False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace", line_buffering=True)
    sys.argv = [""]
    sys.path.insert(0, os.getcwd())
    interpreter = Interpreter()
    with open(requests, "rb") as lines:
        for line in lines:
            images = interpreter.run(json.loads(line)["code"])
            data = json.dumps({"images": images}).encode() + b"\n"
            while data:
                data = data[os.write(answers, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
