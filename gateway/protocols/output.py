"""Output formats: how a model family's raw output is read, written and enforced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.constraints import Constraint
from gateway.deltas import Delta
from gateway.protocols.engine import EngineOutput, FinishReason, Tokenizer
from gateway.protocols.prompt import Tail, ToolDefinition, Turn


class ParserContext(Struct, frozen=True, kw_only=True):
    """What a parser may know of the request that it serves."""

    tail: Tail = "unknown"
    tools: Mapping[str, ToolDefinition] = {}
    """By name. Formats with typed arguments coerce by their schemas. Empty: no tool was offered."""
    tokenizer: Tokenizer | None = None
    parse_tools: bool = True
    """False where `tool_choice` is `none`, or nothing was offered: call syntax is then text."""


class OutputParser(Protocol):
    """One incremental machine per generation, for reasoning, text and calls together.

    Decides on the characters (or tokens) that it has consumed, never on where an output ended: any cutting of the same
    output gives the same items. Each character is read once. Never raises on model output: what it cannot read is text.
    One-shot is `feed` and then `finish`.
    """

    reasoning_tokens: int
    """Output tokens that began inside reasoning, so far."""
    recoveries: int
    """How often the output was malformed and something had to be guessed or shown as text."""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        """The deltas that `output` completes, in order; holds back only what may still become a marker."""
        ...

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        """The output has ended: what was held is given out. Nothing may be fed after it."""
        ...


class ReasoningPiece(Struct, frozen=True, tag="reasoning"):
    """A stretch of reasoning, for `OutputFormat.write`."""

    text: str


class TextPiece(Struct, frozen=True, tag="text"):
    """A stretch of answer text, for `OutputFormat.write`."""

    text: str


class CallPiece(Struct, frozen=True, tag="call"):
    """One tool call, for `OutputFormat.write`. `arguments` is JSON text."""

    name: str
    arguments: str


class RawPiece(Struct, frozen=True, tag="raw"):
    """Text to be written as it stands, for `OutputFormat.write`."""

    text: str


Piece: TypeAlias = ReasoningPiece | TextPiece | CallPiece | RawPiece


class OutputFormat(Protocol):
    """One model family's output syntax: how it is read, how it is written, how it is enforced. Stateless."""

    @property
    def name(self) -> str: ...

    @property
    def keeps_special_tokens(self) -> bool:
        """Whether the parser needs special tokens in the text (`Sampling.skip_special_tokens` False)."""
        ...

    def parser(self, context: ParserContext) -> OutputParser:
        """A new parser for one generation."""
        ...

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        """The raw output that the parser, started with `tail`, reads as `pieces`."""
        ...

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        """What the raw output must look like so that `turn`'s tool choice and text format hold; None: anything goes.

        Raises `Unsupported` for a choice that this format cannot express.
        """
        ...


@runtime_checkable
class SpeaksFormat(Protocol):
    """An engine that writes output itself instead of a model, and so must know the format (the scripted engine)."""

    def speak(self, output_format: OutputFormat) -> None:
        """Write outputs in this format from now on. Called once, before the first request."""
        ...
