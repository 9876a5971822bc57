"""Replays of background responses whose events are kept in Redis."""

from __future__ import annotations

from typing import Any

import httpx

from gateway_testing.grammar import parse_sse
from gateway_testing.pytest_plugin import StartGateway


def test_a_number_beyond_all_events_is_their_end(
    gateway_server: StartGateway, redis_process: Any
) -> None:
    """The numbers of Redis have 64 bits; a client may send any."""
    config = {
        "server": {"store": "redis"},
        "stores": {"redis": {"url": redis_process.url, "prefix": "replays"}},
        "models": {"m": {"engine": "scripted"}},
    }
    with httpx.Client(base_url=gateway_server(config).base_url, timeout=60) as http:
        body = {"model": "m", "input": "hello", "background": True, "stream": True}
        whole = parse_sse(http.post("/responses", json=body).content)
        url = f"/responses/{whole[0]['response']['id']}?stream=true&starting_after="
        assert parse_sse(http.get(f"{url}{'9' * 30}").content) == []
        assert parse_sse(http.get(f"{url}-{'9' * 30}").content) == whole
