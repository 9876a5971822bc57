"""What a request says of the container that it wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import NotFound, Unsupported
from gateway_container.config import SandboxConfig
from gateway_container.containers import Container, Containers

_SIZES = {"1g": 2**30, "4g": 2**32, "16g": 2**34, "64g": 2**36}


def named_container(
    containers: Containers, container_id: str, *, owner: str | None, param: str
) -> Container:
    """The container of that id; raises `NotFound` where it is another's, or has expired."""
    found = containers.find(container_id, owner)
    if found is None:
        raise NotFound(
            f"Container with id '{container_id}' not found. It may have expired: ask for a new one.",
            param=param,
            code="container_not_found",
        )
    return found


def new_container(
    containers: Containers,
    wish: Mapping[str, Any],
    config: SandboxConfig,
    *,
    owner: str | None,
    param: str,
) -> Container:
    """A container as `wish` has it (`memory_limit`, `file_ids`, `network_policy`, `skills`).

    Raises `Unsupported`, with a parameter below `param`.
    """
    for name, reason in (
        ("file_ids", "This server puts no files into containers."),
        ("skills", "This server has no skills for containers."),
    ):
        if wish.get(name):
            raise Unsupported(f"{reason} Leave '{name}' out.", param=f"{param}.{name}")
    policy = wish.get("network_policy")
    if isinstance(policy, Mapping) and policy.get("type") != "disabled":
        raise Unsupported(
            "Containers of this server have no network. Leave 'network_policy' out, or send "
            '{"type": "disabled"}.',
            param=f"{param}.network_policy",
        )
    size = wish.get("memory_limit")
    memory = None if size is None else _SIZES.get(size) if isinstance(size, str) else 0
    if size is not None and (not memory or memory > config.max_memory_bytes):
        allowed = [name for name, each in _SIZES.items() if each <= config.max_memory_bytes]
        raise Unsupported(
            f"Containers of this server have up to {config.max_memory_bytes} bytes of memory"
            f"{' (' + ', '.join(allowed) + ')' if allowed else ''}. Ask for that, or leave 'memory_limit' out.",
            param=f"{param}.memory_limit",
        )
    return containers.new(owner, memory)
