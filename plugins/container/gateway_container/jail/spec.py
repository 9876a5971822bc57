"""What the gateway tells the keeper, as one line of JSON."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use. Sizes in bytes."""

    memory: int
    """Of all its processes together where there are cgroups, else of each."""
    disk: int
    """Of all that it writes: its files are in memory, and count as such."""
    processes: int
    """Processes and threads."""
    open_files: int
    cpu_seconds: int
    """Of each process."""


@dataclass(frozen=True)
class Spec:
    """A sandbox, and the program that it is for."""

    namespaces: bool
    """False: the program runs with limits alone, as the gateway's user; the configuration must say that it is unsafe."""
    parent: int
    """The gateway's process id: the sandbox ends with it."""
    command: list[str]
    environment: dict[str, str]
    files: dict[str, str]
    """Texts to lay into the sandbox, by their paths in it."""
    shown: list[str]
    """Folders and files of the host that the sandbox sees, without being able to write, at their own paths."""
    hidden: list[str]
    """Folders below them that it sees empty."""
    folder: str
    """Where it may write, and where the program starts."""
    cgroup: str | None
    """A cgroup version 2 that was given to the gateway to make others in."""
    limits: Limits


def read_spec(descriptor: int = 0) -> Spec:
    """Read one line and not a byte more: what follows is for the program."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            raise SystemExit(1)
        line += byte
    raw: dict[str, Any] = json.loads(line)
    return Spec(**{**raw, "limits": Limits(**raw["limits"])})
