"""A control group for one sandbox, if this process may create one. Limits memory and the number of processes
together."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from .spec import SandboxLimits

_PREFIX = "litegate-sandbox-"
_ROOT = "/sys/fs/cgroup"


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

    `given` is a version 2 group in which to create others; None means the group of this process.
    """
    name = f"{_PREFIX}{os.getpid()}"
    made: dict[str, str] = {}
    for controller, parent in _parents(given).items():
        folder = os.path.join(parent, name)
        try:
            os.makedirs(folder, exist_ok=True)
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
        return dict.fromkeys(("memory", "pids"), given)
    found: dict[str, str] = {}
    with suppress(OSError), open("/proc/self/cgroup", encoding="ascii") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if (
                not controllers
            ):  # version 2; its own processes prevent it from delegating controllers
                continue
            for controller in controllers.split(","):
                if controller in ("memory", "pids"):
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
    with open(os.path.join(folder, name), "w", encoding="ascii") as file:
        file.write(str(value))


def bounded_by(given: str | None) -> list[str]:
    """The controllers that can be limited here, determined by creating a group."""
    groups = make_groups(
        given, SandboxLimits(memory=2**28, disk=0, processes=16, open_files=0, cpu_seconds=0)
    )
    groups.remove()
    return groups.bounds
