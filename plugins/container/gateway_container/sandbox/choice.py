"""Selects the isolation at start-up by trying it."""

from __future__ import annotations

import logging
import os
import secrets

from gateway.sdk import ConfigurationError
from gateway_container.config import MIB, ContainersConfig
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
        candidates.append(Jail(config, namespaces=True))
    if config.isolation in ("auto", "engine") and config.engine is not None:
        candidates.append(ContainerEngine(config))
    failures: list[str] = []
    for isolation in candidates:
        failure = await _failure(isolation, config)
        if failure is None:
            logger.info("containers: code is kept apart by %s", _described(isolation, config))
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
    name = f"litegate-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        sandbox = await start_sandbox(isolation, name, limits, seconds=config.start_timeout)
    except SandboxEnded as ended:
        return str(ended)
    try:
        command = (
            ["python3", "-c", "1"]
            if isinstance(isolation, ContainerEngine)
            else ["/bin/sh", "-c", ":"]
        )
        ran = await sandbox.ask("run", CommandResult, seconds=10.0, command=command, limit=1000)
    except SandboxEnded as ended:
        return str(ended)
    finally:
        await sandbox.close()
    return None if ran.code == 0 else ran.failed or ran.stderr or f"exit code {ran.code}"


def _described(isolation: Isolation, config: ContainersConfig) -> str:
    if not isinstance(isolation, Jail):
        return isolation.description
    from gateway_container.jail.cgroup import bounded_by

    bounds = bounded_by(config.cgroup)
    groups = (
        f"cgroups ({', '.join(bounds)})"
        if "memory" in bounds
        else "no cgroups (memory is measured, and what exceeds it is ended)"
    )
    return f"{isolation.description}, {groups}"
