"""`[apis.prompts]` in `gateway.toml`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class PromptsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[apis.prompts]`."""

    max_prompts: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """Maximum number of prompts of one API key."""
    max_versions: Annotated[int, Meta(ge=1, le=10_000)] = 200
    """Maximum number of versions of one prompt."""
    max_bytes: Annotated[int, Meta(ge=1, le=16_777_216)] = 1_048_576
    """Maximum size of one prompt with all its versions, in bytes."""
