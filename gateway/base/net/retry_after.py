"""The header `Retry-After` (RFC 9110, 10.2.3)."""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from time import time


def wanted_wait(value: str | None) -> float | None:
    """The wait in seconds that a value of `Retry-After` requests, as a number or a date. Negative for a date in the
    past. None if `value` is None or invalid."""
    text = (value or "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - time()
        except (ValueError, TypeError, OverflowError, OSError):
            return None
    return None if math.isnan(seconds) else seconds
