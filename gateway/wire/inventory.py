"""What a gateway consists of, as its administrators see it."""

from __future__ import annotations

from typing import Literal

from gateway.wire.common import Value


class ListedPlugin(Value, frozen=True, kw_only=True):
    """One thing that an installed plugin offers, or a plugin that failed."""

    kind: str
    name: str
    aliases: list[str] = []
    plugin: str
    distribution: str
    version: str
    state: str
    """`selected`, `available`, `active` (hooks that always run), `failed`, `off`, or `not installed`."""
    note: str = ""
    """Its summary, or why it failed."""


class ListedTools(Value, frozen=True, kw_only=True):
    """The tools of one table `[tools.<name>]`."""

    name: str
    types: list[str] = []
    """The types by which requests ask for them, such as `web_search`."""
    offered: list[str] = []
    """The names of those that requests need not ask for."""


class GatewayInfo(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway`."""

    object: Literal["gateway"] = "gateway"
    started: int
    """Unix time."""
    plugins: list[ListedPlugin]
    tools: list[ListedTools]
