"""The body of a request is kept for as long as its response may have to be run again, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.plugins.protocols import StoredResponse
from gateway_testing.server import RunningGateway
from tests.waiting import wait_until


def config(store: str, folder: Path) -> dict[str, Any]:
    rules = [{"when": "wait", "delay_ms": 600_000, "pieces": [{"text": "late"}]}]
    return {
        "server": {"store": store, "rerun_lost": True, "grace_period": 0},
        "stores": {"sqlite": {"path": str(folder / "store.sqlite")}} if store == "sqlite" else {},
        "models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}},
    }


def stored(gateway: RunningGateway, response_id: str) -> StoredResponse:
    store = gateway.services.store
    assert store is not None
    record = gateway.run(store.get(response_id))
    assert record is not None
    return record


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_finished_response_has_its_input_once(
    gateway_server: Callable[..., RunningGateway], tmp_path: Path, store: str
) -> None:
    gateway = gateway_server(config(store, tmp_path))
    with gateway.client() as client:

        def until(response_id: str, status: str) -> StoredResponse:
            wait_until(lambda: client.responses.retrieve(response_id).status == status, status)
            return stored(gateway, response_id)

        made = client.responses.create(model="m", input="large " * 100, background=True)
        record = until(made.id, "completed")
        assert record.request is None
        assert "large" in str(record.input)
        waiting = client.responses.create(model="m", input="wait", background=True)
        record = until(waiting.id, "in_progress")
        assert record.request is not None
        assert b'"wait"' in record.request
        client.responses.cancel(waiting.id)
        assert until(waiting.id, "cancelled").request is None
