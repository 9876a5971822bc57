"""Gateways for the client libraries, which are installed by `requirements-clients.txt` (see `.ci/run`)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

HERE = Path(__file__).parent
MCP_SERVER = HERE.parent / "plugins" / "mcp" / "mcp_example_server.py"


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """Scripted models in two families, `demo` (Qwen's) and `harmony`, and an MCP server that is called `example`.

    `demo` answers to names of OpenAI's too: several clients send other requests to models that are called so.
    """
    folder = tmp_path_factory.mktemp("clients")
    scenario = str(HERE / "scenario.json")
    config: dict[str, Any] = {
        "models": {
            "demo": {
                "engine": "scripted",
                "path": scenario,
                "aliases": ["gpt-4o", "gpt-5", "gpt-5.5", "gpt-6-sol"],
            },
            "harmony": {
                "engine": "scripted",
                "path": scenario,
                "renderer": "harmony",
                "parser": "harmony",
            },
        },
        "tools": {
            "mcp": {"servers": {"example": {"command": [sys.executable, str(MCP_SERVER), "stdio"]}}}
        },
    }
    with run_gateway(config, folder) as running:
        yield running


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """The tiny model on llama.cpp, as `tiny`."""
    config = {"models": {"tiny": {"engine": "llamacpp", "sampling": {"temperature": 0}}}}
    with run_gateway(config, tmp_path_factory.mktemp("tiny")) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Any]:
    """The official SDK, as the test's environment has it."""
    with gateway.client() as client:
        yield client


@pytest.fixture
async def aclient(gateway: RunningGateway) -> AsyncIterator[Any]:
    """The same, asynchronous."""
    async with gateway.async_client() as client:
        yield client


@pytest.fixture(params=["demo", "harmony"])
def family(request: pytest.FixtureRequest) -> str:
    """A model of each family of prompts and outputs."""
    return str(request.param)


@pytest.fixture
def told(gateway: RunningGateway) -> Any:
    """`told(model)` is the prompt of the model's latest generation, as text."""

    def text(model: str = "demo") -> str:
        served = gateway.services.models
        engine: Any = served[model if model in served else "demo"].engine
        return str(engine.tokenizer.decode(engine.requests[-1].prompt.token_ids))

    return text


@pytest.fixture
def until_idle(gateway: RunningGateway) -> Any:
    """`until_idle()` waits until the model does nothing: less long than its slowest script, of three minutes, takes."""

    def wait() -> None:
        engine: Any = gateway.services.models["demo"].engine
        wait_until(lambda: not engine.running, "no generation goes on that nobody waits for")

    return wait


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder with the npm packages, which `LITEGATE_NODE_MODULES` names."""
    folder = os.environ.get("LITEGATE_NODE_MODULES")
    if not folder:
        pytest.skip("LITEGATE_NODE_MODULES does not say where npm packages are installed")
    if shutil.which("node") is None:
        pytest.skip("there is no node here")
    return Path(folder)


class Claude:
    """`claude -p`, Claude Code without its window, with a home of its own, in the folder that it may write to.

    `retries` is how often it tries a failed request again.
    """

    def __init__(self, command: Path, base_url: str, home: Path, work: Path) -> None:
        self.retries = 0
        self._command = command
        self._work = work
        self._environment = {
            **{key: value for key, value in os.environ.items() if "CLAUDE" not in key},
            "HOME": str(home),
            "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
            "ANTHROPIC_AUTH_TOKEN": "none",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": "demo",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
        }

    def started(self, prompt: str, *options: str, model: str = "demo") -> subprocess.Popen[str]:
        """A run, in a process group of its own."""
        return subprocess.Popen(
            [str(self._command), "-p", prompt, "--model", model, "--output-format", "stream-json",
             "--verbose", "--dangerously-skip-permissions", *options],
            cwd=self._work,
            env={**self._environment, "CLAUDE_CODE_MAX_RETRIES": str(self.retries)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )  # fmt: skip

    def events(self, prompt: str, *options: str, model: str = "demo") -> list[dict[str, Any]]:
        """The events of one run, whose last one is its result."""
        with self.started(prompt, *options, model=model) as process:
            out, err = process.communicate(timeout=300)
        events = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        assert [event for event in events if event["type"] == "result"], (out, err)
        return events

    def use_key(self, key: str) -> None:
        """Send this key from now on."""
        self._environment["ANTHROPIC_AUTH_TOKEN"] = key

    def run(self, prompt: str, *options: str, model: str = "demo") -> dict[str, Any]:
        """The result of one run."""
        events = self.events(prompt, *options, model=model)
        return [event for event in events if event["type"] == "result"][-1]


@pytest.fixture
def claude_at(node_modules: Path, tmp_path: Path) -> Any:
    """`claude_at(base_url, folder)`: a `Claude` that asks this gateway and works in this folder."""
    pytest.importorskip("gateway_messages", reason="the plugin messages is not installed")
    command = node_modules / ".bin" / "claude"
    if not command.exists():
        pytest.skip("@anthropic-ai/claude-code is not installed there")
    try:
        subprocess.run([str(command), "--version"], check=True, capture_output=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"Claude Code does not run here: {error}")
    home = tmp_path / "claude"
    home.mkdir()
    return lambda base_url, folder: Claude(command, base_url, home, folder)
