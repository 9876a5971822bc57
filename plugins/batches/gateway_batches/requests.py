"""Decodes and validates requests."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Annotated, Final, Literal

from msgspec import Meta

from gateway.sdk import InvalidRequest
from gateway.sdk.wire import (
    JsonObject,
    Value,
    convert,
    decode_metadata,
    decode_object,
    not_among,
    shortened,
)

ENDPOINTS: Final = (
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
)
"""What the lines of a batch may be sent to."""
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_WINDOW: Final = 14 * 86_400


class OutputExpiresAfter(Value, frozen=True, kw_only=True):
    anchor: Literal["created_at"]
    """The creation of the output file."""
    seconds: Annotated[int, Meta(ge=3600, le=2_592_000)]


class CreateBatch(Value, frozen=True, kw_only=True):
    """The body of `POST /v1/batches`."""

    input_file_id: str
    endpoint: str
    completion_window: str
    """`24h`, or another number of seconds, minutes, hours or days up to `14d`."""
    metadata: JsonObject | None = None
    output_expires_after: OutputExpiresAfter | None = None


def create_batch(body: bytes) -> tuple[CreateBatch, dict[str, str] | None, Collection[str]]:
    """The request, its metadata, and the names of parameters that have no effect. Raises `InvalidRequest`."""
    raw = decode_object(body)
    decoded = convert(raw, CreateBatch)
    if decoded.endpoint not in ENDPOINTS:
        raise not_among("endpoint", decoded.endpoint, list(ENDPOINTS))
    given = raw.get("metadata")
    metadata = None if given is None else decode_metadata(given)
    return decoded, metadata, sorted(set(raw) - set(CreateBatch.__struct_fields__))


def window_seconds(window: str) -> int:
    """The length of a completion window. Raises `InvalidRequest`."""
    found = _WINDOW.fullmatch(window)
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_WINDOW:
        raise InvalidRequest(
            f"Invalid 'completion_window': '{shortened(window)}'. It is '24h', or another number of seconds, minutes, hours or "
            "days, such as '90m', up to '14d'.",
            param="completion_window",
            code="invalid_value",
        )
    return seconds
