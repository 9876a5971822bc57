"""Helpers for messages about configuration."""

from gateway.config.tables import (
    suggestion,
)

__all__ = [
    "suggestion",
]
