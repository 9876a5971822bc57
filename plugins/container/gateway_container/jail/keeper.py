"""The keeper: builds a sandbox, runs a program in it, and ends it. See the docstring of the package."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from typing import NoReturn

from .cgroup import ControlGroups, make_groups, sweep
from .confine import (
    filter_calls,
    give_up_privileges,
    prefer_oom_kill,
    refuse_privileges,
    set_limits,
)
from .libc import (
    CLONE_NEWNS,
    OUTER_NAMESPACES,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    close_from,
    hide,
    prctl,
    set_host_name,
    unshare,
)
from .memory import Buffers, require_measurable, watch_memory
from .rootfs import USER, build_root
from .seccomp import is_known
from .spec import SandboxSpec, read_spec

_NOBODY = 65_534
_ADDRESS_SPACE_FACTOR = 8
"""Programs reserve more memory than they use. Where a cgroup counts what is used, they may reserve this many times
the limit."""


def main() -> int:
    """Run the keeper. Returns the program's exit code, or 128 plus the signal that ended it."""
    close_from(3)  # descriptors that the gateway left inheritable must not reach a sandbox
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prefer_oom_kill()  # set here, where root may set it: then no process of the sandbox can undo it
    spec = read_spec()
    if os.getppid() != spec.parent:
        return 1  # the gateway died before it could be monitored
    if not spec.namespaces:
        return _run_unsafe(spec)
    sweep(spec.cgroup)
    groups = make_groups(spec.cgroup, spec.limits)
    try:
        _require_bounds(spec, groups)
        return _run(spec, groups)
    except OSError as failure:
        _report({"failed": str(failure)})
        return 1
    finally:
        groups.remove()


def _require_bounds(spec: SandboxSpec, groups: ControlGroups) -> None:
    if missing := set(spec.bounds) - set(groups.bounds):
        raise OSError(f"no control group could be made that limits {' and '.join(sorted(missing))}")


def _report(message: dict[str, object]) -> None:
    with suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _run(spec: SandboxSpec, groups: ControlGroups) -> int:
    mapper, go = _prepare_mapping()
    buffers = Buffers() if is_known() else None
    unshare(OUTER_NAMESPACES)
    os.write(go, b"x")
    os.close(go)
    _, status = os.waitpid(mapper, 0)
    if status != 0:
        raise OSError("the users of the sandbox could not be mapped")
    joined, join = os.pipe()
    report_reader, report_writer = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(join)
        os.close(report_reader)
        try:
            os.read(joined, 1)
            os.close(joined)
            _run_init(spec, groups.bounds)
        except Exception as failure:  # any failure is reported
            os.write(report_writer, str(failure).encode())
        finally:
            os._exit(1)
    hide()  # not earlier: an unprivileged process must own its user maps to write them
    os.close(report_writer)
    os.close(joined)
    groups.add(first)
    os.close(join)
    _pass_on_signals(first)
    counted = "memory" in groups.bounds
    if not counted:
        require_measurable(first)
    problem = os.read(report_reader, 4096)  # empty if the program was started
    os.close(report_reader)
    if problem:
        os.waitpid(first, 0)
        raise OSError(problem.decode(errors="replace"))
    for descriptor in (0, 1, 2):
        os.close(descriptor)  # so that the gateway sees the end of the program's streams
    if not counted:
        watch_memory(first, spec.limits.memory, buffers=buffers)
    _, status = os.waitpid(first, 0)
    return os.waitstatus_to_exitcode(status) & 0xFF


def _prepare_mapping() -> tuple[int, int]:
    """Fork a child that stays outside and writes the sandbox's user maps once it exists; this needs the privileges
    held here."""
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
            # Root of the sandbox while it is built; then a user who owns nothing on this machine.
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
    """Forward SIGINT to the program. Other termination signals end the sandbox first, then the keeper cleans up."""
    signal.signal(signal.SIGINT, lambda *_: os.kill(first, signal.SIGINT))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(first, signal.SIGKILL))


def _run_init(spec: SandboxSpec, bounded: list[str]) -> NoReturn:
    """The first process of the sandbox: builds it, starts the program, and reaps all processes that end in it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    hide()
    os.umask(0o022)
    unshare(CLONE_NEWNS)
    build_root(spec)
    set_host_name("sandbox")
    give_up_privileges()
    each = spec.limits.memory * (_ADDRESS_SPACE_FACTOR if "memory" in bounded else 1)
    set_limits(spec.limits, memory_each=each)
    filter_calls()
    os.chdir(spec.folder)
    program = os.fork()
    if program == 0:
        _exec_program(spec)
    close_from(0)
    # The first process of a namespace receives only signals that it handles.
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


def _exec_program(spec: SandboxSpec) -> NoReturn:
    with suppress(PermissionError):  # it is a session leader already
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(spec.command[0], spec.command, spec.environment)  # noqa: S606 - no shell is wanted
    except OSError as failure:
        _report({"failed": f"{spec.command[0]} cannot be started: {failure.strerror}"})
    os._exit(127)


def _run_unsafe(spec: SandboxSpec) -> int:
    """Run the program with resource limits only. It sees what the gateway sees; processes that it leaves running are
    killed nevertheless."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    for path, text in spec.files.items():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    hide()
    program = os.fork()
    if program == 0:
        refuse_privileges()
        set_limits(spec.limits, memory_each=spec.limits.memory)
        os.chdir(spec.folder)
        _exec_program(spec)
    _pass_on_signals(program)
    close_from(0)
    with suppress(OSError):  # unsafe mode: best effort
        watch_memory(os.getpid(), spec.limits.memory, until=program)
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
    """The current children of this process, including adopted orphans."""
    own, found = os.getpid(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError, IndexError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
            if int(file.read().rpartition(b")")[2].split()[1]) == own:
                found.append(int(name))
    return found
