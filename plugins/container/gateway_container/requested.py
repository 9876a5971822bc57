"""What a request says of the container that it wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.errors import Unsupported
from gateway.wire.decoding import wrong_type
from gateway_container.config import ContainersConfig
from gateway_container.kept import uploads
from gateway_container.kept.records import MadeBy, Wish
from gateway_container.memory import SIZES

_MAX_FILES = 50
"""`file_ids` of one request: OpenAI's limit."""


def wished(
    given: Mapping[str, Any],
    config: ContainersConfig,
    *,
    owner: str | None,
    param: str = "",
    name: str = "",
    minutes: int | None = None,
    made_by: MadeBy = "response",
) -> Wish:
    """A container as `given` has it (`memory_limit`, `file_ids`, `network_policy`, `skills`).

    Raises `GatewayError`, with a parameter below `param`.
    """
    below = f"{param}." if param else ""
    if given.get("skills"):
        raise Unsupported(
            "This server has no skills for containers. Leave 'skills' out.",
            param=f"{below}skills",
        )
    policy = given.get("network_policy")
    if isinstance(policy, Mapping) and policy.get("type") != "disabled":
        raise Unsupported(
            "Containers of this server have no network. Leave 'network_policy' out, or send "
            '{"type": "disabled"}.',
            param=f"{below}network_policy",
        )
    return Wish(
        name=name,
        minutes=minutes or config.expiry_minutes,
        memory=_memory(given.get("memory_limit"), config, f"{below}memory_limit"),
        file_ids=_file_ids(given.get("file_ids"), owner, f"{below}file_ids"),
        made_by=made_by,
    )


def _memory(size: Any, config: ContainersConfig, param: str) -> str | None:
    if size is None:
        return None
    found = SIZES.get(size) if isinstance(size, str) else None
    if found is None or found > config.max_memory_bytes:
        allowed = [name for name, each in SIZES.items() if each <= config.max_memory_bytes]
        raise Unsupported(
            f"Containers of this server have up to {config.max_memory_bytes} bytes of memory"
            f"{' (' + ', '.join(allowed) + ')' if allowed else ''}. Ask for that, or leave 'memory_limit' out.",
            param=param,
        )
    return str(size)


def _file_ids(given: Any, owner: str | None, param: str) -> list[str]:
    if not given:
        return []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise wrong_type(param, "a list of strings", given)
    if len(given) > _MAX_FILES:
        raise Unsupported(f"'{param}' has at most {_MAX_FILES} files.", param=param)
    uploads.check(owner or "", given, param)
    return list(dict.fromkeys(given))
