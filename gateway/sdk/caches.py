"""Caches that keep the most recently used values."""

from gateway.caches import ComputedCache, LruCache

__all__ = [
    "ComputedCache",
    "LruCache",
]
