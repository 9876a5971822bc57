"""The output format of engines whose upstream has parsed already: nothing is left to read."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.constraints import Constraint, JsonObject, JsonSchema
from gateway.deltas import Delta, TextDelta
from gateway.hookspecs import ModelContext
from gateway.protocols import (
    CallPiece,
    EngineOutput,
    FinishReason,
    NoConfig,
    ParserContext,
    Piece,
    Tail,
    Turn,
)


class NativeParser:
    """Takes what is fed for text: engines at message level give deltas, which do not come by here."""

    def __init__(self) -> None:
        self.reasoning_tokens = 0
        self.recoveries = 0
        self._chars = 0

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        start = self._chars
        self._chars += len(output.text)
        return [TextDelta(output.text, start)] if output.text else []

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        return []


class NativeFormat:
    """Satisfies `gateway.protocols.OutputFormat`. Tools and structured outputs are the upstream's own business."""

    name = "native"
    keeps_special_tokens = False

    def parser(self, context: ParserContext) -> NativeParser:
        return NativeParser()

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        """There is no syntax: text alone, one piece after the other."""
        return "".join(
            piece.arguments if isinstance(piece, CallPiece) else piece.text for piece in pieces
        )

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        """What the text format asks for, as a place for what it cannot say (patterns, choices, grammars)."""
        match turn.text_format.kind:
            case "json_schema":
                return JsonSchema(turn.text_format.schema or {})
            case "json_object":
                return JsonObject()
            case "text":
                return None


def make_native(config: NoConfig, context: ModelContext) -> NativeFormat:
    """The format has no settings, and depends on nothing."""
    return NativeFormat()
