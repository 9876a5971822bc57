"""The tools that `tool_choice` allows are as few as those of a request: each is looked for among all of them."""

from __future__ import annotations

from pathlib import Path

import httpx

from gateway.wire.field_errors import MAX_TOOLS
from gateway_testing.server import run_gateway


def test_allowed_tools_are_counted(tmp_path: Path) -> None:
    tool = {"type": "function", "name": "f"}
    body = {"model": "m", "input": "hi", "tools": [{**tool, "parameters": {}}]}
    with run_gateway({"models": {"m": {"engine": "scripted"}}}, tmp_path) as gateway:
        for number, status in ((MAX_TOOLS, 200), (MAX_TOOLS + 1, 400)):
            choice = {"type": "allowed_tools", "mode": "auto", "tools": [tool] * number}
            url = f"{gateway.base_url}/responses"
            answer = httpx.post(url, json={**body, "tool_choice": choice}, timeout=120)
            assert answer.status_code == status
    assert answer.json()["error"]["param"] == "tool_choice.tools"
