"""Output formats: how a model family's raw output is parsed, written and constrained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.base.constraints import Constraint
from gateway.base.deltas import Delta
from gateway.plugins.protocols.engine import EngineOutput, FinishReason, Tokenizer
from gateway.plugins.protocols.prompt import Tail, ToolDefinition, Turn


class ParserContext(Struct, frozen=True, kw_only=True):
    """What a parser knows about the request."""

    tail: Tail = "unknown"
    tools: Mapping[str, ToolDefinition] = {}
    """Tools by name, and by the other names that models write for them (`lights.set` for `lights__set`): calls may be named as
    written. Formats with untyped arguments convert them by these schemas. Empty if no tool was offered."""
    tokenizer: Tokenizer | None = None
    parse_tools: bool = True
    """False if no tool was offered, or if `tool_choice` is `none` and the text is enforced: call syntax is then
    ordinary text. In other answers with `tool_choice` `none`, calls are parsed and dropped."""
    turn: Turn | None = None
    """The turn that the model answers. None if citations of the turn's documents and results are not wanted."""


class OutputParser(Protocol):
    """One incremental parser per generation, for reasoning, text and calls together.

    The result depends on the characters (or tokens) consumed, never on how the output was chunked. Each character is
    read once. Never raises on model output: what cannot be parsed becomes text. Parsing a complete output is `feed`
    followed by `finish`.
    """

    @property
    def reasoning_tokens(self) -> int:
        """Number of output tokens so far that began inside reasoning."""
        ...

    @property
    def recoveries(self) -> int:
        """Number of times that malformed output was repaired or returned as text."""
        ...

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        """The deltas that `output` completes, in order. Holds back only what may still become a marker."""
        ...

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        """Handle the end of the output and return what was held back. `feed` must not be called afterwards."""
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
    """Text to be written verbatim, for `OutputFormat.write`."""

    text: str


Piece: TypeAlias = ReasoningPiece | TextPiece | CallPiece | RawPiece


class OutputFormat(Protocol):
    """One model family's output syntax: parsing, writing and constraining. Stateless."""

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
        """The constraint on the raw output that enforces `turn`'s tool choice and text format; None if there is none.

        Raises `Unsupported` for a choice that this format cannot express.
        """
        ...


@runtime_checkable
class CitingFormat(Protocol):
    """An `OutputFormat` whose parsers may emit `CitationStarted` and `CitationEnded`. Chat Completions ignores these
    deltas of all other formats."""

    @property
    def cites(self) -> bool: ...


@runtime_checkable
class JoiningFormat(Protocol):
    """An `OutputFormat` that tells whether outputs may be joined. Outputs of other formats are not joined."""

    @property
    def joins_outputs(self) -> bool:
        """Whether several outputs, with their texts and tokens, may be fed to a parser as one. This requires that the
        parser does not count reasoning, for which the tokens of each output matter."""
        ...


@runtime_checkable
class FormatAwareRenderer(Protocol):
    """A `PromptRenderer` that writes earlier output as the model did."""

    def use_format(self, output_format: OutputFormat) -> None:
        """Write output in this format. Called once, before the first turn."""
        ...


@runtime_checkable
class FormatAwareEngine(Protocol):
    """An engine that writes raw output itself, without a model, and so must know the format (the scripted engine)."""

    def use_format(self, output_format: OutputFormat) -> None:
        """Write output in this format. Called once, before the first request."""
        ...
