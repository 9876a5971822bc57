"""Model profiles: the renderer and output format of a model."""

from __future__ import annotations

from msgspec import Struct


class ModelProfile(Struct, frozen=True, kw_only=True):
    """The registered names of a model's renderer and output format."""

    renderer: str | None = None
    parser: str | None = None
    reasoning: str | None = None
    tools: str | None = None
    """`reasoning` and `tools` name separate formats for a model that mixes families; `parser` is then None."""
    why: str = ""
    """A phrase for the log and `gateway models`: the metadata on which the choice is based."""


class NoConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a plugin without settings."""
