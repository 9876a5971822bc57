"""Usage and costs: counted in every API, read with OpenAI's SDK, for administrators only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from gateway import hookimpl
from gateway.access.access import hash_key
from gateway.cli import main
from gateway.plugins.protocols import AnswerUsage
from gateway_testing.server import RunningGateway, run_gateway

DAY = 86_400


def key(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "sha256": hash_key(f"sk-{name}"), **fields}


class Accountant:
    """A plugin that is told what is used, and fails."""

    def __init__(self) -> None:
        self.told: list[AnswerUsage] = []

    @hookimpl
    def gateway_usage(self, used: AnswerUsage) -> None:
        self.told.append(used)
        raise RuntimeError("a mistake of the plugin's author")


@pytest.fixture(scope="module")
def accountant() -> Accountant:
    return Accountant()


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, accountant: Accountant
) -> Iterator[RunningGateway]:
    config = {
        "server": {
            "api_keys": [key("boss", admin=True), key("ada"), key("bob")],
            "currency": "eur",
        },
        "models": {
            "m": {"engine": "scripted", "price": {"input": 2.0, "output": 10.0}},
            "free": {"engine": "scripted"},
            "ranks": {"engine": "scripted", "scripted": {"task": "rerank"}},
        },
    }
    folder = tmp_path_factory.mktemp("usage")
    with run_gateway(config, folder, plugins=[accountant]) as running:
        yield running


def send(gateway: RunningGateway, name: str, path: str, **body: Any) -> Any:
    headers = {"authorization": f"Bearer sk-{name}", "anthropic-version": "2023-06-01"}
    body = {"model": "m", **body}
    answer = httpx.post(f"{gateway.base_url}{path}", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def read(gateway: RunningGateway, path: str, name: str = "boss", **params: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer sk-{name}"}
    params = {"start_time": int(time.time()) - DAY, "limit": 31, **params}
    url = f"{gateway.base_url}/organization/{path}"
    return httpx.get(url, params=params, headers=headers, timeout=60)


def totals(gateway: RunningGateway, name: str) -> tuple[int, int, int]:
    """Requests, input and output tokens of a key until now."""
    page = read(gateway, "usage/completions", api_key_ids=name).json()
    results = [each for bucket in page["data"] for each in bucket["results"]]
    fields = ("num_model_requests", "input_tokens", "output_tokens")
    return tuple(sum(each[field] for each in results) for field in fields)  # type: ignore[return-value]


def test_every_generating_api_counts(gateway: RunningGateway, accountant: Accountant) -> None:
    messages = [{"role": "user", "content": "hi"}]
    used = [
        send(gateway, "ada", "/responses", input="hi")["usage"],
        send(gateway, "ada", "/chat/completions", messages=messages)["usage"],
        send(gateway, "ada", "/completions", prompt="hi")["usage"],
        send(gateway, "ada", "/messages", messages=messages, max_tokens=50)["usage"],
    ]
    given = sum(each.get("input_tokens", each.get("prompt_tokens", 0)) for each in used)
    made = sum(each.get("output_tokens", each.get("completion_tokens", 0)) for each in used)
    assert totals(gateway, "ada") == (4, given, made)
    told = [each for each in accountant.told if each.principal and each.principal.name == "ada"]
    assert [each.api for each in told] == ["responses", "chat", "completions", "messages"]
    assert all(each.request_id.startswith("req_") and each.status == "completed" for each in told)
    assert sum(each.input_tokens for each in told) == given
    assert sum(each.output_tokens for each in told) == made


def test_embeddings_are_counted_apart(gateway: RunningGateway) -> None:
    before = totals(gateway, "bob")
    made = send(gateway, "bob", "/embeddings", input="some words")
    send(gateway, "bob", "/rerank", model="ranks", query="a", documents=["b"])
    assert totals(gateway, "bob") == before
    page = read(gateway, "usage/embeddings", group_by="api_key_id").json()
    [found] = [each for bucket in page["data"] for each in bucket["results"]]
    assert found["object"] == "organization.usage.embeddings.result"
    assert (found["api_key_id"], found["model"]) == ("bob", None)
    assert (found["num_model_requests"], found["input_tokens"]) == (
        1,
        made["usage"]["prompt_tokens"],
    )


def test_the_sdk_reads_usage_and_costs(gateway: RunningGateway) -> None:
    start = int(time.time()) - 3 * DAY
    send(gateway, "ada", "/completions", prompt="hi", model="free")
    with OpenAI(
        base_url=gateway.base_url, api_key="none", admin_api_key="sk-boss", max_retries=0
    ) as client:
        usage = client.admin.organization.usage
        page: Any = usage.completions(start_time=start, group_by=["api_key_id", "model"])
        assert page.object == "page"
        assert [bucket.end_time - bucket.start_time for bucket in page.data] == [DAY] * 4
        assert (page.has_more, page.next_page) == (False, None)
        today: Any = page.data[-1]
        groups = {(each.api_key_id, each.model) for each in today.results}
        assert ("ada", "free") in groups
        costs: Any = usage.costs(start_time=start, group_by=["line_item"])
        items = {each.line_item: each.amount for each in costs.data[-1].results}
        assert set(items) == {"m, input_tokens", "m, input_cached_tokens", "m, output_tokens"}
        assert {amount.currency for amount in items.values()} == {"eur"}
        whole: Any = usage.costs(start_time=start)
        [total] = whole.data[-1].results
        given = sum(each.input_tokens for each in today.results if each.model == "m")
        made = sum(each.output_tokens for each in today.results if each.model == "m")
        embedded: Any = usage.embeddings(start_time=start)
        given += sum(each.input_tokens for each in embedded.data[-1].results)
        assert total.amount.value == pytest.approx((2 * given + 10 * made) / 1_000_000)


def test_pages_are_read_one_after_the_other(gateway: RunningGateway) -> None:
    start = (int(time.time()) // DAY - 9) * DAY
    seen: list[int] = []
    page: str | None = ""
    while page is not None:
        more = {"page": page} if page else {}
        answer = read(gateway, "usage/completions", start_time=start, limit=4, **more).json()
        seen += [bucket["start_time"] for bucket in answer["data"]]
        page = answer["next_page"]
        assert answer["has_more"] == (page is not None)
    assert seen == [start + day * DAY for day in range(10)]


@pytest.mark.parametrize(("width", "seconds"), [("1m", 60), ("1h", 3600)])
def test_minutes_and_hours_are_counted_too(
    gateway: RunningGateway, width: str, seconds: int
) -> None:
    """Their sums are those of the days; all pages together have each bucket once."""
    send(gateway, "bob", "/completions", prompt="hi")
    start = (int(time.time()) // seconds - 9) * seconds
    page: str | None = ""
    seen: list[dict[str, Any]] = []
    while page is not None:
        more = {"page": page} if page else {}
        answer = read(
            gateway, "usage/completions", start_time=start, limit=4, bucket_width=width,
            api_key_ids="bob", group_by="model", **more,
        ).json()  # fmt: skip
        seen += answer["data"]
        page = answer["next_page"]
        assert answer["has_more"] == (page is not None)
    starts = [each["start_time"] for each in seen]
    assert starts[:10] == [start + number * seconds for number in range(10)]
    assert starts == sorted(set(starts))
    assert all(each["end_time"] - each["start_time"] == seconds for each in seen)
    [latest] = [each for each in seen[-2:] if each["results"]][-1:]
    assert latest["results"][0]["model"] == "m"
    assert latest["results"][0]["num_model_requests"] >= 1


def test_costs_are_shown_by_day_alone(gateway: RunningGateway) -> None:
    assert read(gateway, "costs", bucket_width="1h").json()["error"]["param"] == "bucket_width"


@pytest.mark.parametrize("path", ["usage/completions", "usage/embeddings", "costs"])
def test_administrators_alone_read_it(gateway: RunningGateway, path: str) -> None:
    refused = read(gateway, path, name="ada")
    assert refused.status_code == 403
    assert refused.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(f"{gateway.base_url}/organization/{path}").status_code == 401


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"start_time": "yesterday"}, "start_time"),
        ({"start_time": "-1"}, "start_time"),
        ({"start_time": "9" * 5000}, "start_time"),
        ({"limit": "32"}, "limit"),
        ({"limit": "0"}, "limit"),
        ({"bucket_width": "1w"}, "bucket_width"),
        ({"bucket_width": "1h", "limit": "169"}, "limit"),
        ({"bucket_width": "1m", "limit": "1441"}, "limit"),
        ({"group_by": "line_item"}, "group_by[0]"),
        ({"page": "page_x"}, "page"),
        ({"project_ids": "p"}, "project_ids"),
    ],
)
def test_mistakes_name_their_parameter(
    gateway: RunningGateway, params: dict[str, str], param: str
) -> None:
    answer = read(gateway, "usage/completions", **params)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    "params",
    [
        {"start_time": "0"},
        {"start_time": "999999999999"},
        {"end_time": "1"},
        {"page": "page_999999"},
    ],
)
def test_times_out_of_range_show_what_there_is(gateway: RunningGateway, params: Any) -> None:
    answer = read(gateway, "usage/completions", **params)
    assert answer.status_code == 200
    assert len(answer.json()["data"]) <= 31


def test_the_command_shows_it(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    send(gateway, "bob", "/completions", prompt="hi")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-boss")
    assert main(["usage", "--url", gateway.base_url, "--days", "2"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if " bob " in line and " m " in line]
    assert "EUR" in shown
    for by in ("hour", "minute"):
        assert main(["usage", "--url", gateway.base_url, "--days", "1", "--by", by]) == 0
        head, *lines = capsys.readouterr().out.splitlines()
        assert head.startswith(by)
        assert [line for line in lines if " bob " in line and line[13] == ":"]
    assert main(["usage", "--url", gateway.base_url, "--api-key", "sk-ada"]) == 1
    assert "admin" in capsys.readouterr().err


def test_what_was_used_outlives_the_process_in_redis(tmp_path: Path) -> None:
    from gateway_testing.redis_process import RedisProcess

    redis = RedisProcess(tmp_path)
    config = {
        "server": {"store": "redis", "api_keys": [key("boss", admin=True)]},
        "stores": {"redis": {"url": redis.url, "connect_timeout": 30}},
        "models": {"m": {"engine": "scripted"}},
    }
    try:
        for expected in (1, 2):
            folder = tmp_path / str(expected)
            folder.mkdir()
            with run_gateway(config, folder) as gateway:
                send(gateway, "boss", "/completions", prompt="hi")
                assert totals(gateway, "boss")[0] == expected, json.dumps(config)
    finally:
        redis.kill()


def test_it_is_kept_over_a_restart(tmp_path: Path) -> None:
    """With the store of a gateway with a configuration file."""
    config = {
        "server": {"store": "sqlite", "api_keys": [key("boss", admin=True), key("ada")]},
        "stores": {"sqlite": {"path": str(tmp_path / "store.sqlite")}},
        "models": {"m": {"engine": "scripted"}},
    }
    with run_gateway(config, tmp_path) as gateway:
        send(gateway, "ada", "/completions", prompt="hi")
    with run_gateway(config, tmp_path) as gateway:
        assert totals(gateway, "ada")[0] == 1
        send(gateway, "ada", "/completions", prompt="hi")
        assert totals(gateway, "ada")[0] == 2
