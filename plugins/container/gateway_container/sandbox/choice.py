"""Selects the isolation at start-up by trying it."""

from __future__ import annotations

import logging
import os
import secrets
from dataclasses import replace

from gateway.sdk import ConfigurationError
from gateway_container.config import MIB, ContainersConfig
from gateway_container.jail.cgroup import why_unusable
from gateway_container.jail.spec import SandboxLimits
from gateway_container.sandbox.answers import CommandResult
from gateway_container.sandbox.isolation import ContainerEngine, Isolation, Jail
from gateway_container.sandbox.process import SandboxEnded, start_sandbox

logger = logging.getLogger("gateway.container")


def limits_of(config: ContainersConfig, memory: int | None = None) -> SandboxLimits:
    """The limits of one container. `memory` in bytes, if a request asks for less."""
    return SandboxLimits(
        memory=min(config.max_memory_bytes, memory or config.max_memory_bytes),
        disk=config.max_disk_bytes,
        processes=config.max_processes,
        open_files=config.max_open_files,
        cpu_seconds=config.max_cpu_seconds,
    )


async def choose_isolation(config: ContainersConfig) -> Isolation:
    """The best isolation that works here, reported in one log line.

    Raises `ConfigurationError` if there is none, unless the configuration says `unsafe = true`.
    """
    candidates: list[Isolation] = []
    if config.isolation in ("auto", "namespaces"):
        if config.cgroup is not None and (problem := why_unusable(config.cgroup)):
            raise ConfigurationError(
                f"[resources.containers].cgroup: {config.cgroup!r}: {problem}. Correct it, or leave it out: the memory of "
                "containers is then measured, and what exceeds their limit is ended."
            )
        jail = Jail(config, namespaces=True)
        candidates.append(jail)
        if config.cgroup is None and jail.bounds:  # found, not asked for
            candidates.append(Jail(config, namespaces=True, groups=False))
    if config.isolation in ("auto", "engine") and config.engine is not None:
        candidates.append(ContainerEngine(config))
    failures: list[str] = []
    for isolation in candidates:
        failure = await _failure(isolation, config)
        if failure is None:
            logger.info("containers: code is kept apart by %s", _described(isolation))
            return isolation
        failure = failure.removeprefix("The container did not start: ")
        what = "" if config.isolation == "engine" else isolation.description.partition(" (")[0]
        failures.append(f"{what}: {failure}" if what else failure)
    if config.unsafe:
        unsafe = Jail(config, namespaces=False)
        logger.warning("containers: code is kept apart by %s", unsafe.description)
        return unsafe
    if config.isolation == "engine":
        raise ConfigurationError(
            f"[resources.containers]: the container engine {config.engine!r} cannot start a container ({failures[0]}). "
            "Start the engine, or choose another `isolation`."
        )
    raise ConfigurationError(
        f"[resources.containers]: this machine cannot keep code apart ({'; '.join(failures)}). Allow user namespaces, name a "
        "container engine (`engine`, `image`), or say `unsafe = true` to run code as the gateway's own user."
    )


async def _failure(isolation: Isolation, config: ContainersConfig) -> str | None:
    """The reason why an isolation does not work here, or None if it works."""
    limits = limits_of(config, 256 * MIB)
    limits = replace(limits, disk=min(limits.disk, 16 * MIB))  # files are memory, too
    name = f"litegate-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        sandbox = await start_sandbox(isolation, name, limits, seconds=config.start_timeout)
    except SandboxEnded as ended:
        return str(ended)
    python = isolation.python if isinstance(isolation, Jail) else "python3"
    code = _TRIAL.format(
        memory=limits.memory + 32 * MIB, disk=limits.disk + MIB, processes=limits.processes + 8
    )
    try:
        ran = await sandbox.ask(
            "run",
            CommandResult,
            seconds=_TRIAL_SECONDS,
            command=[python, "-I", "-S", "-c", code],
            limit=1000,
        )
    except SandboxEnded as ended:
        return str(ended)
    finally:
        await sandbox.close()
    if ran.code != 0:
        return ran.failed or ran.stderr or f"exit code {ran.code}"
    broken = [_PROMISES[word] for word in ran.stdout.split() if word in _PROMISES]
    if not broken:
        return None
    # An engine's limits are the operator's to set right. Processes are not limited if the gateway's user is root in disguise:
    # of a user namespace that another has made, without control groups.
    if isinstance(isolation, ContainerEngine) or broken == [_PROMISES["PROCESSES"]]:
        logger.warning(
            "containers: what should keep code apart (%s) does not limit %s",
            isolation.description.partition(" (")[0],
            " and ".join(broken),
        )
        return None
    return f"a container was not kept within its limit of {' and '.join(broken)}"


_TRIAL_SECONDS = 20.0
_PROMISES = {
    "MEMORY": "memory (max_memory_bytes)",
    "DISK": "files (max_disk_bytes)",
    "PROCESSES": "processes (max_processes)",
}
_TRIAL = """
import os, time
child = os.fork()
if not child:
    try:
        held = b'x' * {memory}
    except MemoryError:
        os._exit(1)
    time.sleep(0.5)  # where memory is sampled, not limited
    os._exit(0)
if os.waitpid(child, 0)[1] == 0:
    print('MEMORY')
try:
    with open('.trial', 'wb') as file:
        left = {disk}
        while left > 0:
            left -= file.write(bytes(1 << 20))
    print('DISK')
except OSError:
    pass
finally:
    os.unlink('.trial')
children = []
try:
    if {processes} <= 1024:
        while len(children) < {processes}:
            child = os.fork()
            if not child:
                os._exit(0)  # it counts until its parent asks for it, and has no memory
            children.append(child)
        print('PROCESSES')
except OSError:
    pass
for child in children:
    os.waitpid(child, 0)
"""
"""Does what the limits forbid, and prints what succeeded."""


def _described(isolation: Isolation) -> str:
    if not isinstance(isolation, Jail):
        return isolation.description
    groups = (
        f"cgroups ({', '.join(isolation.bounds)})"
        if "memory" in isolation.bounds
        else "no cgroups (memory is measured, and what exceeds it is ended)"
    )
    return f"{isolation.description}, {groups}"
