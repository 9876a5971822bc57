"""The envelope of errors."""

from __future__ import annotations

from typing import Any

import httpx


def envelope(answer: httpx.Response) -> dict[str, Any]:
    """The error of an answer, checked for OpenAI's shape."""
    body = answer.json()
    assert set(body) == {"error"}
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert answer.headers["x-request-id"]
    assert answer.headers["content-type"].startswith("application/json")
    return error
