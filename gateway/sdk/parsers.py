"""Helpers for output formats: counting the tokens of reasoning."""

from gateway.reasoning_meter import (
    ReasoningMeter,
    Span,
)

__all__ = [
    "ReasoningMeter",
    "Span",
]
