"""The container settings of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.sdk import ParamPath, Unsupported, param_text
from gateway.sdk.wire import wrong_type
from gateway_container.config import ContainersConfig
from gateway_container.library import uploads
from gateway_container.library.records import ContainerSettings, MadeBy
from gateway_container.memory import SIZES

_MAX_FILES = 50
"""Maximum number of `file_ids` per request, as at OpenAI."""


def container_settings(
    given: Mapping[str, Any],
    config: ContainersConfig,
    *,
    owner: str | None,
    param: ParamPath = (),
    name: str = "",
    minutes: int | None = None,
    made_by: MadeBy = "response",
) -> ContainerSettings:
    """The settings in `given` (`memory_limit`, `file_ids`, `network_policy`, `skills`).

    Raises `GatewayError`, with a parameter below `param`.
    """
    if given.get("skills"):
        raise Unsupported(
            "This server has no skills for containers. Leave 'skills' out.",
            param=(*param, "skills"),
        )
    policy = given.get("network_policy")
    if isinstance(policy, Mapping) and policy.get("type") != "disabled":
        raise Unsupported(
            "Containers of this server have no network. Leave 'network_policy' out, or send "
            '{"type": "disabled"}.',
            param=(*param, "network_policy"),
        )
    return ContainerSettings(
        name=name,
        minutes=minutes or config.expiry_minutes,
        memory=_memory(given.get("memory_limit"), config, (*param, "memory_limit")),
        file_ids=_file_ids(given.get("file_ids"), owner, (*param, "file_ids")),
        made_by=made_by,
    )


def _memory(size: Any, config: ContainersConfig, param: ParamPath) -> str | None:
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


def _file_ids(given: Any, owner: str | None, param: ParamPath) -> list[str]:
    if not given:
        return []
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise wrong_type(param, "a list of strings", given)
    if len(given) > _MAX_FILES:
        raise Unsupported(f"'{param_text(param)}' has at most {_MAX_FILES} files.", param=param)
    uploads.check(owner or "", given, param)
    return list(dict.fromkeys(given))
