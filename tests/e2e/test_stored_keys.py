"""Keys in the store: added and revoked by the command, on two running servers at once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.base.errors import ConfigurationError
from gateway.cli import main
from gateway_testing.redis_process import RedisProcess
from gateway_testing.server import RunningGateway, run_gateway, to_toml
from tests.waiting import wait_until


@pytest.fixture(params=["redis", "sqlite"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    made: dict[str, Any] = {
        "server": {"store": request.param, "stored_keys": True},
        "models": {"m": {"engine": "scripted"}},
    }
    if request.param == "sqlite":
        made["stores"] = {"sqlite": {"path": str(tmp_path / "store.sqlite")}}
        yield made
        return
    redis = RedisProcess(tmp_path)
    made["stores"] = {"redis": {"url": redis.url, "connect_timeout": 30}}
    yield made
    redis.kill()


def status(gateway: RunningGateway, key: str) -> int:
    body = {"model": "m", "prompt": "hi"}
    headers = {"authorization": f"Bearer {key}"}
    url = f"{gateway.base_url}/completions"
    return httpx.post(url, json=body, headers=headers, timeout=60).status_code


def seconds_until(gateways: list[RunningGateway], key: str, wanted: int) -> float:
    began = time.monotonic()
    wait_until(lambda: {status(gateway, key) for gateway in gateways} == {wanted})
    return time.monotonic() - began


def test_a_key_is_accepted_and_revoked_on_all_servers(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(to_toml(config))

    def key_command(*words: str) -> str:
        assert main(["key", *words, "--config", str(file)]) == 0
        return capsys.readouterr().out

    with ExitStack() as stack:
        gateways = []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            gateways.append(stack.enter_context(run_gateway(config, tmp_path / str(number))))
        assert httpx.get(f"{gateways[0].base_url}/models").status_code == 401
        found = re.search(r"sk-\S+", key_command("add", "ada", "--requests-per-minute", "1000"))
        other = re.search(r"sk-\S+", key_command("add", "bob", "--model", "other"))
        assert found is not None
        assert other is not None
        seconds_until(gateways, found[0], 200)
        seconds_until(gateways, other[0], 404)
        listed = key_command("list")
        assert "ada" in listed
        assert "requests_per_minute = 1000" in listed
        assert found[0] not in listed
        assert "Revoked: ada" in key_command("revoke", "ada")
        print(f"revoked within {seconds_until(gateways, found[0], 401):.2f} s")
        assert status(gateways[0], other[0]) == 404
        assert main(["key", "revoke", "ada", "--config", str(file)]) == 2
        assert "no key of the name" in capsys.readouterr().err


def test_the_command_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "gateway.toml"
    for server, said in (
        ({"store": "memory"}, "stored_keys = true"),
        ({"store": "memory", "stored_keys": True}, "own memory"),
        ({"store": "none", "stored_keys": True}, "needs a store"),
    ):
        config = {"server": server, "models": {"m": {"engine": "scripted"}}}
        file.write_text(to_toml(config))
        assert main(["key", "add", "ada", "--config", str(file)]) == 2
        assert said in capsys.readouterr().err
    assert main(["key", "add"]) == 2
    assert main(["key", "add", 'a"b']) == 2
    assert main(["key", "burn", "ada"]) == 2


def test_a_store_that_nobody_else_reaches_stops_the_start(tmp_path: Path) -> None:
    config = {
        "server": {"store": "memory", "stored_keys": True},
        "models": {"m": {"engine": "scripted"}},
    }
    with pytest.raises(ConfigurationError, match="stored_keys"), run_gateway(config, tmp_path):
        pass


def test_what_a_key_may_do_is_changed_on_all_servers(
    config: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The key itself stays. What is not named stays too."""
    file = tmp_path / "gateway.toml"
    file.write_text(to_toml(config))

    def key_command(*words: str) -> str:
        assert main(["key", *words, "--config", str(file)]) == 0
        return capsys.readouterr().out

    with ExitStack() as stack:
        gateways = []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            gateways.append(stack.enter_context(run_gateway(config, tmp_path / str(number))))
        made = ("--model", "other", "--tool", "t", "--tokens-per-day", "5000000")
        found = re.search(r"sk-\S+", key_command("add", "ada", *made))
        assert found is not None
        seconds_until(gateways, found[0], 404)
        assert "models m; tools t" in key_command("set", "ada", "--model", "m")
        seconds_until(gateways, found[0], 200)
        assert "tokens_per_day = 5000000" in key_command("list")
        key_command("set", "ada", "--tokens-per-day", "1", "--priority", "3", "--weight", "2.5")
        seconds_until(gateways, found[0], 429)
        listed = key_command("list")
        assert "tokens_per_day = 1, priority = 3, weight = 2.5" in listed
        digest = listed.splitlines()[1].split()[1]
        key_command("set", digest, "--unset", "tokens-per-day", "--unset", "tool")
        seconds_until(gateways, found[0], 200)
        assert re.search(r"ada +\w+ +no +m +all +priority", key_command("list"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set", "bob", "--admin"], "no key of the name"),
        (["set", "ada"], "changes nothing"),
        (["set"], "needs the name"),
        (["set", "ada", "--unset", "colour"], "no such option"),
        (["set", "ada", "--admin", "--unset", "admin"], "set and unset"),
        (["set", "ada", "--weight", "0"], "above 0"),
        (["set", "ada", "--model", ""], "cannot be so"),
        (["add", "eve", "--model", ""], "cannot be so"),
        (["add", "eve", "--unset", "model"], "for gateway key set"),
    ],
)
def test_a_change_that_cannot_be_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    file = tmp_path / "gateway.toml"
    config = {
        "server": {"store": "sqlite", "stored_keys": True},
        "stores": {"sqlite": {"path": str(tmp_path / "store.sqlite")}},
        "models": {"m": {"engine": "scripted"}},
    }
    file.write_text(to_toml(config))
    assert main(["key", "add", "ada", "--config", str(file)]) == 0
    assert main(["key", *words, "--config", str(file)]) == 2
    assert said in capsys.readouterr().err
