"""Responses with citations, made by an assembler and folded from its events."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from gateway.items.assembler import ResponseAssembler
from gateway.wire.common import encode
from gateway.wire.response import Response
from gateway_testing.grammar import fold


def response_assembler(**options: Any) -> ResponseAssembler:
    """An assembler with ids that are counted and a clock that stands still."""
    ids = itertools.count()
    return ResponseAssembler(
        Response(id="resp_1", created_at=1, model="m", status="in_progress"),
        new_id=lambda prefix: f"{prefix}{next(ids)}",
        clock=lambda: 2.0,
        **options,
    )


def told(made: ResponseAssembler, deltas: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of a whole response, and what they fold to."""
    events = made.start()
    for delta in deltas:
        events += made.feed([delta])
    events += made.end((), "stop")
    events += made.finish(None)
    events.append(made.terminal())
    plain = [msgspec.json.decode(encode(event)) for event in events]
    return plain, fold(plain)


def cut(text: str, sizes: list[int]) -> list[str]:
    """`text` in pieces of these sizes, again and again."""
    pieces = []
    for size in itertools.cycle(sizes):
        if not text:
            return pieces
        pieces.append(text[:size])
        text = text[size:]
    return pieces
