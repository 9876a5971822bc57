"""The output format of engines whose upstream parses the output itself."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import (
    CallPiece,
    Delta,
    EngineOutput,
    FinishReason,
    ModelContext,
    NoConfig,
    ParserContext,
    Piece,
    Tail,
    TextDelta,
    Turn,
)
from gateway.sdk.constraints import Constraint, JsonObject, JsonSchema


class NativeParser:
    """Treats everything that is fed as text. Engines at message level return deltas, which bypass the parser."""

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
    """Implements `gateway.sdk.OutputFormat`. The upstream handles tools and structured outputs."""

    name = "native"
    keeps_special_tokens = False

    def parser(self, context: ParserContext) -> NativeParser:
        return NativeParser()

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        """The concatenated text of the pieces; there is no markup."""
        return "".join(
            piece.arguments if isinstance(piece, CallPiece) else piece.text for piece in pieces
        )

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        """The constraint of the text format. Carries kinds that the API has no text format for (patterns, choices,
        grammars)."""
        match turn.text_format.kind:
            case "json_schema":
                return JsonSchema(turn.text_format.schema or {})
            case "json_object":
                return JsonObject()
            case "text":
                return None


def make_native(config: NoConfig, context: ModelContext) -> NativeFormat:
    """Create the format. Both arguments are ignored."""
    return NativeFormat()
