"""Helpers for stores."""

from gateway.limit_table import LimitTable
from gateway.shared_values import (
    ValueTable,
)

__all__ = [
    "LimitTable",
    "ValueTable",
]
