"""Every example runs: the plugins' own tests, the plugins in a server, the client scripts."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
PLUGINS = sorted(p.parent for p in (EXAMPLES / "plugins").glob("*/pyproject.toml"))
CLIENTS = sorted((EXAMPLES / "clients").glob("*.py"))


def module_of(plugin: Path) -> ModuleType:
    (file,) = plugin.glob("gateway_*.py")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda p: p.name)
def test_an_example_plugin_passes_its_own_tests(plugin: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(plugin / "tests")],
        env={**os.environ, "PYTHONPATH": str(plugin)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_tool_is_called_by_a_model(gateway_server: Callable[..., Any]) -> None:
    config = {
        "models": {
            "demo": {
                "engine": "scripted",
                "scripted": {
                    "rules": [
                        {"when": "throw", "pieces": [{"call": {"name": "roll_dice", "arguments": {"sides": 6, "count": 2}}}]},
                        {"when": '"sum"', "pieces": [{"text": "There you are."}]},
                    ]
                },
            }
        },
        "tools": {"dice": {}},
    }  # fmt: skip
    gateway = gateway_server(config, plugins=[module_of(EXAMPLES / "plugins" / "dice")])
    with gateway.client() as client:
        response = client.responses.create(model="demo", input="throw two dice")
    assert [item.type for item in response.output] == ["mcp_call", "message"]
    assert response.output[0].status == "completed"
    assert '"sum"' in response.output[0].output
    assert response.output_text == "There you are."


def test_the_example_engine_answers(gateway_server: Callable[..., Any]) -> None:
    config = {"models": {"loud": {"engine": "shout", "parser": "plain", "shout": {"suffix": "!!"}}}}
    gateway = gateway_server(config, plugins=[module_of(EXAMPLES / "plugins" / "shout")])
    with gateway.client() as client:
        assert client.responses.create(model="loud", input="hello").output_text == "HELLO!!"


@pytest.mark.parametrize("script", CLIENTS, ids=lambda p: p.stem)
def test_a_client_script_runs_against_the_embedded_default(
    embedded_server: Any, script: Path
) -> None:
    done = subprocess.run(
        [sys.executable, str(script), embedded_server.base_url],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.fixture(scope="module")
def embedded_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What `gateway serve` serves without a word of configuration."""
    from gateway_testing.server import run_gateway

    with run_gateway({}, tmp_path_factory.mktemp("embedded")) as gateway:
        yield gateway
