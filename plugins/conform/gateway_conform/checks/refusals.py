"""Checking the form of an error."""

from __future__ import annotations

from gateway_conform.client import HttpAnswer, Json
from gateway_conform.outcome import require


def require_error(
    answer: HttpAnswer, *status: int, param: str | None = None, code: str | None = None
) -> Json:
    """The error object of a refusal. Raises `CheckFailed` if `answer` is not a refusal, or if it has another parameter
    or code."""
    expected = " or ".join(map(str, status))
    require(
        answer.status in status, f"status {answer.status}, not {expected}: {answer.body[:200]!r}"
    )
    body = answer.json()
    require(isinstance(body, dict) and isinstance(body.get("error"), dict), f"the body has no error object: {body}")  # fmt: skip
    error = body["error"]
    message = error.get("message")
    require(isinstance(message, str) and message, f"the error has no message: {error}")
    if param is not None:
        found = error.get("param")
        require(
            isinstance(found, str) and found.startswith(param),
            f"the error's param is {found!r}, not {param!r}",
        )
    if code is not None:
        require(
            error.get("code") == code, f"the error's code is {error.get('code')!r}, not {code!r}"
        )
    require("Traceback" not in error["message"], "the message has a stack trace")
    return error
