"""A control group for one sandbox, if this process may create one. Limits memory and the number of processes
together."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from .spec import SandboxLimits

_PREFIX = "litegate-sandbox-"
_ROOT = "/sys/fs/cgroup"
_VERSION_1, _VERSION_2 = 0x27E0EB, 0x63677270
"""The types of file systems of control groups."""
_CONTROLLERS = ("memory", "pids")


class ControlGroups:
    """The groups of one sandbox: one in version 2, one for each controller in version 1."""

    def __init__(self, folders: dict[str, str]) -> None:
        """`folders` maps each controller (`memory`, `pids`) to the folder of its group."""
        self._folders = folders

    @property
    def bounds(self) -> list[str]:
        """The controllers in use: `memory`, `pids`."""
        return sorted(self._folders)

    def add(self, process: int) -> None:
        for folder in set(self._folders.values()):
            _write(folder, "cgroup.procs", process)

    def remove(self) -> None:
        """Remove the groups after their processes have ended. Does not raise: an empty group costs nothing."""
        for folder in set(self._folders.values()):
            for _ in range(50):
                try:
                    os.rmdir(folder)
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.02)  # the kernel updates with a delay
                else:
                    break


def make_groups(given: str | None, limits: SandboxLimits) -> ControlGroups:
    """Create groups with `limits`, for the controllers that are available.

    `given` is a version 2 group in which to create others; None means the group of this process, and an empty string none.
    """
    name = f"{_PREFIX}{os.getpid()}"
    made: dict[str, str] = {}
    for controller, parent in _parents(given).items():
        folder = os.path.join(parent, name)
        try:
            if _version(parent) != (1 if given is None else 2):
                continue  # a plain folder has all files that are written to it, and limits nothing
            with suppress(FileExistsError):
                os.mkdir(folder)
            _limit(folder, controller, limits)
        except OSError:
            with suppress(OSError):
                os.rmdir(folder)
        else:
            made[controller] = folder
    return ControlGroups(made)


def sweep(given: str | None) -> None:
    """Remove the empty groups of sandboxes whose keepers were killed."""
    for parent in set(_parents(given).values()):
        with suppress(OSError):
            for name in os.listdir(parent):
                folder = os.path.join(parent, name)
                if name.startswith(_PREFIX) and time.time() - os.stat(folder).st_mtime > 60:
                    with suppress(OSError):
                        os.rmdir(folder)


def _parents(given: str | None) -> dict[str, str]:
    """The folders in which groups can be created, by controller."""
    if given is not None:
        return dict.fromkeys(_CONTROLLERS, given) if given else {}
    found: dict[str, str] = {}
    with suppress(OSError), open("/proc/self/cgroup", encoding="ascii") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if (
                not controllers
            ):  # version 2; its own processes prevent it from delegating controllers
                continue
            for controller in controllers.split(","):
                if controller in _CONTROLLERS:
                    found[controller] = f"{_ROOT}/{controllers}{path}"
    return found


def _limit(folder: str, controller: str, limits: SandboxLimits) -> None:
    first = os.path.exists(os.path.join(folder, "memory.limit_in_bytes"))
    if controller == "pids":
        _write(
            folder, "pids.max", limits.processes + 2
        )  # the first process, and the keeper's child
    elif first:
        _write(folder, "memory.limit_in_bytes", limits.memory)
        with suppress(OSError):
            _write(folder, "memory.memsw.limit_in_bytes", limits.memory)
    else:
        _write(folder, "memory.max", limits.memory)
        with suppress(OSError):
            _write(folder, "memory.swap.max", 0)


def _write(folder: str, name: str, value: int) -> None:
    # Without creating it: the kernel has made the files of a group.
    descriptor = os.open(os.path.join(folder, name), os.O_WRONLY)
    try:
        os.write(descriptor, str(value).encode())
    finally:
        os.close(descriptor)


def _version(folder: str) -> int | None:
    """The version of control groups that a folder is one of; None if it is none."""
    from .libc import file_system_type  # only where there are control groups

    return {_VERSION_1: 1, _VERSION_2: 2}.get(file_system_type(folder))


def why_unusable(given: str) -> str | None:
    """Why sandboxes cannot be limited by groups in the version 2 group `given`, as the end of a sentence; None if they can."""
    if not os.path.isdir(given):
        return "there is no such folder"
    if _version(given) != 2:
        return "this folder is no control group of version 2, so nothing would be limited"
    for name, problem in (
        ("cgroup.controllers", "it has not the controllers {}: delegate them to it"),
        (
            "cgroup.subtree_control",
            "it does not pass the controllers {} on: write '+memory +pids' to its cgroup.subtree_control",
        ),
    ):
        try:
            with open(os.path.join(given, name), encoding="ascii") as file:
                had = file.read().split()
        except OSError as error:
            return f"its {name} cannot be read: {error.strerror}"
        if missing := [each for each in _CONTROLLERS if each not in had]:
            return problem.format(" and ".join(missing))
    if missing := [each for each in _CONTROLLERS if each not in bounded_by(given)]:
        return f"this user cannot create groups in it that limit {' and '.join(missing)}"
    return None


def bounded_by(given: str | None) -> list[str]:
    """The controllers that can be limited here, determined by creating a group."""
    groups = make_groups(
        given, SandboxLimits(memory=2**28, disk=0, processes=16, open_files=0, cpu_seconds=0)
    )
    groups.remove()
    return groups.bounds
