"""All errors that the gateway raises deliberately.

A class defines its HTTP meaning (status, `type`, `code`). One handler in `gateway.http.app` converts errors to OpenAI's
error format, and the run loop converts them to the `error` of a failed response. Plugins raise these, or subclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import ClassVar, Final, TypeAlias

ParamPath: TypeAlias = tuple[str | int, ...]
"""The position of a parameter in a request: names and indices, outermost first, such as
`("input", 3, "content", 0, "text")`. Empty for the request as a whole."""


def param_text(path: ParamPath) -> str:
    """Format `path` for clients: `input[3].content[0].text`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


def param_path(param: str | ParamPath) -> ParamPath:
    """Return `param` as a path. A string names a top-level parameter; an empty string is the request as a whole."""
    if isinstance(param, str):
        return (param,) if param else ()
    return param


RETRY_SOON: Final[Mapping[str, str]] = {"retry-after": "1"}
"""Headers of an error after which the client should retry in a second."""


class GatewayError(Exception):
    """Base class of all errors with an HTTP meaning.

    `message` addresses the sender of the request: it says what was wrong and what to do. `at` is the path of the
    parameter at fault. The constructor's `param` is such a path, or the name of a top-level parameter. `code` is
    OpenAI's machine-readable code, or None.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str | None] = None
    default_headers: ClassVar[Mapping[str, str]] = {}
    """Headers of the answer if the constructor gets none."""

    def __init__(
        self,
        message: str,
        *,
        param: str | ParamPath = (),
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.at = param_path(param)
        self.code = code if code is not None else self.default_code
        self.headers = dict(self.default_headers) if headers is None else headers

    @property
    def param(self) -> str | None:
        """`at` as text for clients (`input[3].content[0].text`); None if it is empty."""
        return param_text(self.at) if self.at else None


def renamed_params(
    rename: Callable[[ParamPath], ParamPath],
) -> AbstractContextManager[None]:
    """A context manager that applies `rename` to the parameter of a `GatewayError` that is raised inside."""
    return _RenamedBy(rename)


class RenamedParams(AbstractContextManager[None]):
    """A context manager that renames the parameter of a `GatewayError` that is raised inside. It may be entered
    repeatedly.

    The gateway's errors name positions in a turn (`("input", 3)`, `("tools", 0, "parameters")`).
    `gateway.generation.error_params` has a subclass for each API, which translates them to positions in the client's request.
    """

    __slots__ = ()

    def renamed(self, path: ParamPath) -> ParamPath:
        """The position in the client's request that corresponds to `path`; empty if there is none."""
        raise NotImplementedError

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, GatewayError):
            error.at = self.renamed(error.at)


class _RenamedBy(RenamedParams):
    __slots__ = ("_rename",)

    def __init__(self, rename: Callable[[ParamPath], ParamPath]) -> None:
        self._rename = rename

    def renamed(self, path: ParamPath) -> ParamPath:
        return self._rename(path)


class InvalidRequest(GatewayError):
    """The request is invalid: 400."""

    status = 400
    type = "invalid_request_error"


class Unsupported(InvalidRequest):
    """The request is valid, but the gateway or the chosen engine does not support it: 400."""

    default_code = "unsupported_parameter"


class AuthenticationError(GatewayError):
    """The API key is missing or wrong: 401."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"


class PermissionDenied(GatewayError):
    """The API key is valid, but does not permit this operation: 403."""

    status = 403
    type = "invalid_request_error"


class NotFound(GatewayError):
    """No such object: 404."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"


class ModelNotFound(NotFound):
    """The request names a model that is not served: 404."""

    default_code = "model_not_found"


class MethodNotAllowed(GatewayError):
    """The path exists but does not support this method: 405."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"


class Conflict(GatewayError):
    """The object is not in a state that allows this: 409."""

    status = 409
    type = "invalid_request_error"
    default_code = "conflict"


class ConversationFull(InvalidRequest):
    """The conversation would exceed the server's limit: 400. Not 409, after which OpenAI's SDKs would retry."""

    default_code = "conversation_too_large"

    @classmethod
    def beyond(cls, items: int, size: int) -> ConversationFull:
        """The error for limits of `items` items and `size` bytes in total."""
        return cls(
            f"With these items the conversation would be larger than this server's limit of {items} items and {size} bytes. "
            "Delete some of its items, or go on in a new conversation."
        )


class PayloadTooLarge(GatewayError):
    """The body is larger than the server's limit: 413."""

    status = 413
    type = "invalid_request_error"
    default_code = "payload_too_large"


class UnsupportedMediaType(GatewayError):
    """The content type or encoding of the body is not supported: 415."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_media_type"


class RateLimited(GatewayError):
    """A limit on running or queued requests is reached: 429. `retry_after` is in whole seconds."""

    status = 429
    type = "rate_limit_error"
    default_code = "rate_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        retry_after: int = 1,
        param: str | ParamPath = (),
        retryable: bool = True,
    ) -> None:
        """`retryable`: whether the same request may be admitted later. If False, OpenAI's SDKs do not retry."""
        headers = {"retry-after": str(retry_after)}
        if not retryable:
            headers["x-should-retry"] = "false"
        super().__init__(message, param=param, headers=headers)


class RequestLimitReached(RateLimited):
    """The API key's limit on requests per minute, or on concurrent ones, is reached: 429."""

    type = "requests"


class TokenLimitReached(RateLimited):
    """The API key's limit on tokens is reached: 429."""

    type = "tokens"


class EngineError(GatewayError):
    """The engine failed on this request; other requests may succeed: 500."""

    status = 500
    default_code = "server_error"


class EngineUnavailable(GatewayError):
    """The engine is dead, unreachable, or shutting down: 503."""

    status = 503
    type = "service_unavailable_error"
    default_code = "engine_unavailable"
    default_headers: ClassVar[Mapping[str, str]] = RETRY_SOON


class StoreUnavailable(GatewayError):
    """The store does not answer: 503. Requests with `store: false` are not affected."""

    status = 503
    type = "service_unavailable_error"
    default_code = "store_unavailable"
    default_headers: ClassVar[Mapping[str, str]] = RETRY_SOON


class ServerShuttingDown(GatewayError):
    """The server is shutting down, rejects new requests and ends running ones: 503."""

    status = 503
    type = "service_unavailable_error"
    default_code = "server_shutting_down"
    default_headers: ClassVar[Mapping[str, str]] = RETRY_SOON


class DeadlineExceeded(GatewayError):
    """The response took longer than the server allows: 504."""

    status = 504
    type = "timeout_error"
    default_code = "deadline_exceeded"


class ConfigurationError(Exception):
    """A mistake in configuration or installation. Its text is one sentence that says what is wrong, where, and how to
    fix it."""
