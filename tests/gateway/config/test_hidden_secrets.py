"""What is shown of a configuration has no secret, wherever somebody has put one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.config import load_config
from gateway.config.redaction import HIDDEN, Redactor, secrets_of, shown_value, without_credentials
from gateway.http.admin.state import listed_settings

PLAIN = Redactor()


def shown(key: str, value: Any) -> Any:
    return shown_value(("tools", "x", key), value, PLAIN)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("url", "postgresql://user:p@SECRET@db.example/x"),
        ("url", "host=db user=u password=SECRET dbname=x"),
        ("url", "https://api.example/?api-version=1&sig=SECRET"),
        ("url", "https://api.example/?subscription-key=SECRET"),
        ("command", ["server", "--api-key", "SECRET"]),
        ("command", ["server", "--auth-token=SECRET"]),
        ("command", ["env", "PGPASSWORD=SECRET", "server"]),
        ("command", ["sh", "-c", "server --password='SECRET 1'"]),
        ("api_keys", ["SECRET"]),
        ("api-key", "SECRET"),
        ("private_key", "SECRET"),
        ("aws_secret_access_key", "SECRET"),
        ("Cookie", "SECRET"),
        ("headers", {"name": "SECRET"}),
        ("headers", [{"name": "x-a", "value": "SECRET"}]),
        ("default_headers", {"x-a": ["SECRET"]}),
        ("env", {"A": "SECRET", "name": "SECRET"}),
        ("rules", [["a", {"token": {"value": "SECRET"}}], {"https://u:SECRET@h": 1}]),
        ("api_key_env", "sk-SECRET"),
    ],
)
def test_a_secret_is_hidden(key: str, value: Any) -> None:
    made = json.dumps(shown(key, value))
    assert "SECRET" not in made
    assert HIDDEN in made


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max_num_batched_tokens", 4096),
        ("api_key_env", "UPSTREAM_KEY"),
        ("url", "https://api.example/v1?version=2"),
        ("command", ["server", "--max-tokens", "5", "--port", "80", "--flag"]),
        ("api_keys", [{"name": "ada", "sha256": ""}]),
        ("password", ""),
        ("stored_keys", True),
        ("tls_key", "/etc/key.pem"),
    ],
)
def test_what_is_no_secret_is_shown(key: str, value: Any) -> None:
    assert shown(key, value) == value


FILE = """
[models.m]
engine = "openai"
path = "http://example.org/v1"
[models.m.openai]
api_key_env = "sk-0123456789abcdef"
[tools.mcp.servers.x]
command = ["server", "--token", "argument-secret"]
"""


def test_arguments_that_are_secret_are_hidden_in_the_log_too(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(FILE)
    config = load_config(file, {})
    assert secrets_of(config, {}) >= {"argument-secret"}
    found = {each.key: each for each in listed_settings(config, {}).data}
    named = found["models.m.openai.api_key_env"]
    assert (named.value, named.note) == (HIDDEN, "this is not the name of an environment variable")


@pytest.mark.parametrize("piece", ["a", "x-", "token", "api-", "://", "?a", "x-token", "-"])
def test_a_long_word_is_searched_in_linear_time(piece: str) -> None:
    """As base64 in an error of a library. A search whose time is the square would take minutes."""
    text = piece * 50_000
    assert shown("text", text) == text


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:hunter2@host:6379/0?password=hunter2", "redis://host:6379/0"),
        ("localhost", "localhost"),
        ("localhost:6379", "localhost:6379"),
        ("user:hunter2@host:6379", "host:6379"),
        ("host=db password=hunter2", "the configured URL"),
        ("host?password=hunter2", "host"),
        ("", "the configured URL"),
    ],
)
def test_messages_show_urls_without_credentials(url: str, shown: str) -> None:
    assert without_credentials(url) == shown
