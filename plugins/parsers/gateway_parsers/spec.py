"""The data of a format: how a family marks its reasoning, and which call syntax goes with it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from gateway_parsers.kit.syntax import CallSyntax


class Reasoning(Struct, frozen=True, kw_only=True):
    """Reasoning between two markers."""

    open: str
    close: str
    default_start: Literal["text", "reasoning"] = "text"
    """Where an output starts whose prompt did not say: `reasoning` for families whose prompts open the block."""
    after_open: str = "\n"
    before_close: str = "\n"
    after_close: str = "\n\n"
    """What the model writes next to the markers. Reading does not depend on it."""
    call_ends_it: Literal["known", "always"] = "known"
    """Whether a call inside unclosed reasoning ends it: only of an offered tool, or any."""


class FormatSpec(Struct, frozen=True, kw_only=True):
    """A format: reasoning, calls, both, or neither (then all output is text)."""

    name: str
    reasoning: Reasoning | None = None
    calls: CallSyntax | None = None
    aliases: tuple[str, ...] = ()
    summary: str = ""
