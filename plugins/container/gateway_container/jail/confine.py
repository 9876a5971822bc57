"""The last step before untrusted code runs: dropping privileges, setting limits and installing the system call
filter."""

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
from .spec import SandboxLimits


def give_up_privileges() -> None:
    """Switch to the sandbox's user, without capabilities and with no way to regain any."""
    bound_capabilities()
    if os.getuid() != USER:
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
    drop_capabilities()
    refuse_privileges()


def refuse_privileges() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the kernel resets this when the user changes


def set_limits(limits: SandboxLimits, *, memory_each: int) -> None:
    """Set the resource limits. `memory_each` is the address space of one process."""
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
    # The process is signalled at the soft limit and killed one second later.
    _lower(resource.RLIMIT_CPU, limits.cpu_seconds, limits.cpu_seconds + 1)
    os.nice(10)


def prefer_oom_kill() -> None:
    """Make sandboxes the first to be killed when the machine runs out of memory."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")


def _lower(kind: int, soft: int, hard: int) -> None:
    _, allowed = resource.getrlimit(kind)
    if allowed != resource.RLIM_INFINITY:
        soft, hard = min(soft, allowed), min(hard, allowed)
    resource.setrlimit(kind, (soft, hard))


def filter_calls() -> None:
    """Make refused system calls fail from here on. Does nothing if no filter is known for the architecture."""
    if is_known():
        set_seccomp(make_filter())
