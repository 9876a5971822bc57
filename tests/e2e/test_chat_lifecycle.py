"""Chat streams while the server stops, and the whole way through a real model."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from tests.e2e.conftest import LiveStream

pytestmark = pytest.mark.slow

SLOW = {
    "model": "scripted",
    "stream": True,
    "messages": [{"role": "user", "content": "never stop"}],
}
TINY = """
[server]
port = {port}

[models.tiny]
engine = "llamacpp"
"""


@pytest.mark.parametrize("n", [1, 3])
def test_a_chat_that_outlasts_the_grace_period_ends_with_an_error(
    start_server: Any, n: int
) -> None:
    server = start_server(grace=0.3)
    stream = LiveStream(f"{server.url}/v1/chat/completions", {**SLOW, "n": n})
    assert server.stop() == 0
    *chunks, error = parse_chunks(stream.whole())
    assert chunks
    assert error["error"]["code"] == "server_shutting_down"
    assert "Traceback" not in server.log


def test_the_tiny_model_chats(start_server: Any) -> None:
    server = start_server(TINY)
    with server.client() as client, server.http() as http:
        check(client, http)


def check(client: OpenAI, http: httpx.Client) -> None:
    question: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
    plain = client.chat.completions.create(
        model="tiny", messages=question, temperature=0, max_tokens=60, logprobs=True
    )
    said = plain.choices[0].message.content
    assert said
    scored = plain.choices[0].logprobs
    assert scored is not None
    assert bytes(b for token in scored.content or () for b in token.bytes or ()).decode() == said
    body = {"model": "tiny", "messages": question, "temperature": 0, "max_tokens": 60}
    streamed = http.post("/v1/chat/completions", json={**body, "stream": True, "n": 2})
    for choice in fold_chunks(parse_chunks(streamed.content))["choices"]:
        assert choice["message"]["content"] == said
    chosen = http.post("/v1/chat/completions", json={**body, "guided_regex": "(red|blue) [0-9]{3}"})
    colour, number = chosen.json()["choices"][0]["message"]["content"].split()
    assert colour in ("red", "blue")
    assert len(number) == 3
    raw = client.completions.create(model="tiny", prompt="The capital of", max_tokens=5)
    assert raw.usage is not None
    assert raw.usage.completion_tokens <= 5
    assert http.post("/tokenize", json={"model": "tiny", "prompt": "hello"}).json()["count"] > 0
