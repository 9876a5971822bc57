"""Large bodies to any route, those of plugins included: none is decoded on the event loop."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.wire import decoding
from gateway_testing.server import run_gateway

PLUGINS = ("gateway_file_search", "gateway_files", "gateway_batches", "gateway_prompts", "gateway_container", "gateway_messages")  # fmt: skip
CONFIG: dict[str, Any] = {
    "models": {"m": {"engine": "scripted"}},
    "tools": {"file_search": {}},
    "server": {"apis": ["messages", "file_search", "files", "batches", "prompts", "containers"]},
}
LARGE = json.dumps({"model": "m", "metadata": {f"key {n}": "value" for n in range(20_000)}})


def test_no_route_decodes_a_large_body_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in PLUGINS:
        pytest.importorskip(name)
    threads: list[int] = []
    decode = decoding.decode_json

    def noted(body: bytes) -> Any:
        threads.append(threading.get_ident())
        return decode(body)

    monkeypatch.setattr(decoding, "decode_json", noted)

    async def thread_of_the_loop() -> int:
        return threading.get_ident()

    on_loop: list[str] = []
    with run_gateway(CONFIG, tmp_path) as gateway:
        loop = gateway.run(thread_of_the_loop())
        root = gateway.base_url.removesuffix("/v1")
        headers = {"content-type": "application/json"}
        with httpx.Client(base_url=root, headers=headers, timeout=120) as client:
            paths = client.get("/openapi.json").json()["paths"]
            for path, methods in paths.items():
                for method in ("post", "put"):
                    if method in methods:
                        threads.clear()
                        url = re.sub(r"\{\w+\}", "x", path)
                        answer = client.request(method, url, content=LARGE)
                        assert answer.status_code < 500, (path, answer.text)
                        if loop in threads:
                            on_loop.append(f"{method} {path}")
    assert on_loop == []
