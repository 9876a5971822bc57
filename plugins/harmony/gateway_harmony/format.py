"""The output format: parsing, writing and constraints of Harmony."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import (
    CallPiece,
    ParserContext,
    Piece,
    RawPiece,
    ReasoningPiece,
    Tail,
    TextPiece,
    Tokenizer,
    Turn,
)
from gateway.sdk.constraints import Constraint
from gateway_harmony.calls import call_header, is_family_name
from gateway_harmony.constraint import constraint
from gateway_harmony.markers import CALL, CHANNEL, END, MESSAGE, RETURN, START
from gateway_harmony.parser import HarmonyParser
from gateway_harmony.tokens import TokenLookup

_ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
_PREAMBLE = f"{CHANNEL}commentary{MESSAGE}"
_FINAL = f"{CHANNEL}final{MESSAGE}"


class HarmonyFormat:
    """The format of the gpt-oss models; an `OutputFormat`."""

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        """`tokenizer` is the engine's; parsers use it if their context names it too. Without one, every marker in the
        text counts as a special token."""
        self._tokenizer = tokenizer
        self._vocabulary = None if tokenizer is None else TokenLookup(tokenizer)

    @property
    def name(self) -> str:
        return "harmony"

    @property
    def keeps_special_tokens(self) -> bool:
        return True

    def parser(self, context: ParserContext) -> HarmonyParser:
        vocabulary = self._vocabulary
        if context.tokenizer is not self._tokenizer:
            vocabulary = None if context.tokenizer is None else TokenLookup(context.tokenizer)
        return HarmonyParser(context, vocabulary)

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        """The raw output of `pieces`. Text before a call is a preamble, other text is final; adjacent texts form one
        message."""
        last_call = max((i for i, p in enumerate(pieces) if isinstance(p, CallPiece)), default=-1)
        opened = {"text": _FINAL, "reasoning": _ANALYSIS, "unknown": ""}[tail]
        """Header of the message that the prompt opened."""
        parts: list[str] = []
        prompted = tail == "unknown"
        """Whether the prompt ends with `<|start|>assistant`."""
        for index, piece in enumerate(pieces):
            if isinstance(piece, RawPiece):
                parts.append(piece.text)
                continue
            header = _header(piece, before_call=index < last_call)
            if header != opened or isinstance(piece, CallPiece):
                if opened:
                    parts.append(_end(opened, last=False))
                if not prompted:
                    parts.append(f"{START}assistant")
                parts.append(header)
                opened = header
                prompted = False
            parts.append(piece.arguments if isinstance(piece, CallPiece) else piece.text)
        if opened:
            parts.append(_end(opened, last=True))
        return "".join(parts)

    def constraint(self, turn: Turn, *, tail: Tail) -> Constraint | None:
        return constraint(turn, tail)


def _header(piece: ReasoningPiece | TextPiece | CallPiece, *, before_call: bool) -> str:
    match piece:
        case ReasoningPiece():
            return _ANALYSIS
        case TextPiece():
            return _PREAMBLE if before_call else _FINAL
        case CallPiece(name):
            return call_header(name, built_in=is_family_name(name))


def _end(header: str, *, last: bool) -> str:
    """The marker that ends a message with this header."""
    if header == _FINAL:
        return RETURN if last else END
    return END if header in (_ANALYSIS, _PREAMBLE) else CALL
