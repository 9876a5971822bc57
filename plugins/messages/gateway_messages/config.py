"""Configuration of the plugin."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class MessagesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[apis.messages]`."""

    ping_interval: Annotated[float, Meta(ge=0)] = 15.0
    """Seconds of silence in a stream after which a `ping` is sent. 0: only the initial ping is sent."""
    offer_tools: bool = False
    """Whether models are also offered the gateway's tools that requests need not ask for; their calls are shown as
    MCP tool calls."""
    max_turns: Annotated[int, Meta(ge=1)] = 32
    """Maximum number of generations per answer, between which the gateway runs tools. Past that, the answer ends with
    `pause_turn`."""
