"""Types of settings, and helpers for messages about configuration."""

from gateway.config.redaction import (
    without_credentials,
    without_secrets,
)
from gateway.config.secret_files import (
    read_secret_file,
)
from gateway.config.structs import Positive, Seconds
from gateway.config.tables import (
    suggestion,
)

__all__ = [
    "Positive",
    "Seconds",
    "read_secret_file",
    "suggestion",
    "without_credentials",
    "without_secrets",
]
