"""The data of a format: how a family marks its reasoning, and which call syntax goes with it."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

from gateway_parsers.kit.markers import Where
from gateway_parsers.kit.syntax import CallSyntax


class Reasoning(Struct, frozen=True, kw_only=True):
    """Reasoning between two markers."""

    open: str
    close: str
    also_open: tuple[str, ...] = ()
    """Further spellings, which are read and never written."""
    also_close: tuple[str, ...] = ()
    default_start: Literal["text", "reasoning"] = "text"
    """Where an output starts whose prompt did not say: `reasoning` for families whose prompts open the block."""
    open_where: Where = "line"
    """Where the open marker counts, and is not prose."""
    after_open: str = "\n"
    before_close: str = "\n"
    after_close: str = "\n\n"
    """What the model writes next to the markers. Reading does not depend on it."""
    call_ends_it: Literal["known", "always"] = "known"
    """Whether a call inside unclosed reasoning ends it: only of an offered tool, or any."""

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, *self.also_open)

    @property
    def closes(self) -> tuple[str, ...]:
        return (self.close, *self.also_close)


class Frame(Struct, frozen=True, kw_only=True):
    """Markup around the answer's text, which is not shown."""

    open: str
    close: str
    also_open: tuple[str, ...] = ()
    also_close: tuple[str, ...] = ()
    """Further markup that belongs to no item."""
    special: bool = False
    """The markers are special tokens, and so never prose: they are not shown wherever they stand."""
    with_calls: bool = False
    """Every answer has it, be it empty, and calls come behind it; a prompt without thinking opens it."""

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, *self.also_open)

    @property
    def closes(self) -> tuple[str, ...]:
        return (self.close, *self.also_close)


TURN_ENDS = (
    "<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|eot|>", "<|eom|>",
    "<｜end▁of▁sentence｜>", "<|user|>", "<|observation|>", "<end_of_turn>", "<turn|>", "<eos>", "<|end|>",
    "<|END_OF_TURN_TOKEN|>", "<|tool_response>",
)  # fmt: skip
"""What models of any family end their turn with. Engines leave it out, but for those that show all special tokens. All
begin alike, as most other markers do: what no marker begins with takes the shortest way (see `Machine.feed`)."""


class FormatSpec(Struct, frozen=True, kw_only=True, dict=True):
    """A format: reasoning, calls, both, or neither (then all output is text)."""

    name: str
    reasoning: Reasoning | None = None
    calls: CallSyntax | None = None
    frame: Frame | None = None
    hidden: tuple[str, ...] = ()
    """Special tokens within text, which are not shown."""
    turn_ends: tuple[str, ...] = ()
    """Besides `TURN_ENDS`."""
    aliases: tuple[str, ...] = ()
    summary: str = ""

    @cached_property
    def frame_opens(self) -> tuple[str, ...]:
        return self.frame.opens if self.frame is not None else ()
