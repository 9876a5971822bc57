"""JSON texts of others: of models, servers and clients, within strings. Their nesting has one bound.

Without it, what a decoder takes depends on the Python: some thousand levels in 3.13, and one thousand in 3.11. What reads the value
next, such as a template, may then overflow the stack.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 128
"""Maximum nesting depth of objects and arrays: far more than schemas need, and far less than what overflows a stack."""


def decode_text(text: str | bytes) -> Any:
    """The value of a JSON text. Raises `msgspec.DecodeError` for other texts, and for those nested deeper than `MAX_DEPTH`."""
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
