"""Memory sizes as the API writes them."""

from __future__ import annotations

SIZES = {"1g": 2**30, "4g": 2**32, "16g": 2**34, "64g": 2**36}


def bytes_of(size: str | None) -> int | None:
    """A size in bytes. None if no size is given: the configured limit applies."""
    return None if size is None else SIZES[size]
