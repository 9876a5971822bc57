"""Validating answers with the types of OpenAI's SDK, if it is installed."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from typing import Any

from gateway_conform.outcome import CheckFailed, CheckSkipped


@cache
def _adapter(name: str) -> Any:
    """A validator for a type of the SDK, such as `openai.types.responses.Response`; None without the SDK."""
    module, _, attribute = name.rpartition(".")
    try:
        pydantic = import_module("pydantic")
        kind = getattr(import_module(module), attribute)
    except (ImportError, AttributeError):
        return None
    return pydantic.TypeAdapter(kind)


def sdk_is_installed() -> bool:
    """Whether the SDK is installed, so that answers can be validated."""
    return _adapter("openai.types.responses.Response") is not None


def validate(name: str, value: Any) -> None:
    """Raise `CheckFailed` if `value` is not a valid instance of the SDK's type `name`, and `CheckSkipped` without the
    SDK."""
    adapter = _adapter(name)
    if adapter is None:
        raise CheckSkipped("OpenAI's SDK is not installed: `pip install openai`")
    try:
        adapter.validate_json(json.dumps(value), strict=True)
    except ValueError as error:  # pydantic's ValidationError is a subclass
        first = error.errors()[0] if hasattr(error, "errors") else {"loc": (), "msg": str(error)}
        place = ".".join(map(str, first["loc"]))
        raise CheckFailed(
            f"not a {name.rpartition('.')[2]} of OpenAI's SDK: {place}: {first['msg']}"
        ) from None
