"""`timings_per_token`: an answer says how long it took, on every API, streamed, stored or plain; nothing without it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from gateway_testing.server import run_gateway

RULES = [
    {"when": "slow", "delay_ms": 20, "pieces": [{"text": f"word{n} "} for n in range(8)]},
    {"when": "one", "pieces": [{"text": "x"}]},
]
ASKS: Mapping[str, dict[str, Any]] = {
    "/responses": {"model": "m", "input": "slow"},
    "/chat/completions": {"model": "m", "messages": [{"role": "user", "content": "slow"}]},
    "/completions": {"model": "m", "prompt": "slow", "max_tokens": 50},
}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("times")
    (folder / "scenario.json").write_text(json.dumps(RULES))
    config = {"models": {"m": {"engine": "scripted", "path": "scenario.json"}}}
    with (
        run_gateway(config, folder) as running,
        httpx.Client(base_url=running.base_url, timeout=60) as client,
    ):
        yield client


def check(answer: Mapping[str, Any], usage: Mapping[str, Any]) -> None:
    """The times agree with each other and with the usage."""
    timings, metrics = answer["timings"], answer["metrics"]
    given = usage.get("input_tokens", usage.get("prompt_tokens"))
    made = usage.get("output_tokens", usage.get("completion_tokens"))
    assert timings["prompt_n"] + timings["cache_n"] == given
    assert timings["predicted_n"] == made
    assert timings["predicted_ms"] == metrics["generation_time_ms"]
    # The script waits 20 ms before each of 8 pieces.
    assert timings["predicted_ms"] > 100
    assert timings["prompt_ms"] > 10
    assert metrics["queue_time_ms"] >= 0
    assert metrics["time_to_first_token_ms"] > 10
    assert timings["predicted_per_token_ms"] == metrics["mean_itl_ms"]
    rate = timings["predicted_per_second"] * timings["predicted_per_token_ms"]
    assert rate == pytest.approx(1000, rel=0.01)


@pytest.mark.parametrize("path", ASKS)
def test_a_plain_answer(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json={**ASKS[path], "timings_per_token": True}).json()
    check(answer, answer["usage"])
    for without in ({}, {"timings_per_token": False}):
        plain = http.post(path, json={**ASKS[path], **without}).json()
        assert not plain.keys() & {"timings", "metrics"}


@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
@pytest.mark.parametrize("usage", [True, False])
def test_the_last_chunk_of_a_stream(http: httpx.Client, path: str, usage: bool) -> None:
    body = {**ASKS[path], "stream": True, "timings_per_token": True}
    if usage:
        body["stream_options"] = {"include_usage": True}
    text = http.post(path, json=body).text
    chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    *others, last = chunks
    assert last["choices"] == []
    assert not any("timings" in chunk for chunk in others)
    if usage:
        check(last, last["usage"])
    else:
        assert "usage" not in last
        assert last["timings"]["predicted_n"] > 1
    assert text.rstrip().endswith("data: [DONE]")


@pytest.mark.parametrize("background", [False, True])
def test_the_terminal_event_the_stored_response_and_a_replay_agree(
    http: httpx.Client, background: bool
) -> None:
    body = {**ASKS["/responses"], "timings_per_token": True, "stream": True}
    streamed = http.post("/responses", json={**body, "background": background}).content
    events = parse_sse(streamed)
    final = fold(events)
    check(final, final["usage"])
    assert "timings" not in events[0]["response"]
    stored = http.get(f"/responses/{final['id']}").json()
    assert (stored["timings"], stored["metrics"]) == (final["timings"], final["metrics"])
    if background:
        again = http.get(f"/responses/{final['id']}", params={"stream": True})
        assert fold(parse_sse(again.content))["timings"] == final["timings"]


def test_what_cannot_be_measured_is_null(http: httpx.Client) -> None:
    body = {"model": "m", "input": "one", "timings_per_token": True}
    answer = http.post("/responses", json=body).json()
    assert answer["timings"]["predicted_n"] == 1
    assert answer["timings"]["predicted_ms"] is None
    assert answer["metrics"]["tokens_per_second"] is None


def test_several_choices_are_summed(http: httpx.Client) -> None:
    body = {**ASKS["/chat/completions"], "n": 3, "timings_per_token": True}
    answer = http.post("/chat/completions", json=body).json()
    check(answer, answer["usage"])


@pytest.mark.parametrize("path", ASKS)
def test_a_wrong_value_is_named(http: httpx.Client, path: str) -> None:
    refused = http.post(path, json={**ASKS[path], "timings_per_token": "yes"})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "timings_per_token"


@pytest.mark.parametrize("path", [*ASKS, "/embeddings", "/nowhere"])
@pytest.mark.parametrize("right", [True, False])
def test_the_headers_of_every_answer(http: httpx.Client, path: str, right: bool) -> None:
    """As OpenAI sends them, errors included."""
    answer = http.post(path, json=ASKS.get(path, {}) if right else {"model": 5})
    assert int(answer.headers["openai-processing-ms"]) >= 0
    assert answer.headers["openai-version"] == "2020-10-01"
    assert answer.headers["x-request-id"]
