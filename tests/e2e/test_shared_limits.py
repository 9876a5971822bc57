"""Two replicas on one Redis: limits hold for both together, and a hung Redis refuses in time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.access import hash_key
from gateway_testing.redis_process import RedisProcess
from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

BODY = {"model": "m", "prompt": "hi", "max_tokens": 5}


def serve(stack: ExitStack, redis: RedisProcess, folder: Path, **server: Any) -> RunningGateway:
    keys = [
        {"name": "ada", "sha256": hash_key("sk-ada"), "max_concurrent_requests": 100, "tokens_per_day": 10_000},
        {"name": "bob", "sha256": hash_key("sk-bob"), "tokens_per_day": 100},
        {"name": "free", "sha256": hash_key("sk-free")},
    ]  # fmt: skip
    config = {
        "server": {"store": "redis", "api_keys": keys, "limits_timeout": 30, **server},
        "stores": {"redis": {"url": redis.url, "connect_timeout": 30}},
        "models": {"m": {"engine": "scripted"}},
    }
    folder.mkdir()
    return stack.enter_context(run_gateway(config, folder))


def send(gateway: RunningGateway, name: str) -> httpx.Response:
    headers = {"authorization": f"Bearer sk-{name}"}
    return httpx.post(f"{gateway.base_url}/completions", json=BODY, headers=headers, timeout=60)


def test_replicas_count_together(redis: RedisProcess, tmp_path: Path) -> None:
    with ExitStack() as stack:
        gateways = [serve(stack, redis, tmp_path / str(number)) for number in range(2)]
        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(lambda n: send(gateways[n % 2], "bob"), range(60)))
        good = [answer for answer in answers if answer.status_code == 200]
        assert {answer.status_code for answer in answers} == {200, 429}
        used = sum(answer.json()["usage"]["total_tokens"] for answer in good)
        while (answer := send(gateways[used % 2], "bob")).status_code == 200:
            used += answer.json()["usage"]["total_tokens"]
        assert 50 < used <= 100
        refusal = next(answer for answer in answers if answer.status_code == 429)
        assert refusal.json()["error"]["type"] == "tokens"


@pytest.mark.parametrize(("unavailable", "status"), [("refuse", 503), ("count_here", 200)])
def test_a_hung_redis_is_waited_for_once_and_not_long(
    tmp_path: Path, unavailable: str, status: int
) -> None:
    own = RedisProcess(tmp_path)
    with ExitStack() as stack:
        stack.callback(own.kill)
        gateway = serve(
            stack, own, tmp_path / "gateway", limits_timeout=0.5, limits_unavailable=unavailable
        )
        wait_until(lambda: send(gateway, "ada").status_code == 200)
        own.pause()
        try:
            answers = [send(gateway, "ada") for _ in range(3)]
            assert [answer.status_code for answer in answers] == [status] * 3
            if status == 503:
                assert answers[0].json()["error"]["code"] == "store_unavailable"
                assert answers[0].headers["retry-after"] == "1"
            assert send(gateway, "free").status_code == 200
        finally:
            own.resume()
        wait_until(lambda: send(gateway, "ada").status_code == 200)
