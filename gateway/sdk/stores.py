"""Helpers for stores."""

from gateway.shared_values import (
    ValueTable,
)

__all__ = [
    "ValueTable",
]
