"""Caches that keep the most recently used values."""

from gateway.base.caches import ComputedCache, LruCache

__all__ = [
    "ComputedCache",
    "LruCache",
]
