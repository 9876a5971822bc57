"""What the gateway sends to the keeper, as one line of JSON."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class SandboxLimits:
    """Resource limits of one sandbox. Sizes are in bytes."""

    memory: int
    """For all its processes together if there are cgroups, else per process."""
    disk: int
    """For everything that it writes; its files are in memory and count as such."""
    processes: int
    """Number of processes and threads."""
    open_files: int
    cpu_seconds: int
    """Per process."""


@dataclass(frozen=True)
class SandboxSpec:
    """A sandbox and the program to run in it."""

    namespaces: bool
    """False: the program runs as the gateway's user with resource limits only; the configuration must allow that
    (`unsafe`)."""
    parent: int
    """Process id of the gateway; the sandbox ends with it."""
    command: list[str]
    environment: dict[str, str]
    files: dict[str, str]
    """Contents of files to create in the sandbox, by path."""
    shown: list[str]
    """Files and folders of the host that are visible in the sandbox at the same paths, read-only."""
    hidden: list[str]
    """Folders below those that appear empty."""
    folder: str
    """The writable folder, in which the program starts."""
    cgroup: str | None
    """A cgroup version 2 in which the gateway may create others. None: version 1 is used if permitted. Empty: none is used."""
    bounds: list[str]
    """The controllers that limited a sandbox when the gateway started."""
    limits: SandboxLimits


def read_spec() -> SandboxSpec:
    """Read exactly one line of the standard input: what follows is for the program."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit(1)
        line += byte
    raw: dict[str, Any] = json.loads(line)
    return SandboxSpec(**{**raw, "limits": SandboxLimits(**raw["limits"])})
