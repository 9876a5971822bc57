"""The paths of probes, which need no key and accept any host."""

from __future__ import annotations

import httpx
import pytest

from gateway_testing.pytest_plugin import StartGateway


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/health/", "/ready", "/ready/"])
def test_probes_need_no_key_with_or_without_a_final_slash(
    gateway_server: StartGateway, path: str, method: str
) -> None:
    server = {
        "api_keys": [{"name": "a", "sha256": "0" * 64}],
        "allowed_hosts": ["gateway.example"],
    }
    gateway = gateway_server({"server": server, "models": {"m": {"engine": "scripted"}}})
    root = gateway.base_url.removesuffix("/v1")
    answer = httpx.request(method, f"{root}{path}", headers={"host": "10.0.0.7:8000"})
    assert answer.status_code == 200
    assert httpx.get(f"{root}/v1/models/").status_code == 401
