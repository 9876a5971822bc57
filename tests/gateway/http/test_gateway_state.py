"""/v1/gateway/config, /keys and /models: what administrators see, and that no secret is in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.access import hash_key
from gateway.config import load_config
from gateway.config.reloading import reloaded
from gateway.config.sources import Lines
from gateway.http.admin.all_workers import Activity, added
from gateway.http.admin.state import listed_settings
from gateway.models.queue_history import MINUTES, QueueHistory
from gateway.wire.inventory import QueueMinute
from gateway_testing.server import run_gateway
from tests.waiting import wait_until

TIMEOUT = 60
PATHS = ("config", "keys", "models", "tools")
KEYS = [
    {"name": "ada", "sha256": hash_key("key-ada"), "tokens_per_day": 1000, "models": ["m*"]},
    {"name": "root", "sha256": hash_key("key-root"), "admin": True},
]
CONFIG: dict[str, Any] = {"models": {"m": {"engine": "scripted"}}, "server": {"api_keys": KEYS}}


def sent(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-{name}"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_gateway(CONFIG, tmp_path_factory.mktemp("state")) as running:
        yield f"{running.base_url}/gateway"


def shown(url: str, path: str) -> Any:
    answer = httpx.get(f"{url}/{path}", headers=sent("root"), timeout=TIMEOUT)
    assert answer.status_code == 200, answer.text
    for key in KEYS:
        assert key["sha256"] not in answer.text
    return answer.json()


@pytest.mark.parametrize("path", PATHS)
def test_they_are_for_administrators(url: str, path: str) -> None:
    assert httpx.get(f"{url}/{path}", timeout=TIMEOUT).status_code == 401
    assert httpx.get(f"{url}/{path}", headers=sent("ada"), timeout=TIMEOUT).status_code == 403
    assert httpx.post(f"{url}/{path}", headers=sent("root"), timeout=TIMEOUT).status_code == 405
    assert shown(url, path)["object"] == f"gateway.{path}"


def test_keys_with_their_limits_and_use(url: str) -> None:
    before = {each["name"]: each for each in shown(url, "keys")["data"]}
    assert before["ada"]["models"] == ["m*"]
    assert before["ada"]["tokens_per_day"] == 1000
    assert (before["ada"]["admin"], before["root"]["admin"]) == (False, True)
    assert before["root"]["last_used"] is None
    body = {"model": "m", "input": "Hello"}
    base = url.removesuffix("/gateway")
    made = httpx.post(f"{base}/responses", json=body, headers=sent("ada"), timeout=TIMEOUT)
    assert made.status_code == 200
    tokens = made.json()["usage"]["total_tokens"]

    def ada() -> Any:
        found = next(each for each in shown(url, "keys")["data"] if each["name"] == "ada")
        return found if found["requests_30_days"] > before["ada"]["requests_30_days"] else None

    after = wait_until(ada)
    assert after["tokens_30_days"] - before["ada"]["tokens_30_days"] == tokens
    assert after["last_used"] is not None
    assert after["running"] == 0
    assert after["requests_today"] <= after["requests_30_days"]
    assert (
        next(each for each in shown(url, "keys")["data"] if each["name"] == "root")[
            "requests_30_days"
        ]
        == 0
    )


def test_models_with_their_queues(url: str) -> None:
    [model] = shown(url, "models")["data"]
    assert (model["id"], model["state"], model["engine"]) == ("m", "loaded", "scripted")
    assert (model["running"], model["waiting"], model["failure"]) == (0, 0, None)
    minutes = wait_until(lambda: shown(url, "models")["data"][0]["queue"])
    assert minutes[0].keys() == {"at", "running", "waiting"}


FILE = """
[server]
port = 8123
reasoning_keys = ["abcd"]

[[server.api_keys]]
name = "ada"
sha256 = "{hash}"

