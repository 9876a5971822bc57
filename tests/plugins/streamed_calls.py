"""Responses that are streamed."""

from __future__ import annotations

from typing import Any

import httpx

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import RunningGateway


def streamed(
    gateway: RunningGateway, model: str, asked: str, **body: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All events of a request, and the response that they fold to."""
    answer = httpx.post(
        f"{gateway.base_url}/responses",
        json={"model": model, "stream": True, "input": asked, **body},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    events = parse_sse(answer.content)
    return events, fold(events)
