"""One server with models that rerank, that embed and that generate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway

CONFIG: dict[str, Any] = {
    "server": {"max_rerank_documents": 8, "max_rerank_bytes": 2000},
    "models": {
        "ranks": {
            "engine": "scripted",
            "aliases": ["rerank-v3.5"],
            "max_model_len": 90,
            "scripted": {
                "task": "rerank",
                "adapters": ["french"],
                "rules": [
                    {"when": "too much", "error": {"status": 429, "message": "Slow down."}},
                    {"when": "be slow", "delay_ms": 120000},
                    {"when": "break", "finish": "error"},
                ],
            },
        },
        "busy": {
            "engine": "scripted",
            "max_running": 1,
            "max_waiting": 1,
            "scripted": {
                "task": "rerank",
                "rules": [{"when": "be slow", "delay_ms": 120000}],
            },
        },
        "words": {"engine": "scripted", "scripted": {"task": "generate"}},
        "vectors": {"engine": "scripted", "scripted": {"task": "embed"}},
    },
}


@pytest.fixture(scope="module")
def scoring_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("scoring")) as gateway:
        yield gateway


@pytest.fixture
def raw(scoring_server: RunningGateway) -> Iterator[httpx.Client]:
    root = scoring_server.base_url.removesuffix("/v1")
    with httpx.Client(base_url=root, timeout=60) as client:
        yield client
