"""The output format of Completions, which passes the model's text through unchanged."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.constraints import Constraint
from gateway.base.deltas import Delta, TextDelta
from gateway.plugins.protocols import (
    EngineOutput,
    FinishReason,
    OutputParser,
    ParserContext,
    Piece,
    RawPiece,
    Tail,
    TextPiece,
    Turn,
)


class RawOutput:
    """An output format without syntax: all output is text. Implements `gateway.plugins.protocols.OutputFormat`."""

    name = "raw"
    keeps_special_tokens = False

    def parser(self, context: ParserContext) -> OutputParser:
        return RawParser()

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece | RawPiece))

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        return None


class RawParser:
    """Passes text through unchanged."""

    def __init__(self) -> None:
        self.reasoning_tokens = 0
        self.recoveries = 0
        self._at = 0

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        text = output.text
        if not text:
            return ()
        at = self._at
        self._at += len(text)
        return (TextDelta(text, at),)

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        return ()
