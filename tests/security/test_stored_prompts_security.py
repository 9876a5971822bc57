"""Variables of stored prompts come from clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway

TWENTY = " ".join(["{{a}}"] * 20)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    prompts = {
        "two": {"text": "Say {{a}} to {{b}}."},
        "many": {"messages": [{"role": "user", "content": TWENTY}]},
    }
    config: dict[str, Any] = {
        "models": {"m": {"engine": "scripted"}},
        "prompts": prompts,
        "server": {"max_body_bytes": 1_000_000},
    }
    with run_gateway(config, tmp_path_factory.mktemp("prompts")) as running:
        yield running


def post(gateway: RunningGateway, prompt: Any) -> httpx.Response:
    body = {"model": "m", "input": "x", "prompt": prompt}
    return httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60)


def test_a_variable_does_not_name_another(gateway: RunningGateway) -> None:
    values = {"a": "{{b}} {{ a }}", "b": r"\1 \g<0> {{a}}"}
    made = post(gateway, {"id": "two", "variables": values}).json()
    assert made["instructions"] == r"Say {{b}} {{ a }} to \1 \g<0> {{a}}."


def test_a_variable_in_many_places_does_not_fill_the_memory(gateway: RunningGateway) -> None:
    answer = post(gateway, {"id": "many", "variables": {"a": "x" * 90_000}})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "string_above_max_length"


@pytest.mark.parametrize(
    "prompt",
    [
        {"id": "two", "variables": {str(n): "x" for n in range(50_000)}},
        {"id": "x" * 100_000},
        {"id": "two", "version": "x" * 100_000},
        {"id": "two", "variables": {"x" * 100_000: "a"}},
        {"id": "two", "variables": {"x" * 100_000: 3}},
        {"id": "two", "variables": {"a": {"type": "x" * 100_000}}},
        {"id": "../../etc/passwd"},
        {"id": "two\x00"},
        {"id": ""},
        {"id": ["two"]},
        {"id": "two", "variables": [1]},
        {"id": "two", "variables": {"a": "x", "b": {"type": "input_file", "file_id": "f"}}},
    ],
)
def test_extremes_are_refused_in_few_words(gateway: RunningGateway, prompt: Any) -> None:
    answer = post(gateway, prompt)
    assert answer.status_code in (400, 404)
    assert len(answer.content) < 4000
