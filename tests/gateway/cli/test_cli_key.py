from __future__ import annotations

import re
import tomllib
from datetime import UTC, datetime

import pytest

from gateway.access.access import Authenticator
from gateway.access.sealing import Sealer
from gateway.cli import main
from gateway.config import ApiKey


def test_a_made_key_opens_the_door(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "alice"]) == 0
    out = capsys.readouterr().out
    key = re.search(r"sk-\S+", out)
    assert key is not None
    config = tomllib.loads(out[out.index("[[") :])
    door = Authenticator([ApiKey(**each) for each in config["server"]["api_keys"]])
    header = (b"authorization", f"Bearer {key.group()}".encode())
    principal = door.principal("/v1/models", [header])
    assert principal is not None
    assert principal.name == "alice"


def test_the_lines_of_a_key_say_what_it_may_do(capsys: pytest.CaptureFixture[str]) -> None:
    may = ["--admin", "--model", 'q"*', "--model", "b", "--tool", "mcp", "--tokens-per-day", "9"]
    assert main(["key", "ada", *may, "--priority", "-1", "--expires", "2030-01-31"]) == 0
    out = capsys.readouterr().out
    [made] = tomllib.loads(out[out.index("[[") :])["server"]["api_keys"]
    assert made.pop("sha256")
    assert made == {
        "name": "ada",
        "admin": True,
        "models": ['q"*', "b"],
        "tools": ["mcp"],
        "tokens_per_day": 9,
        "priority": -1,
        "expires": datetime(2030, 1, 31, tzinfo=UTC),
    }


def test_a_made_reasoning_key_seals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "--reasoning"]) == 0
    keys = tomllib.loads(capsys.readouterr().out)["server"]["reasoning_keys"]
    assert Sealer(keys).open(Sealer(keys).seal("x", None, model="m"), None, "p", model="m") == "x"


def test_a_strange_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", 'a"b']) == 2
    assert "is not a valid name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lst", "ada"], "'lst' is none of add, list, set and revoke"),
        (["list", "ada"], "list takes no name"),
        (["revoke", "ada", "bob"], "revoke takes one name"),
        (["add"], "add needs the name of a key"),
        (["list", "--admin"], "list takes no --admin"),
        (["revoke", "ada", "--tokens-per-day", "9"], "revoke takes no --tokens-per-day"),
        (["--reasoning", "ada"], "--reasoning takes no name"),
        (["--reasoning", "--model", "m"], "--reasoning takes no --model"),
    ],
)
def test_wrong_words_are_one_sentence(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["key", *words]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


@pytest.mark.parametrize("limit", ["0", "1e6", "9" * 20])
def test_an_impossible_limit_is_refused(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "ada", "--requests-per-minute", limit]) == 2
    assert "a whole number from 1 to 999999999999999" in capsys.readouterr().err


def test_a_key_that_has_expired_is_not_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "ada", "--expires", "2020-01-31"]) == 2
    out, err = capsys.readouterr()
    assert "sk-" not in out
    assert "2020-01-31 is past" in err
