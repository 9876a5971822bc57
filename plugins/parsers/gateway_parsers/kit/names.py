"""Names of tools that models write with a namespace of their own."""

from __future__ import annotations

from collections.abc import Container
from typing import Final

_NAMESPACES: Final = ("functions.", "default_api.", "tools.")
"""Those in which models have seen tools in training."""


def offered_name(name: str, tools: Container[str]) -> str:
    """The offered tool that `name` means; `name` if it is none."""
    if name not in tools:
        for namespace in _NAMESPACES:
            if name.startswith(namespace) and name[len(namespace) :] in tools:
                return name[len(namespace) :]
    return name
