"""Caches that keep what was used last."""

from gateway.caches import ComputedCache, LruCache

__all__ = [
    "ComputedCache",
    "LruCache",
]
