"""Ids in OpenAI's form: a prefix for the kind, and 48 hexadecimal digits."""

from __future__ import annotations

import os


def new_id(prefix: str) -> str:
    """Create an id: `prefix` (`resp_`, `msg_`, …) and 24 random bytes in hexadecimal."""
    return prefix + os.urandom(24).hex()
