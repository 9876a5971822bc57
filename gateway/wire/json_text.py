"""Decoding of JSON texts in strings that models, servers and clients wrote, with a limit on their nesting.

Without the limit, the accepted depth would depend on the version of Python: some thousand levels in 3.13, one thousand
in 3.11. Code that reads the value later, such as a template, might then overflow the stack.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 128
"""Maximum nesting depth of objects and arrays: far more than schemas need, and far less than what overflows a stack."""


def decode_text(text: str | bytes) -> Any:
    """Decode a JSON text. Raises `msgspec.DecodeError` if it is not JSON, or is nested deeper than `MAX_DEPTH`."""
    try:
        value = msgspec.json.decode(text)
    except RecursionError:
        raise _nested_too_deeply() from None
    if is_too_deep(value):
        raise _nested_too_deeply()
    return value


def is_too_deep(value: Any) -> bool:
    """Whether a JSON value is nested deeper than `MAX_DEPTH`. Not recursive."""
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(MAX_DEPTH):
        level = [
            below
            for each in level
            for below in (each.values() if type(each) is dict else each)
            if type(below) is dict or type(below) is list
        ]
        if not level:
            return False
    return True


def _nested_too_deeply() -> msgspec.DecodeError:
    return msgspec.DecodeError(f"it is nested more than {MAX_DEPTH} levels deep")
