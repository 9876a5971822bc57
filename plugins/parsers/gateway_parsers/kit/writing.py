"""Writes raw output from pieces: the inverse of the machine."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import CallPiece, Piece, RawPiece, ReasoningPiece, Tail, TextPiece, Unsupported
from gateway_parsers.spec import FormatSpec


def write(spec: FormatSpec, pieces: Sequence[Piece], tail: Tail) -> str:
    """The output that a machine started with `tail` parses as `pieces`.

    Holds for pieces that contain no markup and neither start nor end with white space. Raises `Unsupported` for a kind
    of piece that the format lacks.
    """
    marks = spec.reasoning
    start = tail if tail != "unknown" else marks.default_start if marks is not None else "text"
    inside = start == "reasoning" and marks is not None
    parts: list[str] = []
    calls: list[CallPiece] = []
    after_text = False

    for piece in pieces:
        if calls and not isinstance(piece, CallPiece):
            parts.append(_calls(spec, calls))
            parts.append("\n")
            calls = []
            after_text = False
        if inside and marks is not None and not isinstance(piece, RawPiece):
            first = not parts
            inside = False
            if isinstance(piece, ReasoningPiece) and first:
                parts += (piece.text, marks.before_close, marks.close, marks.after_close)
                continue
            parts += (marks.before_close, marks.close, marks.after_close)
        match piece:
            case ReasoningPiece(text):
                if marks is None:
                    raise Unsupported(f"The format {spec.name!r} has no reasoning.")
                parts += ("\n" if after_text else "", marks.open, marks.after_open, text)
                parts += (marks.before_close, marks.close, marks.after_close)
                after_text = False
            case TextPiece(text) if spec.frame is not None:
                parts += (spec.frame.open, text, spec.frame.close)
            case TextPiece(text) | RawPiece(text):
                parts.append(text)
                after_text = after_text or bool(text)
            case CallPiece():
                if after_text:
                    parts.append("\n")
                    after_text = False
                calls.append(piece)
    if calls:
        parts.append(_calls(spec, calls))
    return "".join(parts)


def _calls(spec: FormatSpec, calls: Sequence[CallPiece]) -> str:
    if spec.calls is None:
        raise Unsupported(f"The format {spec.name!r} has no tool calls.")
    return spec.calls.write(calls)
