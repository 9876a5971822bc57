"""Pages of other origins, on a server that asks for keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.access.access import hash_key
from gateway_testing.server import run_gateway

GOOD, EVIL = "https://good.example", "https://evil.example"
ASKED = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type",
}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    config = {
        "server": {
            "cors_allow_origins": [GOOD],
            "api_keys": [{"name": "ada", "sha256": hash_key("key")}],
        },
        "models": {"m": {"engine": "scripted"}},
    }
    with (
        run_gateway(config, tmp_path_factory.mktemp("origins")) as running,
        httpx.Client(base_url=running.base_url, timeout=30) as client,
    ):
        yield client


def test_a_preflight_needs_no_key(api: httpx.Client) -> None:
    """Browsers send none with it, whatever the page does."""
    answer = api.options("/responses", headers={"origin": GOOD, **ASKED})
    assert answer.status_code in (200, 204)
    assert answer.headers["access-control-allow-origin"] == GOOD
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "authorization" in answer.headers["access-control-allow-headers"].lower()


def test_a_preflight_of_another_origin_is_not_allowed(api: httpx.Client) -> None:
    answer = api.options("/responses", headers={"origin": EVIL, **ASKED})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize("method", ["OPTIONS", "POST", "GET"])
def test_what_is_no_preflight_needs_a_key(api: httpx.Client, method: str) -> None:
    answer = api.request(method, "/responses", headers={"origin": GOOD})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    ("key", "body", "status"),
    [
        (None, {}, 401),
        ("wrong", {}, 401),
        ("key", {"input": 5}, 400),
        ("key", {"input": "x"}, 200),
        ("key", {"input": "x", "stream": True}, 200),
    ],
)
def test_a_page_may_read_its_answers_and_why_it_was_refused(
    api: httpx.Client, key: str | None, body: Any, status: int
) -> None:
    bearer = {} if key is None else {"authorization": f"Bearer {key}"}
    for origin in (GOOD, EVIL):
        answer = api.post("/responses", json=body, headers={"origin": origin, **bearer})
        assert answer.status_code == status
        allowed = answer.headers.get("access-control-allow-origin")
        assert allowed == (GOOD if origin == GOOD else None)
        if allowed:
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
