"""Names of unknown parameters are chosen by clients: they fill neither the log nor the metrics, and write no headers."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import httpx
import pytest

from gateway.observe.metrics import Metrics
from gateway.observe.unknown_parameters import MAX_LOGGED, UnknownParameters, header_of
from gateway_testing.server import RunningGateway, run_gateway


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {"models": {"m": {"engine": "scripted"}}}
    with run_gateway(config, tmp_path_factory.mktemp("unknown")) as running:
        yield running


def test_many_names_are_logged_up_to_a_bound_and_have_one_label(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Metrics()
    unknown = UnknownParameters(metrics)
    with caplog.at_level(logging.WARNING, "gateway.requests"):
        for number in range(3 * MAX_LOGGED):
            unknown.report("/v1/responses", [f"name_{number}", "session_id"])
    assert len(caplog.records) == MAX_LOGGED
    lines = [
        line
        for line in metrics.exposition()[0].decode().splitlines()
        if line.startswith("gateway_unknown_parameters_total{")
    ]
    assert sorted(line.split("parameter=")[1].split(",")[0] for line in lines) == [
        '"other"',
        '"session_id"',
    ]


def test_a_name_cannot_write_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gateway.requests"):
        UnknownParameters(Metrics()).report(
            "/v1/responses", ["a\nERROR all is lost", "x" * 100_000]
        )
    assert all("\n" not in record.getMessage() for record in caplog.records)
    assert all(len(record.getMessage()) < 300 for record in caplog.records)


def test_a_name_cannot_write_headers() -> None:
    names = ["good", "a\r\nset-cookie: x", "b, c", "é", "", "y" * 65, *(f"n{i}" for i in range(99))]
    shown = header_of(names).decode().split(", ")
    assert shown[0] == "good"
    assert len(shown) == 16
    assert all(name == "good" or name.startswith("n") for name in shown)


def test_a_body_of_unknown_names_is_answered_as_any(gateway: RunningGateway) -> None:
    body = {"model": "m", "input": "x", **{f"p{number}\r\nx": 1 for number in range(19_000)}}
    with httpx.Client(base_url=gateway.base_url, timeout=60) as http:
        answer = http.post("/responses", json=body)
        assert answer.status_code == 200
        assert "x-litegate-ignored-parameters" not in answer.headers
        answer = http.post("/responses", json={**body, "plain": 1, "0": 2})
        assert answer.headers["x-litegate-ignored-parameters"] == "0"
