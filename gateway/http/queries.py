"""Query-string parsing shared by the GET endpoints."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import get_args

from litestar.datastructures import MultiDict

from gateway.base.errors import InvalidRequest
from gateway.wire.common import Includable
from gateway.wire.field_errors import not_among

_FLAGS = {"true": True, "1": True, "false": False, "0": False, "": False}
_INCLUDABLE = list(get_args(Includable))
_INCLUDE = re.compile(r"include(\[\d*\])?")


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """A boolean parameter, False by default. Raises `InvalidRequest` for any other value."""
    value = query.get(name, "").lower()
    if value not in _FLAGS:
        raise InvalidRequest(
            f"Invalid '{name}': '{value[:100]}'. It is true or false.",
            param=name,
            code="invalid_value",
        )
    return _FLAGS[value]


def include_of(query: MultiDict[str]) -> frozenset[str]:
    """The `include` values. Raises `InvalidRequest` for an unsupported one.

    SDKs encode a list as repeated `include` or `include[]`, or with indices.
    """
    wanted = [value for name, value in query.multi_items() if _INCLUDE.fullmatch(name)]
    for index, value in enumerate(wanted):
        if value not in _INCLUDABLE:
            raise not_among(("include", index), value, _INCLUDABLE)
    return frozenset(wanted)


def unknown_in(query: MultiDict[str], known: Collection[str]) -> list[str]:
    """The names of unknown parameters. Like unknown body parameters, these are ignored."""
    return [name for name in query if name not in known and not _INCLUDE.fullmatch(name)]
