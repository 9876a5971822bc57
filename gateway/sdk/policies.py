"""Helpers for policies: the texts of a turn."""

from gateway.engines.turn_texts import (
    changed_turn,
    texts_of,
)

__all__ = [
    "changed_turn",
    "texts_of",
]
