"""The last step before foreign code runs: no privileges, limits, and a filter of system calls."""

from __future__ import annotations

import os
import resource
import signal
from contextlib import suppress

from .libc import (
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    bound_capabilities,
    drop_capabilities,
    prctl,
    set_seccomp,
)
from .rootfs import USER
from .seccomp import is_known, make_filter
from .spec import Limits


def give_up_privileges() -> None:
    """Become the sandbox's user, without capabilities and without a way to get any."""
    bound_capabilities()
    if os.getuid() != USER:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    drop_capabilities()
    refuse_privileges()


def refuse_privileges() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # forgotten by the kernel when the user changes


def set_limits(limits: Limits, *, memory_each: int) -> None:
    """`memory_each` is the address space of one process."""
    for kind, value in (
        (resource.RLIMIT_AS, memory_each),
        (resource.RLIMIT_FSIZE, limits.disk),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 65_536),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ):
        _lower(kind, value, value)
    # At the soft limit a process is told to stop, a second later it is killed.
    _lower(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    os.nice(10)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")  # where memory runs out, sandboxes go first


def _lower(kind: int, soft: int, hard: int) -> None:
    _, allowed = resource.getrlimit(kind)
    if allowed != resource.RLIM_INFINITY:
        soft, hard = min(soft, allowed), min(hard, allowed)
    resource.setrlimit(kind, (soft, hard))


def filter_calls() -> None:
    """From here on, refused system calls fail. Where no filter is known for the machine there is none."""
    if is_known():
        set_seccomp(make_filter())
