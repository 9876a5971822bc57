"""Conversion of plain JSON to Structs, with errors that name the parameter as OpenAI does.

A null counts as missing wherever a Struct describes the object: SDKs dump their models with nulls for missing fields
and send them back. In free-form JSON (schemas, arguments) nulls are kept.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Mapping
from typing import Any, TypeVar, get_args

import msgspec

from gateway.base.errors import InvalidRequest, ParamPath, param_path
from gateway.wire.common import Tagged, type_of
from gateway.wire.conversion_errors import explain
from gateway.wire.field_errors import MAX_ITEMS, listed, missing, name_type, not_among, wrong_type
from gateway.wire.json_pieces import decode_pieces
from gateway.wire.json_text import MAX_DEPTH, is_too_deep

T = TypeVar("T")

MAX_VALUES = 1_000_000
"""Maximum number of commas in a body, an upper bound for its values. Decoding blocks other requests."""
_FREE_FORM = frozenset(
    {
        "parameters",
        "output_schema",
        "input_schema",
        "schema",
        "arguments",
        "annotations",
        "attributes",
        "metadata",
        "client_metadata",
        "chat_template_kwargs",
        "vllm_xargs",
        "kv_transfer_params",
        "mm_processor_kwargs",
        "json",
        "guided_json",
        "structural_tag",
    }
)
_FREE_FORM_LISTS = frozenset({"documents"})
_SURROGATE = re.compile(rb"\\u[dD][89abAB]")


def decode_json(body: bytes) -> Any:
    """Decode plain JSON. Raises `InvalidRequest` for anything that is not JSON in UTF-8, or is nested too deeply.

    Lone surrogates (escaped or not), NaN and infinities are rejected here, so that all text can be encoded again. A byte
    order mark, which some clients on Windows send, is ignored.
    """
    body = body.removeprefix(BOM_UTF8)
    if not body.strip():
        raise InvalidRequest("The request body is empty. Send a JSON object.", code="invalid_json")
    if len(body) > MAX_VALUES and body.count(b",") > MAX_VALUES:
        raise InvalidRequest(
            f"The request body has more than {MAX_VALUES} commas. Send fewer values, or long texts as files.",
            code="invalid_json",
        )
    try:
        raw = _decoded(body)
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"The request body is not valid UTF-8: {error.reason}.", code="invalid_json"
        ) from None
    except RecursionError:
        raise _nested_too_deeply() from None
    except msgspec.MsgspecError as error:
        if body.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise InvalidRequest(
                "The request body is UTF-16. Send JSON in UTF-8.", code="invalid_json"
            ) from None
        raise InvalidRequest(
            f"We could not parse the JSON body of your request: {_problem(error, body)}.",
            code="invalid_json",
        ) from None
    if body.count(b"{") + body.count(b"[") > MAX_DEPTH and is_too_deep(raw):
        raise _nested_too_deeply()
    return raw


def _problem(error: msgspec.MsgspecError, body: bytes) -> str:
    """Describe what is wrong with `body`. Explains lone surrogates: clients in JavaScript cut texts within an emoji."""
    text = str(error)
    # Near the end of the text, where no second escape would fit, msgspec calls it truncated.
    if "surrogate" in text or ("truncated" in text and _SURROGATE.search(body[-16:])):
        return f"{text}. A text has half of a surrogate pair: it was cut within a character, such as an emoji"
    return text


def _decoded(body: bytes) -> Any:
    try:
        return decode_pieces(body)
    except (UnicodeDecodeError, RecursionError, msgspec.MsgspecError):
        return msgspec.json.decode(
            body
        )  # raises an error that names the position in the whole body


def decode_object(body: bytes) -> dict[str, Any]:
    """Decode like `decode_json`, and reject anything but an object of up to `MAX_ITEMS` parameters."""
    raw = decode_json(body)
    if not isinstance(raw, dict):
        raise InvalidRequest(
            f"The request body must be a JSON object, but it is {name_type(raw)}.",
            code="invalid_json",
        )
    if len(raw) > MAX_ITEMS:
        raise InvalidRequest(
            f"The request body has too many properties. Expected at most {MAX_ITEMS}, but got {len(raw)} instead.",
            code="object_above_max_properties",
        )
    return raw


def _nested_too_deeply() -> InvalidRequest:
    return InvalidRequest(
        f"The request body is nested more than {MAX_DEPTH} levels deep.", code="invalid_json"
    )


def convert(raw: Any, into: type[T], param: str | ParamPath = ()) -> T:
    """Convert `raw` to `into`. Raises `InvalidRequest` with the path of the invalid value, below `param`."""
    try:
        return msgspec.convert(raw, into)
    except msgspec.ValidationError:
        pruned = without_nulls(raw)
    try:
        return msgspec.convert(pruned, into)
    except msgspec.ValidationError as error:
        raise explain(str(error), pruned, into, param) from None


def without_nulls(raw: Any) -> Any:
    """`raw` without the keys whose value is null, except in free-form JSON."""
    if type(raw) is dict:
        return {
            key: value if _is_free_form(key, value) else without_nulls(value)
            for key, value in raw.items()
            if value is not None
        }
    if type(raw) is list:
        return [without_nulls(value) for value in raw]
    return raw


def _is_free_form(key: Any, value: Any) -> bool:
    kind = type(value)
    return (kind is dict and key in _FREE_FORM) or (kind is list and key in _FREE_FORM_LISTS)


def members(union: Any) -> dict[str, type[Any]]:
    """The members of a union of tagged Structs, by `type`."""
    found: dict[str, type[Any]] = {}
    for cls in get_args(union):
        assert issubclass(cls, Tagged), cls
        assert type_of(cls) not in found, f"two members of a union are {type_of(cls)}"
        found[type_of(cls)] = cls
    return found


def one_of(table: Mapping[str, type[T]], raw: Any, param: str | ParamPath) -> type[T]:
    """The union member that `raw` names with `type`. Raises `InvalidRequest` that lists the members."""
    if not isinstance(raw, dict):
        raise wrong_type(param, "an object", raw)
    kind = raw.get("type")
    place = (*param_path(param), "type")
    if kind is None:
        raise missing(place, f"It is one of: {listed(table)}.")
    if not isinstance(kind, str):
        raise wrong_type(place, "a string", kind)
    cls = table.get(kind)
    if cls is None:
        raise not_among(place, kind, table)
    return cls
