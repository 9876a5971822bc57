"""What vLLM's exceptions mean for clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.errors import EngineError, EngineUnavailable, GatewayError
from gateway_vllm.config import VllmConfig

exceptions: Any = pytest.importorskip(
    "vllm.exceptions", reason="vLLM is not installed", exc_type=ImportError
)
# Imported while tests are collected: imports of vLLM warn.
host: Any = pytest.importorskip("gateway_vllm.host", exc_type=ImportError)


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> type[Exception]:
    """The exception of a paused vLLM, which versions before 0.33 do not have: as it is there."""
    kind: type[Exception] | None = getattr(exceptions, "RetryableRequestError", None)
    if kind is None:
        kind = type("RetryableRequestError", (exceptions.VLLMServerError,), {})
        monkeypatch.setattr(host, "_RETRYABLE", kind)
    return kind


def failure(error: Exception) -> GatewayError:
    assert isinstance(error, host.FAILURES), "it is translated"
    answer: GatewayError = host.Host(SimpleNamespace(errored=False), VllmConfig(), None).failure(
        error
    )
    return answer


def test_a_paused_engine_is_a_503_that_may_be_sent_again(paused: type[Exception]) -> None:
    error = failure(paused("the engine is paused"))
    assert type(error) is EngineUnavailable
    assert error.status == 503
    assert error.headers["retry-after"] == "1"
    assert "Retry later" in error.message


def test_another_failure_of_the_server_is_the_requests(paused: type[Exception]) -> None:
    assert type(failure(exceptions.VLLMServerError("boom"))) is EngineError
