"""Streams of plugins' APIs that are begun before they are prepared."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway.base.errors import EngineError, GatewayError
from gateway.http.streaming import STREAM_BODY
from gateway.plugins.protocols import Reply, Route, RouteRequest
from gateway_testing.pytest_plugin import StartGateway
from tests.gateway.http.front_api import Api, ApiPlugin
from tests.waiting import wait_until_async


def failed(error: GatewayError) -> bytes:
    return f"failed: {error.message}".encode()


class Handler:
    """Announces a stream, waits until it has begun if it is to, and ends otherwise than with a stream."""

    def __init__(self, outcome: Reply | Exception, *, idle_seconds: float | None) -> None:
        self._outcome = outcome
        self._idle_seconds = idle_seconds

    async def __call__(self, request: RouteRequest) -> Reply:
        request.begin_stream(
            fail=failed,
            idle=b".",
            headers={"x-mine": "1"},
            content_type="text/plain",
            idle_seconds=self._idle_seconds,
        )
        if self._idle_seconds:
            scope: Any = request._request.scope  # type: ignore[attr-defined]
            await wait_until_async(lambda: scope[STREAM_BODY]._writer is not None)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


OUTCOMES = [EngineError("It broke."), ValueError("secret"), Reply(body=b"whole")]
INTERNAL = "The server had an internal error on this request."


@pytest.mark.parametrize(
    ("outcome", "told"),
    [*zip(OUTCOMES, ["It broke.", INTERNAL, INTERNAL], strict=True)],
    ids=["error", "defect", "no stream"],
)
def test_what_ends_a_stream_that_has_begun_is_told_in_it(
    gateway_server: StartGateway,
    outcome: Reply | Exception,
    told: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = ask(gateway_server, Handler(outcome, idle_seconds=0.01))
    assert (answer.status_code, answer.headers["x-mine"]) == (200, "1")
    assert answer.text.lstrip(".") == f"failed: {told}"
    assert answer.text.startswith(".")
    defects = [each for each in caplog.records if each.message == "unexpected error"]
    assert len(defects) == (told == INTERNAL)


@pytest.mark.parametrize("idle_seconds", [None, 0.0, 60.0])
@pytest.mark.parametrize("outcome", OUTCOMES, ids=["error", "defect", "no stream"])
def test_before_it_has_begun_errors_have_their_status(
    gateway_server: StartGateway, outcome: Reply | Exception, idle_seconds: float | None
) -> None:
    async def handle(request: RouteRequest) -> Reply:
        request.begin_stream(fail=failed, idle_seconds=idle_seconds)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    answer = ask(gateway_server, handle)
    assert answer.status_code == (200 if isinstance(outcome, Reply) else 500)
    assert ("x-front" in answer.headers) == isinstance(outcome, Exception)
    assert "failed" not in answer.text


def ask(gateway_server: StartGateway, handle: Any) -> httpx.Response:
    plugin = ApiPlugin(one=Api(Route(method="POST", path="/one", handle=handle)))
    running = gateway_server(
        {"server": {"apis": ["one"]}, "models": {"m": {"engine": "scripted"}}}, plugins=(plugin,)
    )
    return httpx.post(f"{running.base_url.removesuffix('/v1')}/one", json={}, timeout=60)
