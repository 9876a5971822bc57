"""A thinking budget on a real model: llama.cpp with the tiny one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import run_gateway

pytest.importorskip("xllamacpp", reason="the engine llamacpp is not installed")


def test_the_tiny_model_answers_after_its_budget(tmp_path: Path) -> None:
    with (
        run_gateway({"models": {"tiny": {"engine": "llamacpp"}}}, tmp_path) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as http,
    ):

        def ask(**fields: Any) -> tuple[str, str, dict[str, Any]]:
            said = {"role": "user", "content": "Think first: what is 2 plus 3?"}
            body = {"model": "tiny", "temperature": 0, "reasoning_effort": "high", "messages": [said], **fields}  # fmt: skip
            answer = http.post("/chat/completions", json=body).json()
            message = answer["choices"][0]["message"]
            return message["reasoning_content"], message["content"], answer["usage"]

        thought, answer, usage = ask()
        assert thought
        assert answer
        cut, after, used = ask(thinking_token_budget=3)
        # A fast engine hands over several tokens at once; it may have ended its reasoning by itself then.
        assert thought.startswith(cut)
        assert after
        assert "think>" not in after
        assert used["prompt_tokens"] == usage["prompt_tokens"]
        reasoning = used["completion_tokens_details"]["reasoning_tokens"]
        assert 3 <= reasoning < used["completion_tokens"]
