"""The keeper: builds a sandbox, runs a program in it, and ends it. See the package's docstring."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from typing import NoReturn

from .cgroup import ControlGroups, make_groups, sweep
from .confine import filter_calls, give_up_privileges, refuse_privileges, set_limits
from .libc import (
    CLONE_NEWNS,
    OUTER_NAMESPACES,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    prctl,
    unshare,
)
from .rootfs import USER, build_root
from .spec import Spec, read_spec

_NOBODY = 65_534
_ADDRESS_SPACE_FACTOR = 8
"""Programs reserve more than they use; where a cgroup counts what they use, they may."""


def main() -> int:
    """Returns the program's exit code; 128 and the signal where one ended it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    spec = read_spec()
    if os.getppid() != spec.parent:
        return 1  # the gateway died before it could be watched
    if not spec.namespaces:
        return _run_unsafe(spec)
    sweep(spec.cgroup)
    groups = make_groups(spec.cgroup, spec.limits)
    try:
        return _run(spec, groups)
    except OSError as failure:
        _tell({"failed": str(failure)})
        return 1
    finally:
        groups.remove()


def _tell(message: dict[str, object]) -> None:
    with suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _run(spec: Spec, groups: ControlGroups) -> int:
    mapper, go = _prepare_mapping()
    unshare(OUTER_NAMESPACES)
    os.write(go, b"x")
    os.close(go)
    _, status = os.waitpid(mapper, 0)
    if status != 0:
        raise OSError("the users of the sandbox could not be mapped")
    joined, join = os.pipe()
    told, tell = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(join)
        os.close(told)
        try:
            os.read(joined, 1)
            os.close(joined)
            _be_first(spec, groups.bounds)
        except OSError as failure:
            os.write(tell, str(failure).encode())
        finally:
            os._exit(1)
    os.close(tell)
    os.close(joined)
    groups.add(first)
    os.close(join)
    _pass_on_signals(first)
    problem = os.read(told, 4096)  # empty once the program runs
    if problem:
        os.waitpid(first, 0)
        raise OSError(problem.decode(errors="replace"))
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # the gateway shall see the end of the program's streams
    _, status = os.waitpid(first, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _prepare_mapping() -> tuple[int, int]:
    """A child that stays outside, to map the sandbox's users when there is a sandbox: that takes the rights of here."""
    keeper, user, group = os.getpid(), os.getuid(), os.getgid()
    gone, go = os.pipe()
    child = os.fork()
    if child:
        os.close(gone)
        return child, go
    os.close(go)
    try:
        os.read(gone, 1)
        if user == 0:
            # Root of the sandbox, for as long as it is built; then a user who owns nothing on this machine.
            maps = {
                "uid_map": f"0 0 1\n{USER} {_NOBODY} 1",
                "gid_map": f"0 0 1\n{USER} {_NOBODY} 1",
            }
        else:
            maps = {
                "setgroups": "deny",
                "uid_map": f"{USER} {user} 1",
                "gid_map": f"{USER} {group} 1",
            }
        for name, text in maps.items():
            with open(f"/proc/{keeper}/{name}", "w", encoding="ascii") as file:
                file.write(text)
    except OSError:
        os._exit(1)
    os._exit(0)


def _pass_on_signals(first: int) -> None:
    """SIGINT goes to the program; what would end the keeper ends the sandbox first, and the keeper tidies up."""
    signal.signal(signal.SIGINT, lambda *_: os.kill(first, signal.SIGINT))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(first, signal.SIGKILL))


def _be_first(spec: Spec, bounded: list[str]) -> NoReturn:
    """The first process of the sandbox: makes it, starts the program, and waits for whatever ends in it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o022)
    unshare(CLONE_NEWNS)
    build_root(spec)
    _name_host()
    give_up_privileges()
    each = spec.limits.memory * (_ADDRESS_SPACE_FACTOR if "memory" in bounded else 1)
    set_limits(spec.limits, memory_each=each)
    filter_calls()
    os.chdir(spec.folder)
    program = os.fork()
    if program == 0:
        _become(spec)
    _close_all()
    # The first process of a namespace gets only those signals that it handles.
    signal.signal(signal.SIGINT, lambda *_: os.kill(program, signal.SIGINT))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            ended, status = os.wait()
        except ChildProcessError:
            os._exit(1)
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def _name_host() -> None:
    import socket

    socket.sethostname("sandbox")


def _become(spec: Spec) -> NoReturn:
    with suppress(PermissionError):  # it leads a session already
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(spec.command[0], spec.command, spec.environment)  # noqa: S606 - no shell is wanted
    except OSError as failure:
        _tell({"failed": f"{spec.command[0]} cannot be started: {failure.strerror}"})
    os._exit(127)


def _close_all() -> None:
    os.closerange(0, 256)


def _run_unsafe(spec: Spec) -> int:
    """The program with limits alone. It sees what the gateway sees; what it leaves behind is ended all the same."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for path, text in spec.files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    program = os.fork()
    if program == 0:
        refuse_privileges()
        set_limits(spec.limits, memory_each=spec.limits.memory)
        os.chdir(spec.folder)
        _become(spec)
    _pass_on_signals(program)
    _close_all()
    _, status = os.waitpid(program, 0)
    for _ in range(500):
        left = _children()
        if not left:
            break
        for child in left:
            with suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _children() -> list[int]:
    """The processes that are this one's now: orphans come to it."""
    own, found = os.getpid(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == own:
                found.append(int(name))
    return found
