"""The gateway in a thread, and the fixture `gateway_server` as a third party uses it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import ConfigurationError
from gateway_testing.server import run_gateway, to_toml

CONFIG = {
    "models": {
        "m": {
            "engine": "scripted",
            "scripted": {"rules": [{"when": "hi", "pieces": [{"text": "hello"}]}]},
        }
    }
}


def test_it_serves_until_the_context_is_left(tmp_path: Path) -> None:
    async def own_threads() -> set[threading.Thread]:
        executor = getattr(asyncio.get_running_loop(), "_default_executor", None)
        return {threading.current_thread(), *getattr(executor, "_threads", ())}

    with run_gateway(CONFIG, tmp_path) as gateway:
        with gateway.client() as client:
            assert client.responses.create(model="m", input="hi").output_text == "hello"
        assert [each.request_id for each in gateway.services.models["m"].engine.requests]  # type: ignore[attr-defined]
        url = gateway.base_url
        threads = gateway.run(own_threads())
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")
    assert not [each for each in threads if each.is_alive()]


def test_several_run_side_by_side(tmp_path: Path) -> None:
    other = {"models": {"o": {"engine": "scripted"}}}
    (tmp_path / "other").mkdir()
    with run_gateway(CONFIG, tmp_path) as one, run_gateway(other, tmp_path / "other") as two:
        assert one.base_url != two.base_url
        with two.client() as client:
            assert [model.id for model in client.models.list()] == ["o"]


def test_a_mistake_in_the_configuration_is_raised_where_it_was_asked_for(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigurationError, match="scripted"),
        run_gateway('[models.m]\nengine = "scripte"', tmp_path),
    ):
        pytest.fail("it started")
    with (
        pytest.raises(ConfigurationError, match="cannot be read"),
        run_gateway('[models.m]\nengine = "scripted"\npath = "missing.json"', tmp_path),
    ):
        pytest.fail("it started")


def test_plugins_that_are_not_installed_may_be_given(tmp_path: Path) -> None:
    class Plugin:
        """Counts what is finished."""

        def __init__(self) -> None:
            self.seen: list[str] = []

        from gateway import hookimpl

        @hookimpl
        def gateway_response_finished(self, response: object) -> None:
            self.seen.append(response.status)  # type: ignore[attr-defined]

    plugin = Plugin()
    with run_gateway(CONFIG, tmp_path, plugins=[plugin]) as gateway, gateway.client() as client:
        client.responses.create(model="m", input="hi")
    assert plugin.seen == ["completed"]


@pytest.mark.slow
def test_a_third_party_uses_the_fixture(tmp_path: Path) -> None:
    """In a folder of its own, with what is installed and nothing of this tree."""
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(gateway_server):\n"
        "    gateway = gateway_server('[models.m]\\nengine = \"scripted\"')\n"
        "    with gateway.client() as client:\n"
        "        assert client.responses.create(model='m', input='echo').output_text == 'echo'\n"
    )
    program = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(st.characters(exclude_categories=("Cs",))), VALUES))
def test_a_mapping_is_the_same_as_toml(table: dict[str, object]) -> None:
    assert tomllib.loads(to_toml(table)) == table


def test_nothing_is_left_out_of_toml() -> None:
    assert tomllib.loads(to_toml({"a": None, "b": {"c": None, "d": 1}})) == {"b": {"d": 1}}
    with pytest.raises(TypeError, match="complex"):
        to_toml({"a": 1j})
