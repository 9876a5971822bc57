"""The plugin's configuration."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.messages]`."""

    ping_interval: Annotated[float, Meta(ge=0)] = 15.0
    """Seconds of silence in a stream after which a `ping` is sent; 0 sends none but the first."""
