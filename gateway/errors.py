"""Every error that the gateway raises on purpose.

A class carries its HTTP meaning (status, `type`, `code`); one handler in `gateway.app` turns any of them into OpenAI's
envelope, and the run loop turns any of them into the `error` of a failed response. Plugins raise these, or subclasses.
"""

from __future__ import annotations

from typing import ClassVar


class GatewayError(Exception):
    """Base of all errors with an HTTP meaning.

    `message` is for the person who sent the request: it says what was wrong and what to do. `param` names the request's
    parameter as a path (`input[3].content[0].text`), or is None. `code` is OpenAI's machine-readable code, or None.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else self.default_code
        self.headers = headers or {}


class InvalidRequest(GatewayError):
    """The request cannot be honoured as it stands: 400."""

    status = 400
    type = "invalid_request_error"


class Unsupported(InvalidRequest):
    """The request is well-formed, and asks for something that this gateway, or the chosen engine, does not do: 400."""

    default_code = "unsupported_parameter"


class AuthenticationError(GatewayError):
    """No API key, or a wrong one: 401."""

    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class PermissionDenied(GatewayError):
    """A known key that may not do this: 403."""

    status = 403
    type = "permission_error"


class NotFound(GatewayError):
    """No such object: 404."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class ModelNotFound(NotFound):
    """The request names a model that is not served: 404."""

    default_code = "model_not_found"


class Conflict(GatewayError):
    """The object is not in a state that allows this: 409."""

    status = 409
    type = "invalid_request_error"
    default_code = "conflict"


class PayloadTooLarge(GatewayError):
    """The body is larger than the server's limit: 413."""

    status = 413
    type = "invalid_request_error"
    default_code = "payload_too_large"


class RateLimited(GatewayError):
    """A limit on running and waiting requests is reached: 429. `retry_after` is in whole seconds."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"

    def __init__(self, message: str, *, retry_after: int = 1, param: str | None = None) -> None:
        super().__init__(message, param=param, headers={"retry-after": str(retry_after)})


class EngineError(GatewayError):
    """The engine failed on this request; others may succeed: 500."""

    status = 500
    default_code = "server_error"


class EngineUnavailable(GatewayError):
    """The engine is dead, unreachable, or shutting down: 503."""

    status = 503
    type = "service_unavailable_error"
    default_code = "engine_unavailable"


class StoreUnavailable(GatewayError):
    """The store does not answer: 503. Requests with `store: false` go on."""

    status = 503
    type = "service_unavailable_error"
    default_code = "store_unavailable"


class ServerShuttingDown(GatewayError):
    """The server stops and takes nothing new, or ends what it still runs: 503."""

    status = 503
    type = "service_unavailable_error"
    default_code = "server_shutting_down"


class DeadlineExceeded(GatewayError):
    """The response took longer than the server allows: 504."""

    status = 504
    type = "timeout_error"
    default_code = "deadline_exceeded"


def too_long(seconds: float) -> DeadlineExceeded:
    """What a response ends with that has taken `seconds`, and may take no more."""
    return DeadlineExceeded(
        f"The response took longer than {seconds:g} seconds, which is this server's limit."
    )


class ConfigurationError(Exception):
    """A mistake in configuration or installation. Its text is one sentence: what, where, and what would be right."""
