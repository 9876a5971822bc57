"""Errors in this API's envelope."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, UnsetType

from gateway.errors import GatewayError, Unsupported
from gateway.protocols import Reply
from gateway.wire.common import Value, encode

THREADS_UNSUPPORTED = "thread_unsupported_request"
OVERLOADED = 529
"""The API's own status for what cannot serve now; its clients try again."""

TOO_LONG = "prompt is too long"
BAD_IMAGE = "Could not process image"
"""The API's own words: its envelope has no codes, and Claude Code goes by them when it shortens the conversation, or leaves out
an image that would otherwise be refused again in each further request."""
_NO_IMAGES = "takes no images"
"""How renderers and engines say that their model reads text alone."""

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


class ThreadsUnsupported(Unsupported):
    """The request wants the server to hold the conversation: 400. The vendor's clients then send all of it themselves."""

    default_code = THREADS_UNSUPPORTED


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
    """The type that goes with an HTTP status."""
    return _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def error_body(error: GatewayError, request_id: str) -> bytes:
    """`error` as JSON; its message begins with the parameter that is at fault, where it does not name it itself."""
    message = error.message
    if error.code == "context_length_exceeded":
        message = f"{TOO_LONG}: {message}"
    else:
        if error.param is not None and error.param not in message:
            message = f"{error.param}: {message}"
        if _NO_IMAGES in message:
            message = f"{BAD_IMAGE}: {message}"
    told = ErrorObject(
        type=error_type(error.status),
        message=message,
        details=(
            ErrorDetails(error_code=THREADS_UNSUPPORTED)
            if isinstance(error, ThreadsUnsupported)
            else UNSET
        ),
    )
    return encode(ErrorEnvelope(error=told, request_id=request_id))


def error_reply(error: GatewayError, request_id: str) -> Reply:
    """`error` as an HTTP answer."""
    return Reply(
        status=OVERLOADED if error.status == 503 else error.status,
        body=error_body(error, request_id),
        headers={**error.headers, "request-id": request_id},
    )