[models.m]
engine = "openai"
path = "http://user:pw@example.org/v1"
[models.m.openai]
api_key_env = "UPSTREAM_KEY"
headers = {{ x-a = "b" }}
"""


def test_each_setting_has_its_source_and_secrets_are_hidden(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(FILE.format(hash=hash_key("key")))
    environ = {"GATEWAY_SERVER__GRACE_PERIOD": "7", "UPSTREAM_KEY": "k"}
    config = load_config(file, environ)
    data = {each.key: each for each in listed_settings(config, environ).data}
    assert (data["server.port"].value, data["server.port"].source) == (8123, f"{file} line 3")
    assert data["server.reasoning_keys"].value == ["[hidden]"]  # also short ones
    assert data["server.api_keys"].value == [{"name": "ada", "sha256": "[hidden]"}]
    assert data["models.m.path"].value == "http://[hidden]@example.org/v1"
    assert data["models.m.openai.headers.x-a"].value == "[hidden]"
    assert data["models.m.openai.api_key_env"].note == "UPSTREAM_KEY is set"
    assert data["server.grace_period"].source == "environment variable GATEWAY_SERVER__GRACE_PERIOD"
    assert (data["server.host"].value, data["server.host"].source) == ("127.0.0.1", "default")
    assert listed_settings(config, {}).data[-1].source == "default"


def test_after_a_reload_what_needs_a_restart_is_shown_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    configs = []
    for port, level in ((1, "info"), (2, "debug")):
        file.write_text(f'\n[server]\nport = {port}\nlog_level = "{level}"\n')
        configs.append(load_config(file, {}))
    used = {each.key: each.value for each in listed_settings(reloaded(*configs), {}).data}
    assert (used["server.port"], used["server.log_level"]) == (1, "debug")


KEY = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.lists(KEY, min_size=1, max_size=3).map(tuple), max_size=8), st.lists(KEY, min_size=1, max_size=4).map(tuple))  # fmt: skip
def test_the_line_of_a_setting_is_the_first_that_names_the_most_of_it(
    named: list[tuple[str, ...]], path: tuple[str, ...]
) -> None:
    found = Lines("\n".join(f"{'.'.join(each)} = 1" for each in named)).of(path)
    shared = [
        min(len(each), len(path))
        if each[: min(len(each), len(path))] == path[: min(len(each), len(path))]
        else 0
        for each in named
    ]
    most = max(shared, default=0)
    assert found == (shared.index(most) + 1 if most else None)


def test_the_history_of_queues_has_an_hour_and_the_most_of_each_minute() -> None:
    now = 0.0
    history = QueueHistory(lambda: now)
    queue = SimpleNamespace(running=0, waiting=0, most_running=lambda: queue.running)
    slots: Any = [SimpleNamespace(name="m", admission=queue)]
    for second in range(0, 2 * 3600, 20):
        now, queue.running, queue.waiting = float(second), second % 60 // 20, second // 60
        history.sample(slots)
    minutes = history.of("m")
    assert len(minutes) == MINUTES
    assert [each.at for each in minutes] == list(range(3600, 7200, 60))
    assert {each.running for each in minutes} == {2}
    assert [each.waiting for each in minutes] == list(range(60, 120))
    history.sample([])
    assert history.of("m") == []


def test_the_activity_of_workers_adds_up() -> None:
    def one(at: int) -> Activity:
        minute = QueueMinute(at=at, running=1, waiting=2)
        return Activity(running={"ada": 1}, last_used={"ada": float(at)}, queues={"m": (1, 2, [minute])})  # fmt: skip

    both = added(added(one(60), one(120)), one(60))
    assert both.running == {"ada": 3}
    assert both.last_used == {"ada": 120.0}
    running, waiting, minutes = both.queues["m"]
    assert (running, waiting) == (3, 6)
    assert [(each.at, each.running, each.waiting) for each in minutes] == [(60, 2, 4), (120, 1, 2)]
