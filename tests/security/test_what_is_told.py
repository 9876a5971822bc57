"""What the server tells of itself, and to whom."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.config import load_config
from gateway.errors import ConfigurationError
from gateway.runtime.access import hash_key
from gateway.testing.server import RunningGateway, run_gateway

NAMES = ("ada", "prometheus")
SCENARIO = Path(__file__).parents[1] / "e2e" / "scenario.json"
MODELS: dict[str, Any] = {"m": {"engine": "scripted", "path": str(SCENARIO)}}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    keys = [{"name": name, "sha256": hash_key(name)} for name in NAMES]
    server = {"api_keys": keys, "metrics": ["prometheus"]}
    with run_gateway(
        {"server": server, "models": MODELS}, tmp_path_factory.mktemp("told")
    ) as running:
        yield running


def get(gateway: RunningGateway, path: str, key: str | None) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    return httpx.get(gateway.base_url.removesuffix("/v1") + path, headers=headers)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "//metrics", "/%6detrics", "/v1/../metrics"])  # fmt: skip
def test_metrics_are_shown_to_the_keys_that_are_named(gateway: RunningGateway, path: str) -> None:
    for key in (None, "wrong", "ada"):
        answer = get(gateway, path, key)
        assert answer.status_code in (401, 403, 404)
        assert b"gateway_requests" not in answer.content
    assert get(gateway, "/metrics", "ada").json()["error"]["type"] == "permission_error"
    assert b"gateway_requests" in get(gateway, "/metrics", "prometheus").content


def test_probes_need_no_key(gateway: RunningGateway) -> None:
    assert get(gateway, "/health", None).status_code == 200
    assert get(gateway, "/ready", None).status_code == 200


@pytest.mark.parametrize("metrics", ["[]", '["nobody"]'])
def test_metrics_for_a_key_that_is_not_there_stop_the_start(tmp_path: Path, metrics: str) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(f"[server]\nmetrics = {metrics}\n")
    with pytest.raises(ConfigurationError, match="metrics"):
        load_config(file, {})


def test_models_are_listed_without_paths(gateway: RunningGateway) -> None:
    for path in ("/v1/models", "/v1/models/m"):
        text = get(gateway, path, "ada").text
        assert str(SCENARIO.parent) not in text
        assert "scenario" not in text
    assert get(gateway, "/v1/models/m", "ada").json()["root"] == "m"
