"""Model profiles: which renderer and format a model speaks."""

from __future__ import annotations

from msgspec import Struct


class ModelProfile(Struct, frozen=True, kw_only=True):
    """Which renderer and output format a model speaks, by their registered names."""

    renderer: str | None = None
    parser: str | None = None
    reasoning: str | None = None
    tools: str | None = None
    """`reasoning` and `tools` name the two halves where a model mixes families; then `parser` is None."""
    why: str = ""
    """One phrase for the log and `gateway models`: what in the metadata decided."""


class NoConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a plugin that has none."""
