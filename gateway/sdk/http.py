"""HTTP transports for `httpx2` that connect to checked addresses only, within limits."""

from gateway.net.http import (
    GuardedTransport,
    LimitedTransport,
    TooLarge,
)
from gateway.net.http_transport import HttpTransport

__all__ = [
    "GuardedTransport",
    "HttpTransport",
    "LimitedTransport",
    "TooLarge",
]
