"""HTTP transports for `httpx2` that connect to checked addresses only, within limits."""

from gateway.net.http import (
    GuardedTransport,
    LimitedTransport,
    TooLarge,
)

__all__ = [
    "GuardedTransport",
    "LimitedTransport",
    "TooLarge",
]
