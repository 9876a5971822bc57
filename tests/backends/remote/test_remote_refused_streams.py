"""A stream that a server of the model refuses before its first token is answered with an HTTP status, on every API."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway

pytestmark = pytest.mark.anyio
BODIES: dict[str, dict[str, Any]] = {
    "/responses": {"input": "Hi"},
    "/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    "/completions": {"prompt": "Hi"},
    "/messages": {"messages": [{"role": "user", "content": "Hi"}]},
}


@pytest.mark.parametrize(("mode", "status"), [("refuse", 400), ("busy", 429), ("error", 503)])
async def test_a_refused_stream_has_the_status_of_an_error(
    stubs: Callable[..., Awaitable[list[Any]]],
    vocabulary: str,
    tmp_path: Path,
    mode: str,
    status: int,
) -> None:
    [stub] = await stubs(1)
    told = {"urls": [stub.url], "tokenizer": vocabulary, "wait_for_replica": 0.2, "attempts": 1}
    (tmp_path / "template.jinja").write_text(
        "{% for each in messages %}{{ each.content }}{% endfor %}"
    )
    model = {"engine": "remote", "remote": told, "chat_template": "template.jinja"}
    opened = run_gateway({"models": {"m": model}}, tmp_path)
    gateway = await asyncio.to_thread(opened.__enter__)
    try:
        stub.mode = mode
        async with httpx.AsyncClient(timeout=60) as client:
            for api, body in BODIES.items():
                asked = {"model": "m", "stream": True, "max_tokens": 5, **body}
                answer = await client.post(f"{gateway.base_url}{api}", json=asked)
                wanted = 529 if (api, status) == ("/messages", 503) else status
                assert answer.status_code == wanted, (api, answer.text)
                assert answer.json()["error"]["message"]
                if status == 429:
                    assert int(answer.headers["retry-after"]) >= 1
    finally:
        await asyncio.to_thread(opened.__exit__, None, None, None)
