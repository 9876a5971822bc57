"""Which server the commands ask that ask one: chat, batch, usage."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.base.errors import ConfigurationError
from gateway.commands.arguments import API, api_url


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("port = 8123", "http://127.0.0.1:8123/v1"),
        ('host = "0.0.0.0"\nport = 8123', "http://127.0.0.1:8123/v1"),
        ('host = "::"', "http://[::1]:8000/v1"),
        ('host = "localhost"', "http://localhost:8000/v1"),
        ('tls_certificate = "c.pem"\ntls_key = "k.pem"', "https://127.0.0.1:8000/v1"),
        ("port = 0", API),
        ('unix_socket = "/run/gateway.sock"', API),
    ],
)
def test_the_server_of_the_folders_configuration_is_asked(
    folder: Path, server: str, url: str
) -> None:
    (folder / "gateway.toml").write_text(f"[server]\n{server}\n[models.m]\nunknown = 1\n")
    assert api_url(None, {}) == url


@pytest.mark.parametrize("host", ["gateway.example.com", "10.0.0.7", "127.0.0.1.example.com"])
def test_a_configuration_does_not_lead_a_key_to_another_machine(folder: Path, host: str) -> None:
    (folder / "gateway.toml").write_text(f'[server]\nhost = "{host}"\n')
    assert api_url(None, {}) == API


@pytest.mark.usefixtures("folder")
def test_without_a_configuration_it_is_the_default() -> None:
    assert api_url(None, {}) == API


def test_what_is_named_goes_before(folder: Path) -> None:
    (folder / "gateway.toml").write_text("[server]\nport = 8123\n")
    other = folder / "other.toml"
    other.write_text("[server]\nport = 8124\n")
    assert api_url(None, {"GATEWAY_CONFIG": str(other)}) == "http://127.0.0.1:8124/v1"
    assert api_url(None, {"GATEWAY_SERVER__PORT": "8125"}) == "http://127.0.0.1:8125/v1"
    environment = {"OPENAI_BASE_URL": "http://a/v1", "GATEWAY_CONFIG": str(other)}
    assert api_url(None, environment) == "http://a/v1"
    assert api_url("http://b/v1", environment) == "http://b/v1"


def test_a_broken_configuration_is_a_sentence(folder: Path) -> None:
    (folder / "gateway.toml").write_text("[server\n")
    with pytest.raises(ConfigurationError, match=r"gateway\.toml"):
        api_url(None, {})
