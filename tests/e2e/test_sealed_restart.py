"""A gateway without `reasoning_keys`: what it has sealed is opened by the next one with its store."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway

RULES = [{"when": "replaced by a summary", "pieces": [{"text": "They spoke of foxes."}]}]


@pytest.mark.parametrize("lasts", [True, False])
def test_a_compacted_session_goes_on_after_a_restart(tmp_path: Path, lasts: bool) -> None:
    config: dict[str, Any] = {"models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}}}
    if lasts:
        config["stores"] = {"sqlite": {"path": str(tmp_path / "store.sqlite")}}
    turn = [{"role": "user", "content": "foxes"}, {"role": "assistant", "content": "yes"}]
    with run_gateway(config, tmp_path) as gateway:
        made = httpx.post(
            f"{gateway.base_url}/responses/compact", json={"model": "m", "input": turn}, timeout=60
        )
        assert made.status_code == 200, made.text
    items = [*made.json()["output"], {"role": "user", "content": "and now?"}]
    with run_gateway(config, tmp_path) as gateway:
        answer = httpx.post(
            f"{gateway.base_url}/responses", json={"model": "m", "input": items}, timeout=60
        )
        engine: Any = gateway.services.models["m"].engine
        if not lasts:
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "invalid_encrypted_content"
            return
        assert answer.status_code == 200, answer.text
        prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "They spoke of foxes." in prompt
    for path in tmp_path.glob("store.sqlite*"):
        if path.is_file():
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077 or path.name.endswith(".lock")
