"""Data of a format: the family's reasoning markers and its call syntax."""

from __future__ import annotations

from functools import cached_property
from typing import Literal, TypeAlias

from msgspec import Struct

from gateway_parsers.kit.markers import Where
from gateway_parsers.kit.syntax import CallSyntax

Component: TypeAlias = Literal["reasoning", "calls"]


class ReasoningMarkers(Struct, frozen=True, kw_only=True):
    """Reasoning between two markers."""

    open: str
    close: str
    also_open: tuple[str, ...] = ()
    """Additional spellings, read but never written."""
    also_close: tuple[str, ...] = ()
    default_start: Literal["text", "reasoning"] = "text"
    """Where an output starts if the prompt did not say: `reasoning` for families whose prompts open the block."""
    open_where: Where = "line"
    """Where the open marker counts as markup."""
    after_open: str = "\n"
    before_close: str = "\n"
    after_close: str = "\n\n"
    """Written by the model after the marker. Reading does not depend on it."""
    call_ends_it: Literal["known", "always"] = "known"
    """Which calls end unclosed reasoning: only those of offered tools, or all."""

    @property
    def opens(self) -> tuple[str, ...]:
        return (self.open, *self.also_open)

    @property
    def closes(self) -> tuple[str, ...]:
        return (self.close, *self.also_close)


class Frame(Struct, frozen=True, kw_only=True):
    """Hidden markup around the answer's text."""

    open: str
    close: str
    also_open: tuple[str, ...] = ()
    also_close: tuple[str, ...] = ()
    """Additional markup that belongs to no item."""
    special: bool = False
    """Whether the markers are special tokens, which are never prose: they are hidden everywhere."""
    with_calls: bool = False
    """Whether every answer, even an empty one, is framed and calls follow the frame; a prompt without reasoning opens
    it."""
    ends_reasoning: tuple[str, ...] = ()
    """Those opening markers that also end reasoning without its own end marker."""
    titled: str = ""
    """An opening marker, or the end of the prompt, that a name may follow up to another marker; the name is hidden."""
    title_end: str = ""
    """Beginning of the markers that end the name."""

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
"""Tokens that end a model's turn, in any family. Engines omit them unless they show all special tokens. All start
alike, like most markers, so that other text takes the fast path (see `Machine.feed`)."""


class FormatSpec(Struct, frozen=True, kw_only=True, dict=True):
    """A format: reasoning, calls, both, or neither (all output is text)."""

    name: str
    reasoning: ReasoningMarkers | None = None
    calls: CallSyntax | None = None
    frame: Frame | None = None
    hidden: tuple[str, ...] = ()
    """Hidden special tokens within text."""
    hidden_tags: tuple[str, ...] = ()
    """Starts of hidden tags within text, such as `<co`, which may have numbers."""
    cites: bool = False
    """Whether hidden tags enclose cited text and number its sources; see `gateway_parsers.kit.citations`."""
    turn_ends: tuple[str, ...] = ()
    """Additional to `TURN_ENDS`."""
    aliases: tuple[str, ...] = ()
    summary: str = ""

    lead: str = ""
    """Text that the prompt contains and the answer shows, for formats that keep the reasoning in the text."""
    plain_newlines: bool = False
    """Whether the model's tokenizer decodes line breaks as `\\n`, outside of code and formulas."""

    def has(self, component: Component) -> bool:
        """Whether the format has this component, so that `compose` can use it."""
        if component == "calls":
            return self.calls is not None
        return self.reasoning is not None or bool(self.lead)

    @cached_property
    def frame_opens(self) -> tuple[str, ...]:
        return self.frame.opens if self.frame is not None else ()
