"""Ids in OpenAI's form: a prefix for the kind, and 48 hexadecimal digits."""

from __future__ import annotations

import os

_BYTES = 24
_AT_ONCE = 128
_random: list[str] = []
"""Random parts of ids that are not used yet: the kernel is asked for many at once, because each call costs microseconds."""


def new_id(prefix: str) -> str:
    """Create an id: `prefix` (`resp_`, `msg_`, …) and 24 random bytes in hexadecimal."""
    try:
        return prefix + _random.pop()
    except IndexError:
        return prefix + _refill()


def _refill() -> str:
    """Make random parts; returns one of them."""
    own, *parts = os.urandom(_BYTES * _AT_ONCE).hex(" ", _BYTES).split(" ")
    _random.extend(parts)
    return own


# A forked process must not make the ids of its parent.
os.register_at_fork(after_in_child=_random.clear)
