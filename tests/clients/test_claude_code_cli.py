"""Claude Code, `claude -p`, against a running gateway: its tools, its sub-agents, its sessions, its shortening of them."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.testing.server import RunningGateway, run_gateway

MCP_SERVER = Path(__file__).parent.parent / "plugins" / "mcp" / "mcp_example_server.py"
RED_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
# Its own prompt is long: what a rule waits for must not occur in it.
RULES: list[dict[str, Any]] = [
    {"when": "zebra, hello", "pieces": [{"reasoning": "Hm."}, {"text": "Hello from the zebra."}]},
    {"when": "zebra, run two commands", "pieces": [
        {"reasoning": "A shell will do."},
        {"text": "I run both."},
        {"call": {"name": "Bash", "arguments": {"command": "echo one-$((1 + 1))"}}},
        {"call": {"name": "Bash", "arguments": {"command": "echo two-$((1 + 2))"}}}]},
    {"when": "two-3", "pieces": [{"text": "Both have run."}]},
    {"when": "zebra, write", "pieces": [
        {"call": {"name": "Write", "arguments": {"file_path": "FOLDER/made.txt", "content": "by the model\n"}}}]},
    {"when": "File created successfully", "pieces": [{"text": "The file is made."}]},
    {"when": "zebra, look", "pieces": [{"call": {"name": "Read", "arguments": {"file_path": "FOLDER/red.png"}}}]},
    {"when": "media removed", "pieces": [{"text": "I cannot see it."}]},
    {"when": "zebra, find", "pieces": [{"call": {"name": "ToolSearch", "arguments": {"query": "select:NotebookEdit"}}}]},
    {"when": "The tool NotebookEdit is available", "pieces": [{"text": "I found it."}]},
    {"when": "zebra, delegate", "pieces": [
        {"call": {"name": "Agent", "arguments": {
            "description": "Say hello", "prompt": "zebra, hello", "subagent_type": "general-purpose"}}}]},
    {"when": "zebra, add", "pieces": [{"call": {"name": "mcp__example__add", "arguments": {"a": 2, "b": 3}}}]},
    {"when": "The sum is 5", "pieces": [{"text": "It is five."}]},
    {"when": "zebra, form", "pieces": [{"call": {"name": "StructuredOutput", "arguments": {"done": True}}}]},
    {"when": "zebra, once more", "pieces": [{"text": "As I said."}]},
    {"when": "zebra, read much", "pieces": [{"call": {"name": "Bash", "arguments": {"command": "seq 10000 14900; echo END-1"}}}]},
    {"when": "END-1", "pieces": [{"call": {"name": "Bash", "arguments": {"command": "seq 10000 14900; echo END-2"}}}]},
    {"when": "create a detailed summary", "pieces": [{"text": "<summary>Numbers.</summary>"}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("claude")


@pytest.fixture(scope="module")
def serving(folder: Path) -> Iterator[RunningGateway]:
    rules = json.loads(json.dumps(RULES).replace("FOLDER", str(folder)))
    model = {"engine": "scripted", "scripted": {"rules": rules}}
    small = {**model, "max_model_len": 40_000}
    config = {"models": {"demo": {**model, "aliases": ["claude-opus-4-5"]}, "small": small}}
    with run_gateway(config, folder) as running:
        yield running


@pytest.fixture
def claude(claude_at: Any, serving: RunningGateway, folder: Path) -> Any:
    return claude_at(serving.base_url, folder)


def refused(serving: RunningGateway) -> list[str]:
    """The counters of requests that were not answered with 200."""
    text = httpx.get(serving.base_url.removesuffix("/v1") + "/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("gateway_requests_total")]
    return [line for line in lines if "/v1/messages" in line and 'status="200"' not in line]


@pytest.mark.parametrize("model", ["demo", "claude-opus-4-5"])
def test_it_answers_and_counts(claude: Any, model: str) -> None:
    """Of models that it knows it asks for thinking by a budget, of others for thinking as they like."""
    result = claude.run("zebra, hello", model=model)
    assert result["result"] == "Hello from the zebra."
    assert result["usage"]["input_tokens"] > 1000
    assert result["usage"]["output_tokens_details"]["thinking_tokens"] > 0


def test_it_calls_its_tools_and_answers_from_them(
    claude: Any, serving: RunningGateway, folder: Path
) -> None:
    before = refused(serving)
    assert claude.run("zebra, run two commands")["result"] == "Both have run."
    assert claude.run("zebra, write")["result"] == "The file is made."
    assert (folder / "made.txt").read_text() == "by the model\n"
    assert refused(serving) == before, "everything that it asks for is taken at the first try"


def test_a_session_goes_on(claude: Any, serving: RunningGateway) -> None:
    claude.run("zebra, run two commands")
    assert claude.run("zebra, once more", "--continue")["result"] == "As I said."
    engine: Any = serving.services.models["demo"].engine
    prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "one-2" in prompt
    assert "Both have run." in prompt


def test_it_finds_tools_that_were_not_told(claude: Any) -> None:
    assert claude.run("zebra, find")["result"] == "I found it."


def test_it_delegates_to_another_agent(claude: Any) -> None:
    result = claude.run("zebra, delegate")
    assert result["result"] == "Hello from the zebra."
    assert result["subagent_stats"]["completed"] == 1


def test_it_calls_tools_of_its_mcp_servers(claude: Any) -> None:
    server = {"command": sys.executable, "args": [str(MCP_SERVER), "stdio"]}
    config = json.dumps({"mcpServers": {"example": server}})
    assert claude.run("zebra, add", "--mcp-config", config)["result"] == "It is five."


def test_a_schema_is_kept(claude: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"done": {"type": "boolean"}},
        "required": ["done"],
    }
    result = claude.run("zebra, form", "--json-schema", json.dumps(schema))
    assert result["structured_output"] == {"done": True}


def test_a_conversation_that_is_too_long_is_shortened(claude: Any, serving: RunningGateway) -> None:
    """It goes by the words of the error: with others it would give up."""
    claude.run("zebra, read much", "--max-turns", "3", model="small")
    engine: Any = serving.services.models["small"].engine
    prompts = [engine.tokenizer.decode(each.prompt.token_ids) for each in engine.requests]
    assert [prompt for prompt in prompts if "create a detailed summary" in prompt]


def test_an_image_that_the_model_cannot_see_does_not_end_the_session(
    claude: Any, folder: Path
) -> None:
    """It goes by the words of the error here too, and sends the conversation without it."""
    (folder / "red.png").write_bytes(base64.b64decode(RED_PNG))
    assert claude.run("zebra, look")["result"] == "I cannot see it."
    assert claude.run("zebra, once more", "--continue")["result"] == "As I said."


def test_a_model_that_is_not_there_is_told_of(claude: Any) -> None:
    result = claude.run("zebra, hello", model="nobody")
    assert result["is_error"]
    assert "nobody" in result["result"]
