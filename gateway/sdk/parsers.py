"""Helpers for output formats: counting the tokens of reasoning."""

from gateway.engines.reasoning_meter import (
    OutputSpan,
    ReasoningMeter,
)

__all__ = [
    "OutputSpan",
    "ReasoningMeter",
]
