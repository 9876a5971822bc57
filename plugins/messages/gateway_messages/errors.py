"""Errors in the format of this API."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from gateway.sdk import GatewayError, Reply
from gateway.sdk.wire import Value, encode

THREADS_UNSUPPORTED = "thread_unsupported_request"
"""The error code with which the vendor's clients send the whole conversation."""
OVERLOADED = 529
"""The API's status for an overloaded server; clients retry."""

TOO_LONG = "prompt is too long"
BAD_IMAGE = "Could not process image"
"""The API's own wording. Its errors have no codes, so Claude Code matches this text when it shortens the
conversation, or drops an image that would be refused again in each further request."""
_NO_IMAGES = "takes no images"
"""Part of the error message of renderers and engines whose model accepts only text."""

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class ErrorDetails(Value, frozen=True, kw_only=True):
    error_code: str


class ErrorObject(Value, frozen=True, kw_only=True):
    type: str
    message: str
    details: ErrorDetails | UnsetType = UNSET


class ErrorEnvelope(Value, frozen=True, kw_only=True):
    type: Literal["error"] = "error"
    error: ErrorObject
    request_id: str


def error_type(status: int) -> str:
    """The error type for an HTTP status."""
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def error_body(error: GatewayError, request_id: str) -> bytes:
    """`error` as JSON. The message is prefixed with the parameter at fault, unless it already names it."""
    message = error.message
    if error.code == "context_length_exceeded":
        message = f"{TOO_LONG}: {message}"
    else:
        if error.param is not None and error.param not in message:
            message = f"{error.param}: {message}"
        if _NO_IMAGES in message:
            message = f"{BAD_IMAGE}: {message}"
    error_object = ErrorObject(
        type=error_type(error.status),
        message=message,
        details=(
            ErrorDetails(error_code=THREADS_UNSUPPORTED)
            if error.code == THREADS_UNSUPPORTED
            else UNSET
        ),
    )
    return encode(ErrorEnvelope(error=error_object, request_id=request_id))


def error_reply(error: GatewayError, request_id: str) -> Reply:
    """`error` as an HTTP response."""
    return Reply(
        status=OVERLOADED if error.status == 503 else error.status,
        body=error_body(error, request_id),
        headers={**error.headers, "request-id": request_id},
    )
