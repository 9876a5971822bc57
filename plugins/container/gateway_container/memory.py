"""How the API says how much memory a container has."""

from __future__ import annotations

SIZES = {"1g": 2**30, "4g": 2**32, "16g": 2**34, "64g": 2**36}


def bytes_of(size: str | None) -> int | None:
    """None: as much as the configuration allows."""
    return None if size is None else SIZES[size]
