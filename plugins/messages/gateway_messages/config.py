"""The plugin's configuration."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.messages]`."""

    ping_interval: Annotated[float, Meta(ge=0)] = 15.0
    """Seconds of silence in a stream after which a `ping` is sent; 0 sends none but the first."""
    offer_tools: bool = False
    """Whether models are also told of the gateway's tools that no request has to ask for; their calls are shown as those of
    MCP tools."""
    max_turns: Annotated[int, Meta(ge=1)] = 32
    """Generations in one answer, between which the gateway runs its tools: past that, it ends as `pause_turn`."""
