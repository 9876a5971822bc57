"""Each query of the dashboard and the alerts names metrics and labels that a scrape has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gateway import hookimpl
from gateway.sdk.tools import functions
from gateway_testing.pytest_plugin import StartGateway

FOLDER = Path(__file__).parents[3] / "examples" / "deploy" / "prometheus"
METRIC = re.compile(r"\b((?:gateway|process)_[a-z0-9_]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([^)]*)\)")


def queries() -> Iterator[str]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])


class Dice:
    __name__ = "gateway_dice"

    @hookimpl
    def gateway_register_tools(self, register: Any) -> None:
        def roll() -> str:
            """Roll a die."""
            return "result: 7"

        register("dice", functions("dice", roll))


def test_each_query_names_metrics_and_labels_of_a_scrape(gateway_server: StartGateway) -> None:
    rules = [
        {"when": "result: 7", "pieces": [{"text": "It is seven."}]},
        {"when": "now throw", "pieces": [{"call": {"name": "roll", "arguments": {}}}]},
    ]
    model = {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}
    gateway = gateway_server({"models": {"m": model}, "tools": {"dice": {}}}, plugins=[Dice()])
    body = {"model": "m", "input": "now throw"}
    assert "seven" in httpx.post(f"{gateway.base_url}/responses", json=body).text
    text = httpx.get(f"{gateway.base_url.removesuffix('/v1')}/metrics").text
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    # Where the server speaks TLS; `instance` is Prometheus' own.
    labels["gateway_tls_certificate_expiry_timestamp_seconds"] = {"instance"}
    asked = list(queries())
    assert len(asked) > 20
    for query in asked:
        found = METRIC.findall(query)
        assert found, query
        for metric, matchers in found:
            assert metric in labels, query
            for name in re.findall(r"(\w+)\s*[=!]", matchers):
                assert name in labels[metric], query
            for group in GROUPED.findall(query):
                assert {name.strip() for name in group.split(",")} <= labels[metric], query


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yaml"])
def test_no_query_is_unbalanced(name: str) -> None:
    assert (FOLDER / name).exists()
    for query in queries():
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing), query
