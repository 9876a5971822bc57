"""Grammars that only llama.cpp finds wrong, when it generates."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from gateway_testing.pytest_plugin import StartGateway

ODD = r'root ::= "\q"'
"""The escape is unknown to llama.cpp. The gateway does not look at escapes."""


@pytest.mark.parametrize("process", ["server", "own"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/responses", {"input": "Hi"}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
        ("/completions", {"prompt": "Hi"}),
    ],
)
def test_a_stream_with_a_grammar_that_llama_cpp_refuses_is_a_400(
    gateway_server: StartGateway, path: str, body: dict[str, Any], process: str
) -> None:
    gateway = gateway_server({"models": {"tiny": {"engine": "llamacpp", "process": process}}})
    for stream in (True, False):
        asked = {"model": "tiny", "stream": stream, "structured_outputs": {"grammar": ODD}, **body}
        answer = httpx.post(f"{gateway.base_url}{path}", json=asked, timeout=60)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"].endswith("failed to parse grammar")
