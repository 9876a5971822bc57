"""What a scrape of /metrics shows of requests of every API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from openai import OpenAI
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as read_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as read_text

from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway
from tests.waiting import wait_until

OPENMETRICS = {"accept": "application/openmetrics-text; version=1.0.0"}
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "responses": ("responses", {"model": "m", "input": "one two three"}),
    "chat": ("chat/completions", {"model": "m", "messages": [{"role": "user", "content": "one two three"}]}),
    "completions": ("completions", {"model": "m", "prompt": "one two three"}),
    "messages": ("messages", {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "one two three"}]}),
}  # fmt: skip
HISTOGRAMS = (
    "gateway_time_to_first_token_seconds",
    "gateway_request_time_per_output_token_seconds",
    "gateway_e2e_request_latency_seconds",
    "gateway_request_queue_time_seconds",
    "gateway_request_prompt_tokens",
    "gateway_request_generation_tokens",
)


@pytest.fixture
def gateway(gateway_server: StartGateway) -> RunningGateway:
    rules = [
        {"when": "go slowly", "delay_ms": 20, "repeat": 5000, "pieces": [{"text": "slow words "}]}
    ]
    return gateway_server({"models": {"m": {"engine": "scripted", "scripted": {"rules": rules}}}})  # fmt: skip


def scrape(gateway: RunningGateway, **headers: str) -> str:
    root = gateway.base_url.removesuffix("/v1")
    answer = httpx.get(f"{root}/metrics", headers=headers)
    assert answer.status_code == 200
    return answer.text


def value(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of that name that have `labels`."""
    return sum(
        sample.value
        for family in read_text(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def until(gateway: RunningGateway, reached: Callable[[str], bool]) -> str:
    """What was scraped once it is so: the numbers of a run may follow the end of its answer."""

    def scraped() -> str | None:
        text = scrape(gateway)
        return text if reached(text) else None

    found = wait_until(scraped, "in the metrics")
    assert found is not None
    return found


def ended(gateway: RunningGateway, number: int = 1) -> str:
    """What was scraped once `number` runs are counted in all histograms."""
    return until(
        gateway, lambda text: all(value(text, f"{name}_count") >= number for name in HISTOGRAMS)
    )


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("api", REQUESTS)
def test_each_run_is_in_each_histogram_once(
    gateway: RunningGateway, api: str, stream: bool
) -> None:
    path, body = REQUESTS[api]
    for _ in range(2):
        answer = httpx.post(f"{gateway.base_url}/{path}", json={**body, "stream": stream})
        assert answer.status_code == 200, answer.text
    text = ended(gateway, 2)
    for name in HISTOGRAMS:
        assert value(text, f"{name}_count", model="m", api=api) == 2, name
        assert value(text, f"{name}_count") == 2, name
        assert value(text, f"{name}_bucket", model="m", api=api, le="+Inf") == 2
    tokens = value(text, "gateway_request_generation_tokens_sum", api=api)
    assert tokens == value(text, "gateway_tokens_total", kind="output") > 2


def test_the_first_token_comes_before_the_end_and_after_the_queue(gateway: RunningGateway) -> None:
    httpx.post(f"{gateway.base_url}/responses", json=REQUESTS["responses"][1])
    text = ended(gateway)
    queue = value(text, "gateway_request_queue_time_seconds_sum")
    first = value(text, "gateway_time_to_first_token_seconds_sum")
    assert 0 <= queue <= first <= value(text, "gateway_e2e_request_latency_seconds_sum")


def test_a_refused_request_is_in_no_histogram_and_names_of_requests_are_no_labels(
    gateway: RunningGateway,
) -> None:
    for number in range(20):
        body = {"model": f"unknown-{number}", "input": "x"}
        answer = httpx.post(f"{gateway.base_url}/responses/{number}", json=body)
        assert answer.status_code in (404, 405)
        assert httpx.post(f"{gateway.base_url}/responses", json=body).status_code == 404
    refused = {"route": "/v1/responses", "status": "404"}
    text = until(gateway, lambda text: value(text, "gateway_requests_total", **refused) == 20)
    assert "unknown-" not in text
    assert value(text, "gateway_e2e_request_latency_seconds_count") == 0


def test_a_background_response_is_seen_while_it_runs(gateway: RunningGateway) -> None:
    body = {"model": "m", "input": "go slowly", "background": True, "stream": True}
    with httpx.stream("POST", f"{gateway.base_url}/responses", json=body) as answer:
        lines = (line for line in answer.iter_lines() if line.startswith("data: "))
        response_id = json.loads(next(lines)[6:])["response"]["id"]
        shown = {"followers": 1, "running": 1, "leases": 1, "queued": 0}
        until(
            gateway,
            lambda text: all(value(text, f"gateway_background_{k}") == n for k, n in shown.items()),
        )
        httpx.post(f"{gateway.base_url}/responses/{response_id}/cancel")
    text = until(
        gateway,
        lambda text: (
            value(text, "gateway_background_leases") == 0
            and value(text, "gateway_background_followers") == 0
            and value(text, "gateway_store_seconds_count", outcome="completed") >= 1
            and value(text, "gateway_e2e_request_latency_seconds_count", api="responses") >= 1
        ),
    )
    assert value(text, "gateway_background_lag_events") == 0
    assert value(text, "gateway_store_seconds_count", outcome="completed") == 1
    assert value(text, "gateway_e2e_request_latency_seconds_count", api="responses") == 1


def test_an_exemplar_names_the_request(gateway: RunningGateway) -> None:
    made = httpx.post(
        f"{gateway.base_url}/responses",
        json=REQUESTS["responses"][1],
        headers={"x-request-id": "find-me"},
    )
    assert made.headers["x-request-id"] == "find-me"
    ended(gateway)
    families = list(read_openmetrics(scrape(gateway, **OPENMETRICS)))
    found = {
        sample.name
        for family in families
        for sample in family.samples
        if sample.exemplar is not None and sample.exemplar.labels == {"request_id": "find-me"}
    }
    assert found == {
        "gateway_time_to_first_token_seconds_bucket",
        "gateway_e2e_request_latency_seconds_bucket",
    }


def test_an_id_of_any_length_fits_an_exemplar(gateway: RunningGateway) -> None:
    headers = {"x-request-id": "x" * 128}
    body = REQUESTS["responses"][1]
    made = httpx.post(f"{gateway.base_url}/responses", json=body, headers=headers)
    assert made.status_code == 200
    ended(gateway)
    assert 'request_id="' + "x" * 100 + '"' in scrape(gateway, **OPENMETRICS)


def test_the_content_type_has_one_charset_and_there_are_no_created_series(
    gateway: RunningGateway,
) -> None:
    httpx.post(f"{gateway.base_url}/responses", json=REQUESTS["responses"][1])
    root = gateway.base_url.removesuffix("/v1")
    for accept in ("", "text/plain", OPENMETRICS["accept"]):
        answer = httpx.get(f"{root}/metrics", headers={"accept": accept})
        assert answer.headers["content-type"].count("charset") == 1
        assert "_created" not in answer.text


def test_process_and_build_are_shown(gateway: RunningGateway) -> None:
    text = scrape(gateway)
    assert value(text, "gateway_build_info") == 1
    assert value(text, "process_resident_memory_bytes") > 1e6
    assert value(text, "process_cpu_seconds_total") > 0


def test_llama_cpp_s_own_metrics_are_shown_with_the_model_s_name(
    gateway_server: StartGateway,
) -> None:
    pytest.importorskip("xllamacpp")
    gateway = gateway_server({"models": {"tiny": {"engine": "llamacpp"}}})
    with gateway.client() as client:
        assert isinstance(client, OpenAI)
        made = client.responses.create(model="tiny", input="Hello!")
    text = until(
        gateway, lambda text: value(text, "llamacpp:requests_processing", model="tiny") == 0
    )
    assert made.usage is not None
    predicted = value(text, "llamacpp:tokens_predicted_total", model="tiny")
    assert predicted >= made.usage.output_tokens
    read = value(text, "llamacpp:prompt_tokens_total", model="tiny")
    assert read >= made.usage.input_tokens
