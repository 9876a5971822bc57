"""Texts and deltas in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.base.deltas import Delta


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """`text` in pieces of these sizes, the last with the rest. None is empty."""
    pieces = []
    for size in sizes:
        pieces.append(text[:size])
        text = text[size:]
    return [piece for piece in (*pieces, text) if piece]


def batched(deltas: list[Delta], sizes: Sequence[int]) -> list[list[Delta]]:
    """`deltas` in batches of these sizes, the last with the rest."""
    batches, at = [], 0
    for size in sizes:
        batches.append(deltas[at : at + size])
        at += size
    return [*batches, deltas[at:]]
