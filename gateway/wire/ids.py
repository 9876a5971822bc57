"""Ids in OpenAI's form: a prefix that tells the kind, and 48 hexadecimal digits."""

from __future__ import annotations

import os


def new_id(prefix: str) -> str:
    """A fresh id: `prefix` (`resp_`, `msg_`, …), then 24 random bytes in hexadecimal."""
    return prefix + os.urandom(24).hex()
