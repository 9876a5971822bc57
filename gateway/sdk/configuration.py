"""Helpers for messages about configuration."""

from gateway.config.redaction import (
    without_credentials,
)
from gateway.config.tables import (
    suggestion,
)

__all__ = [
    "suggestion",
    "without_credentials",
]
