"""Errors about one parameter of a request, in OpenAI's wording."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.base.errors import InvalidRequest, ParamPath, param_path, param_text

MAX_ITEMS = 20_000
"""Maximum number of items or messages in a request, of parts in each of them, and of parameters."""
MAX_TOOLS = 1024
"""Maximum number of entries in a request's `tools`. OpenAI takes 128 functions."""


def missing(param: str | ParamPath, hint: str = "") -> InvalidRequest:
    """The error for a missing required parameter."""
    return InvalidRequest(
        f"Missing required parameter: '{_name(param)}'.{' ' if hint else ''}{hint}",
        param=param,
        code="missing_required_parameter",
    )


def wrong_type(param: str | ParamPath, expected: str, got: Any) -> InvalidRequest:
    """The error for a parameter of the wrong type."""
    return InvalidRequest(
        f"Invalid type for '{_name(param)}': expected {expected}, but got {name_type(got)} instead.",
        param=param,
        code="invalid_type",
    )


def not_among(
    param: str | ParamPath, got: Any, allowed: Mapping[str, Any] | list[str]
) -> InvalidRequest:
    """The error for a parameter whose value is not one of the allowed ones. As in OpenAI's errors, only `param` tells
    the location."""
    return InvalidRequest(
        f"Invalid value: '{shortened(got)}'. Supported values are: {listed(allowed)}.",
        param=param,
        code="invalid_value",
    )


def listed(names: Mapping[str, Any] | list[str]) -> str:
    """Format names for a sentence: 'a', 'b', and 'c'."""
    quoted = [f"'{name}'" for name in names]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def shortened(value: Any) -> str:
    """Format a client's value for a sentence."""
    text = str(value)
    return text if len(text) <= 100 else f"{text[:100]}…"


def check_length(raw: list[Any], param: str | ParamPath, most: int = MAX_ITEMS) -> None:
    """Reject an array with more than `most` elements: decoding blocks other requests."""
    if len(raw) > most:
        raise InvalidRequest(
            f"Invalid '{_name(param)}': array too long. Expected an array with maximum length {most}, but got an array with "
            f"length {len(raw)} instead.",
            param=param,
            code="array_above_max_length",
        )


def name_type(value: Any) -> str:
    """The JSON type of `value`, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal"
        case str():
            return "a string"
        case list():
            return "an array"
        case _:
            return "an object"


def _name(param: str | ParamPath) -> str:
    return param_text(param_path(param))


_MEDIA_BESIDE: Final = ("images", "attachments", "file_ids")
"""Members in which other APIs (Ollama's, the Assistants API) put images and files, separate from the content of a
message."""


def refuse_media_beside(raw: dict[str, Any], param: ParamPath, place: str) -> None:
    """Raise for images and files that are separate from the content or output of `raw` and would be ignored. `place`
    says where to put them."""
    for name in _MEDIA_BESIDE:
        if raw.get(name):
            raise InvalidRequest(
                f"Unknown parameter: '{param_text((*param, name))}'. Images and files are read {place}.",
                param=(*param, name),
                code="unknown_parameter",
            )
