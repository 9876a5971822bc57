"""The gateway as a Ray Serve application, on a local Ray cluster: two replicas that share a Redis."""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None,
        reason='Ray is not installed here: pip install "ray[serve]"',
    ),
    # Ray warns of itself, and of what it will do otherwise.
    pytest.mark.filterwarnings("default", "ignore::DeprecationWarning"),
]

FOLDER = Path(__file__).parents[2] / "examples" / "deploy" / "ray"
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_AUTH_MODE": "disabled",  # it would leave a token in the home folder
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
SLOW = (
    '[{when = "slowly", delay_ms = 20, repeat = 100, pieces = [{text = "tick "}]},'
    ' {when = "for ages", delay_ms = 20, repeat = 10000, pieces = [{text = "tick "}]}]'
)


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], str]]:
    """Runs the example's own application with so many replicas, and gives its address."""
    from gateway_testing.free_ports import free_port
    from gateway_testing.redis_process import RedisProcess

    patch = pytest.MonkeyPatch()
    redis = RedisProcess(tmp_path_factory.mktemp("redis"))
    settings = {
        "GATEWAY_STORES__REDIS__URL": redis.url,
        # A second model, slow enough to be left in the middle.
        "GATEWAY_MODELS__SCRIPTED__ENGINE": "scripted",
        "GATEWAY_MODELS__SCRIPTED__SCRIPTED__RULES": SLOW,
    }
    for name, value in {**ENVIRONMENT, **settings}.items():
        patch.setenv(name, value)
    patch.syspath_prepend(str(FOLDER))
    # The cluster's processes look for the example where this one does.
    patch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")]))
    import ray
    from ray import serve

    port = free_port()
    ray.init(
        num_cpus=4, include_dashboard=False, object_store_memory=80_000_000, log_to_driver=False
    )
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": port, "request_timeout_s": 600})
        import gateway_on_serve

        def run(replicas: int) -> str:
            arguments = {"config": str(FOLDER / "gateway.toml"), "replicas": str(replicas)}
            serve.run(gateway_on_serve.build(arguments), name="gateway", route_prefix="/")
            return f"http://127.0.0.1:{port}"

        yield run
        serve.shutdown()
    finally:
        ray.shutdown()
        redis.kill()
        patch.undo()
        sys.modules.pop("gateway_on_serve", None)


@pytest.fixture(scope="module")
def url(deploy: Callable[[int], str]) -> str:
    return deploy(2)


def post(url: str, **body: Any) -> Any:
    answer = httpx.post(f"{url}/v1/responses", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def replicas_asked(url: str, times: int) -> dict[str, float]:
    """By the process's own count of requests: `/metrics` is each replica's own."""
    found: dict[str, float] = {}
    for _ in range(times):
        for line in httpx.get(f"{url}/metrics").text.splitlines():
            if line.startswith("gateway_running_requests{"):
                found[line.partition(" ")[0]] = float(line.split()[-1])
    return found


def test_it_is_ready_and_lists_its_models(url: str) -> None:
    assert httpx.get(f"{url}/ready").status_code == 200
    models = httpx.get(f"{url}/v1/models").json()["data"]
    assert {model["id"] for model in models} == {"tiny", "scripted"}


def test_errors_keep_openais_envelope(url: str) -> None:
    answer = httpx.post(f"{url}/v1/responses", json={"model": "nobody", "input": "x"})
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_a_stream_comes_as_it_is_made(url: str) -> None:
    """And not when it is over: half of it has to be there long before the end."""
    body = {"model": "scripted", "input": "slowly", "stream": True}
    arrivals: list[float] = []
    whole = b""
    with httpx.stream("POST", f"{url}/v1/responses", json=body, timeout=60) as answer:
        for part in answer.iter_bytes():
            arrivals.append(time.monotonic())
            whole += part
    assert fold(parse_sse(whole))["status"] == "completed"
    assert arrivals[-1] - arrivals[0] > 1.5
    assert len(arrivals) > 50


def test_any_replica_continues_what_any_other_stored(url: str) -> None:
    from ray import serve

    running = serve.status().applications["gateway"].deployments["gateway"].replica_states
    assert {str(state): count for state, count in running.items()} == {"RUNNING": 2}
    with ThreadPoolExecutor(8) as pool:
        first = list(
            pool.map(lambda _: post(url, model="tiny", input="My name is Alice."), range(16))
        )
        again = list(
            pool.map(
                lambda before: post(
                    url, model="tiny", input="What is my name?", previous_response_id=before["id"]
                ),
                first,
            )
        )
    assert all("Alice" in str(response["output"]) for response in again)


def test_a_background_response_is_cancelled_at_whichever_replica_is_asked(url: str) -> None:
    for _ in range(6):
        started = post(url, model="scripted", input="for ages", background=True)
        place = f"{url}/v1/responses/{started['id']}"
        assert httpx.post(f"{place}/cancel", timeout=30).json()["status"] == "cancelled"
        assert httpx.get(place).json()["status"] == "cancelled"


def test_a_client_that_leaves_frees_the_engine(url: str) -> None:
    body = {"model": "scripted", "input": "for ages", "stream": True}
    with httpx.stream("POST", f"{url}/v1/responses", json=body, timeout=60) as answer:
        next(answer.iter_bytes())
    # Twenty looks reach both replicas; the stream itself would run for minutes.
    wait_until(lambda: not any(replicas_asked(url, 20).values()), "the end of the stream")


def test_a_replica_that_goes_away_ends_its_streams_first(
    url: str, deploy: Callable[[int], str]
) -> None:
    body = {"model": "scripted", "input": "slowly", "stream": True}
    begun = threading.Barrier(9)

    def stream(_: int) -> str:
        whole = b""
        with httpx.stream("POST", f"{url}/v1/responses", json=body, timeout=120) as answer:
            for number, part in enumerate(answer.iter_bytes()):
                whole += part
                if number == 0:
                    begun.wait(60)
        status: str = fold(parse_sse(whole))["status"]
        return status

    with ThreadPoolExecutor(8) as pool:
        statuses = pool.map(stream, range(8))
        begun.wait(60)
        deploy(1)
        assert list(statuses) == ["completed"] * 8
