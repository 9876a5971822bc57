"""Claude Code, `claude -p`, against a running gateway: its tools, its sub-agents, its sessions, its shortening of them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

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
    {"when": "which this model cannot see", "pieces": [{"text": "I cannot see it."}]},
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
    """It keeps what its tools have shown, and sends it with every request."""
    (folder / "red.png").write_bytes(base64.b64decode(RED_PNG))
    assert claude.run("zebra, look")["result"] == "I cannot see it."
    assert claude.run("zebra, once more", "--continue")["result"] == "As I said."


def test_a_model_that_is_not_there_is_told_of(claude: Any) -> None:
    result = claude.run("zebra, hello", model="nobody")
    assert result["is_error"]
    assert "nobody" in result["result"]


KEY = "sk-litegate-0123456789abcdef"
ERROR = "<tool_use_error>"
FAULTS: list[dict[str, Any]] = [
    {"when": "zebra, hello", "pieces": [{"text": "Hello."}]},
    {"when": "zebra, crash", "pieces": [
        {"text": "So far."}, {"raw": '<tool_call>\n{"name": "Bash", "arguments": {"command": "touch half'}], "finish": "crash"},
    {"when": "zebra, half a call", "pieces": [
        {"text": "So far."}, {"raw": '<tool_call>\n{"name": "Bash", "arguments": {"command": "touch half'}], "finish": "error"},
    {"when": "cut off mid-stream", "pieces": [{"text": "And further."}]},
    {"when": "zebra, no JSON", "pieces": [{"call": {"name": "Bash", "arguments": '{"command": "touch '}}]},
    {"when": "zebra, no room", "pieces": [
        {"raw": '<tool_call>\n{"name": "Bash", "arguments": {"command": "touch half'}], "finish": "length"},
    {"when": f"{ERROR}InputValidationError", "pieces": [{"text": "I write it anew."}]},
    {"when": "zebra, no tool", "pieces": [{"call": {"name": "NoSuchTool", "arguments": {}}}]},
    {"when": f"{ERROR}Error: No such tool", "pieces": [{"text": "There is no such tool."}]},
    {"when": "zebra, much", "pieces": [{"call": {"name": "Bash", "arguments": {"command": "seq 1 200000"}}}]},
    {"when": "Output too large", "pieces": [{"text": "That is long."}]},
    {"when": "zebra, for ever", "pieces": [{"text": "word "}], "repeat": 10_000, "delay_ms": 20},
]  # fmt: skip


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose model fails in several ways, and a key with a limit beside one without."""
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    free = {"name": "free", "sha256": hashlib.sha256(b"none").hexdigest()}
    limited = {"name": "limited", "sha256": digest, "requests_per_minute": 20}
    config = {
        "server": {"api_keys": [free, limited]},
        "models": {
            "demo": {"engine": "scripted", "scripted": {"rules": FAULTS, "recover_after": 0.1}}
        },
    }
    with run_gateway(config, tmp_path_factory.mktemp("failing")) as running:
        yield running


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("zebra, crash", "And further."),
        ("zebra, half a call", "And further."),
        ("zebra, no JSON", "I write it anew."),
        ("zebra, no room", "I write it anew."),
        ("zebra, no tool", "There is no such tool."),
        ("zebra, much", "That is long."),
    ],
)
def test_a_turn_ends_well_whatever_the_model_does(
    claude_at: Any, failing: RunningGateway, tmp_path: Path, prompt: str, said: str
) -> None:
    """An engine that dies, and one that fails, amid a call, arguments that are no JSON, a call that was cut off, a
    tool that does not exist, and a result that is longer than what Claude Code sends."""
    claude = claude_at(failing.base_url, tmp_path)
    claude.retries = 3
    assert claude.run(prompt)["result"] == said
    assert not (tmp_path / "half").exists()


def test_it_waits_as_long_as_the_limit_of_its_key_says(
    claude_at: Any, failing: RunningGateway, tmp_path: Path
) -> None:
    body = {
        "model": "demo",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "zebra, hello"}],
    }
    headers = {"x-api-key": KEY}
    while httpx.post(f"{failing.base_url}/messages", json=body, headers=headers).status_code == 200:
        pass
    claude = claude_at(failing.base_url, tmp_path)
    claude.use_key(KEY)
    claude.retries = 3
    assert claude.run("zebra, hello")["result"] == "Hello."


def test_an_interrupted_turn_ends_its_generation(
    claude_at: Any, failing: RunningGateway, tmp_path: Path
) -> None:
    engine: Any = failing.services.models["demo"].engine
    with claude_at(failing.base_url, tmp_path).started("zebra, for ever") as process:
        wait_until(lambda: engine.running, "the model writes")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    wait_until(lambda: not engine.running, "nothing goes on that nobody waits for")
