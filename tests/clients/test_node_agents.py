"""openai-agents and LangChain for JavaScript, by node, against a running gateway."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.server import RunningGateway

HERE = Path(__file__).parent
ADA = {"name": "Ada", "age": 36}


@pytest.fixture
def run(node_modules: Path, gateway: RunningGateway, tmp_path: Path) -> Any:
    """`run(script, package, api)`: what the script says."""

    def run(script: str, package: str, api: str) -> Any:
        if not (node_modules / package).exists():
            pytest.skip(f"the npm package {package} is not installed there")
        (tmp_path / "node_modules").symlink_to(node_modules.resolve())
        done = subprocess.run(
            ["node", shutil.copy(HERE / script, tmp_path), gateway.base_url, api],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("api", ["responses", "chat"])
def test_openai_agents(run: Any, api: str) -> None:
    """With its sessions, MCP servers, approvals and OpenAI's shell and patches where it speaks Responses."""
    said = run("agents.mjs", "@openai/agents", api)
    text, final = said.pop("streamed")
    assert final == "It is 18 degrees."
    assert final in text
    assert {key: said.pop(key) for key in ("tools", "output", "handoff", "history")} == {
        "tools": "It is 18 degrees in both.",
        "output": ADA,
        "handoff": "spanish",
        "history": "As I said.",
    }
    assert said == (
        {}
        if api == "chat"
        else {
            "previous": "As I said.",
            "session": "As I said.",
            "mcp": "It is five.",
            "approval": ["It is five.", "As you wish."],
            "shell": "The command said 42.",
            "patch": "The command said 42.",
        }
    )


@pytest.mark.parametrize("api", ["chat", "responses", "stateless"])
def test_langchain(run: Any, api: str) -> None:
    """`stateless` sends reasoning back sealed."""
    said = run("langchain.mjs", "@langchain/openai", api)
    assert said.pop("usage") > 0
    assert said == {
        "texts": ["Done thinking."] * 2,
        "plainTools": "It is 18 degrees in both.",
        "streamedTools": "It is 18 degrees.",
        "object": ADA,
        "called": ADA,
        "vectors": 2,
        "failure": 429,
    }
