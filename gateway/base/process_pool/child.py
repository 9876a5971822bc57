"""The helper process: reads calls from standard input and writes results to standard output.

A frame consists of the length in four bytes, big endian, and a MessagePack value. The first frame contains the
settings, and each further frame a call `[module, function, arguments]`. The answer to a call is `[True, result]` or
`[False, exception class name, message]`.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO

import msgspec

READY = b"ready"


def main() -> None:
    """Process calls until standard input ends."""
    os.closerange(3, 1 << 20)  # close everything inherited from the gateway
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # a terminal sends it to the whole process group, but the gateway decides when helpers end
    # Standard output is for results only: output of libraries is redirected.
    calls = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)
    settings = _read(calls)
    if settings is None:
        return
    _confine(settings["parent"], settings["memory"])
    sys.path[:] = settings["path"]
    sys.dont_write_bytecode = True
    for name in settings["preload"]:
        importlib.import_module(name)
    _write_no_file()
    gc.freeze()
    _write(results, READY)
    while (call := _read(calls)) is not None:
        _write(results, msgspec.msgpack.encode(_answer(*call)))


def _answer(module: str, name: str, arguments: list[Any]) -> list[Any]:
    try:
        function = getattr(importlib.import_module(module), name)
        result = function(*arguments)
        msgspec.msgpack.encode(result)
    except Exception as error:  # every error is reported to the caller
        return [False, type(error).__name__, str(error)[:10_000]]
    return [True, result]


def _read(pipe: BinaryIO) -> Any:
    head = pipe.read(4)
    if len(head) < 4:
        return None
    return msgspec.msgpack.decode(pipe.read(int.from_bytes(head, "big")))


def _write(pipe: BinaryIO, payload: bytes) -> None:
    pipe.write(len(payload).to_bytes(4, "big") + payload)
    pipe.flush()


def _write_no_file() -> None:
    """Disable writing files. Called after the imports, since some modules look for a temporary folder."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def _confine(parent: int, memory: int) -> None:
    """End together with the gateway, and limit the address space to `memory` bytes."""
    if sys.platform != "linux":
        return
    import ctypes
    import resource

    prctl = ctypes.CDLL(None, use_errno=True).prctl
    pr_set_pdeathsig, pr_set_dumpable = 1, 4
    prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # the gateway died before the kernel was told to watch it
    prctl(pr_set_dumpable, 0)
    for kind, limit in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(kind, (limit, limit))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # if memory runs out, the kernel kills helpers before the gateway
