"""Query strings: what the endpoints that retrieve have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from litestar.datastructures import MultiDict

from gateway.errors import InvalidRequest
from gateway.wire.common import Includable
from gateway.wire.decoding import not_among

_FLAGS = {"true": True, "1": True, "false": False, "0": False, "": False}
_INCLUDABLE = list(get_args(Includable))


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """A boolean; False where it is not there. Raises `InvalidRequest` for anything else."""
    value = query.get(name, "").lower()
    if value not in _FLAGS:
        raise InvalidRequest(
            f"Invalid '{name}': '{value[:100]}'. It is true or false.",
            param=name,
            code="invalid_value",
        )
    return _FLAGS[value]


def check_include(query: MultiDict[str]) -> None:
    """Refuse what cannot be included. SDKs write a list as `include`, or as `include[]`, again and again."""
    wanted = [*query.getall("include", []), *query.getall("include[]", [])]
    for index, value in enumerate(wanted):
        if value not in _INCLUDABLE:
            raise not_among(f"include[{index}]", value, _INCLUDABLE)
