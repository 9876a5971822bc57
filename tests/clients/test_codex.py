"""Codex CLI, `codex exec`, against a running gateway: its tool loop, its patches, its schemas, its sessions."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.waiting import wait_until

CONFIG = """
model = "{model}"
model_provider = "litegate"
web_search = "{search}"
{settings}
[model_providers.litegate]
name = "{name}"
base_url = "{url}"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
{provider}
[mcp_servers]
{servers}
"""
SCENARIO = Path(__file__).parent / "scenario.json"
MCP_SERVER = Path(__file__).parent.parent / "plugins" / "mcp" / "mcp_example_server.py"
RED_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEklEQVR4nGP4z8CAFWEXHbQSACj/P8Fu7N9hAAAAAElFTkSuQmCC"
FREE = "--dangerously-bypass-approvals-and-sandbox"  # this machine may have no sandbox to offer


class Codex:
    """The command with a home and a working folder of its own.

    `settings`, `provider` and `servers` are further lines of its configuration: its own, of the gateway, and of MCP servers;
    `retries` is how often it tries a failed request, and a broken stream, again.
    """

    def __init__(self, command: Path, url: str, folder: Path) -> None:
        self._command = command
        self.url = url
        self.name = "litegate"
        self.settings = ""
        self.provider = ""
        self.servers = ""
        self.retries = 0
        self.home = folder / "home"
        self.work = folder / "work"
        self.home.mkdir()
        self.work.mkdir()

    def run(self, *arguments: str, model: str = "demo") -> list[dict[str, Any]]:
        """The events of one `codex exec` that may do all; it must succeed."""
        done, events = self.try_to_run(FREE, *arguments, model=model)
        assert done.returncode == 0, (done.stderr, events)
        assert not [event for event in events if event["type"] in ("error", "turn.failed")], events
        return events

    def try_to_run(
        self, *arguments: str, model: str = "demo", search: str = "disabled"
    ) -> tuple[subprocess.CompletedProcess[str], list[dict[str, Any]]]:
        """The events of one `codex exec`, and how it ended."""
        with self.started(*arguments, model=model, search=search) as process:
            out, err = process.communicate(timeout=300)
        done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
        lines = done.stdout.splitlines()
        return done, [json.loads(line) for line in lines if line.startswith("{")]

    def started(
        self, *arguments: str, model: str = "demo", search: str = "disabled"
    ) -> subprocess.Popen[str]:
        """A `codex exec` that runs, in a process group of its own."""
        config = CONFIG.format(
            model=model,
            url=self.url,
            search=search,
            name=self.name,
            settings=self.settings,
            provider=self.provider,
            servers=self.servers,
        )
        if self.retries:
            config = config.replace("_retries = 0", f"_retries = {self.retries}")
        (self.home / "config.toml").write_text(config)
        return subprocess.Popen(
            [str(self._command), "exec", "--json", "--skip-git-repo-check", *arguments],
            cwd=self.work,
            env={**os.environ, "CODEX_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def debug(self, subject: str) -> Any:
        """What `codex debug` shows, with the configuration of the last run."""
        done = subprocess.run(
            [str(self._command), "debug", subject],
            cwd=self.work,
            env={**os.environ, "CODEX_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def items(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The finished items of one type, without warnings about the model's name."""
    done = [event["item"] for event in events if event["type"] == "item.completed"]
    return [item for item in done if item["type"] == kind]


def answer(events: list[dict[str, Any]]) -> str:
    text: str = items(events, "agent_message")[-1]["text"]
    return text


@pytest.fixture
def codex(node_modules: Path, gateway: RunningGateway, tmp_path: Path) -> Codex:
    command = node_modules / ".bin" / "codex"
    if not command.exists():
        pytest.skip("@openai/codex is not installed there")
    return Codex(command, gateway.base_url, tmp_path)


def test_it_answers_and_counts(codex: Codex) -> None:
    """As it is configured by default: a sandbox, and a web search without access to the web."""
    done, events = codex.try_to_run("think first", search="cached")
    assert done.returncode == 0, events
    assert answer(events) == "Done thinking."
    assert [item["text"] for item in items(events, "reasoning")] == ["Hm.\nWell."]
    usage = events[-1]["usage"]
    assert usage["input_tokens"] > 1000
    assert usage["output_tokens"] > 0


@pytest.mark.parametrize("model", ["demo", "gpt-5.5"])
def test_it_runs_a_command_and_answers_from_it(codex: Codex, told: Any, model: str) -> None:
    events = codex.run("run a command", model=model)
    assert [item["text"] for item in items(events, "agent_message")] == [
        "I run it.",
        "The command said 42.",
    ]
    (command,) = items(events, "command_execution")
    assert "made-by-42" in command["aggregated_output"]
    assert command["exit_code"] == 0
    assert "The shell will tell." in told()


def test_it_applies_a_patch(codex: Codex) -> None:
    """With a free-text tool, which it has for models that it knows."""
    events = codex.run("apply this patch", model="gpt-5.5")
    assert (codex.work / "made.txt").read_text() == "by the model\n"
    assert answer(events) == "The file is made."


def test_it_runs_code_that_calls_its_tools(codex: Codex) -> None:
    """As it asks the latest models: all tools come with an item, in namespaces, and the first is a free-text one."""
    assert answer(codex.run("run some code", model="gpt-6-sol")) == "The command said 42."


def test_a_search_that_nobody_runs_is_told_of(codex: Codex) -> None:
    """Where it may do all, it asks for a live search; a server without one says so, and what to do."""
    done, events = codex.try_to_run(FREE, "think first", search="live")
    assert done.returncode != 0
    assert "Tools of type 'web_search' are not available" in json.dumps(events)


def test_a_search_that_nobody_runs_is_left_out_where_the_server_says_so(
    codex: Codex, tmp_path: Path
) -> None:
    config = {
        "server": {"unavailable_tools": "omit"},
        "models": {"demo": {"engine": "scripted", "path": str(SCENARIO)}},
    }
    with run_gateway(config, tmp_path) as omitting:
        codex.url = omitting.base_url
        done, events = codex.try_to_run(FREE, "think first", search="live")
    assert done.returncode == 0, events
    assert answer(events) == "Done thinking."


def test_a_schema_is_kept(codex: Codex, tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        json.dumps(
            {
                "type": "object",
                "properties": {"done": {"type": "boolean"}},
                "required": ["done"],
                "additionalProperties": False,
            }
        )
    )
    events = codex.run("--output-schema", str(schema), "anything")
    assert set(json.loads(answer(events))) == {"done"}


def test_a_session_goes_on(codex: Codex, told: Any) -> None:
    codex.run("run a command")
    events = codex.run("resume", "--last", "and once more")
    assert answer(events) == "As I said."
    assert "made-by-42" in told()


def test_commands_and_patches_of_one_session_are_remembered(codex: Codex, told: Any) -> None:
    """Each run sends all items of those before it: calls of functions and of free-text tools, outputs, sealed thoughts."""
    codex.run("run a command", model="gpt-5.5")
    codex.run("resume", "--last", "apply this patch", model="gpt-5.5")
    events = codex.run("resume", "--last", "and once more", model="gpt-5.5")
    assert answer(events) == "As I said."
    prompt = told()
    for said in (
        "The shell will tell.",
        "made-by-42",
        "*** Add File: made.txt",
        "Success. Updated",
    ):
        assert said in prompt


def test_it_speaks_over_a_web_socket(codex: Codex, gateway: RunningGateway) -> None:
    """Its turns are answered, and none was a request of its own."""

    def counted(name: str) -> float:
        text = httpx.get(gateway.base_url.removesuffix("/v1") + "/metrics").text
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    posts, made = 'gateway_requests_total{route="/v1/responses"', "gateway_responses_total"
    before = counted(posts), counted(made)
    codex.provider = "supports_websockets = true"
    assert answer(codex.run("run a command")) == "The command said 42."
    assert counted(posts) == before[0]
    assert counted(made) >= before[1] + 2  # and one that warms the prompt


@pytest.mark.parametrize(
    ("model", "prompt"), [("demo", "use the adder"), ("gpt-5.5", "look for an adder")]
)
def test_it_calls_tools_of_its_mcp_servers(codex: Codex, model: str, prompt: str) -> None:
    """Told in a namespace, or found by a search that Codex runs and answers with the tools."""
    arguments = json.dumps([str(MCP_SERVER), "stdio"])
    codex.servers = f'example = {{ command = "{sys.executable}", args = {arguments} }}'
    events = codex.run(prompt, model=model)
    (call,) = items(events, "mcp_tool_call")
    assert (call["server"], call["tool"], call["status"]) == ("example", "add", "completed")
    assert answer(events) == "It is five."


@pytest.mark.parametrize("model", ["demo", "harmony"])
def test_an_image_that_the_model_cannot_see_does_not_end_the_session(
    codex: Codex, model: str
) -> None:
    """It keeps what its tools have shown, and sends it with every request."""
    (codex.work / "red.png").write_bytes(base64.b64decode(RED_PNG))
    assert answer(codex.run("look at the picture", model=model)) == "I cannot see it."
    assert answer(codex.run("resume", "--last", "and once more", model=model)) == "As I said."


def test_a_conversation_that_is_too_long_is_known_as_such(codex: Codex, tmp_path: Path) -> None:
    config = {
        "models": {"demo": {"engine": "scripted", "path": str(SCENARIO), "max_model_len": 4000}}
    }
    with run_gateway(config, tmp_path) as small:
        codex.url = small.base_url
        done, events = codex.try_to_run(FREE, "think first")
    assert done.returncode != 0
    assert "ran out of room in the model's context window" in json.dumps(events)


def test_a_session_that_is_too_long_is_shortened_and_goes_on(codex: Codex, tmp_path: Path) -> None:
    """After the error, Codex asks the model for a summary, in words of its own, before the next turn."""
    rules = [
        {"when": "zebra, print much", "pieces": [
            {"call": {"name": "exec_command", "arguments": {"cmd": "seq 1 200000; echo END-$((40 + 2))"}}}]},
        {"when": "END-42", "pieces": [{"text": "That was long."}]},
        {"when": "CONTEXT CHECKPOINT COMPACTION", "pieces": [{"text": "Ostriches were counted."}]},
        {"when": "zebra, once more", "pieces": [{"text": "As I said."}]},
    ]  # fmt: skip
    model = {"engine": "scripted", "scripted": {"rules": rules}, "max_model_len": 17_000}
    with run_gateway({"models": {"demo": model}}, tmp_path) as small:
        codex.url = small.base_url
        _, events = codex.try_to_run(FREE, "zebra, print much")
        assert "ran out of room" in json.dumps(events)
        assert answer(codex.run("resume", "--last", "zebra, once more")) == "As I said."
        engine: Any = small.services.models["demo"].engine
        prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "Ostriches were counted." in prompt
    assert "END-42" not in prompt


AGENTS: list[dict[str, Any]] = [
    {"when": "zebra, delegate", "pieces": [{"call": {"name": "spawn_agent", "arguments": {
        "task_name": "kid", "message": "giraffe, count the boats", "fork_turns": "none"}}}]},
    {"when": '{"task_name', "pieces": [{"call": {"name": "collaboration.wait_agent", "arguments": {"timeout_ms": 20000}}}]},
    {"when": "Payload:\ngiraffe, count the boats", "pieces": [{"text": "There are seven ostriches."}]},
    {"when": "seven ostriches", "pieces": [{"text": "The kid has counted."}]},
    {"when": "zebra, hello", "pieces": [{"text": "Hello."}]},
    {"when": "replaced by a summary", "pieces": [{"text": "They spoke of ostriches."}]},
    {"when": "zebra, once more", "pieces": [{"text": "As I said."}]},
]  # fmt: skip


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[RunningGateway]:
    """Two models, one by a name for which Codex has its newer tools."""
    model = {"engine": "scripted", "scripted": {"rules": AGENTS}}
    with run_gateway(
        {"models": {"demo": {**model, "aliases": ["gpt-6-sol"]}, "other": model}}, tmp_path
    ) as running:
        yield running


def test_it_delegates_to_another_agent(codex: Codex, agents: RunningGateway) -> None:
    """Its instructions tell the model other names of the tools than their definitions, and models write those."""
    codex.url = agents.base_url
    assert answer(codex.run("zebra, delegate", model="gpt-6-sol")) == "The kid has counted."
    engine: Any = agents.services.models["demo"].engine
    prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "from agent /root/kid to agent /root:" in prompt


def test_a_session_that_was_compacted_goes_on_with_another_model(
    codex: Codex, agents: RunningGateway
) -> None:
    """With this name of the provider, it lets the server compact, and carries what it gets."""
    codex.url = agents.base_url
    codex.name = "OpenAI"
    codex.settings = "model_auto_compact_token_limit = 1000"
    codex.run("zebra, hello")
    codex.run("resume", "--last", "zebra, hello")
    assert answer(codex.run("resume", "--last", "zebra, once more", model="other")) == "As I said."
    engine: Any = agents.services.models["other"].engine
    prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "They spoke of ostriches." in prompt


def test_it_finds_the_models_of_the_gateway(
    agents: RunningGateway, node_modules: Path, tmp_path: Path
) -> None:
    """The list that it asks for with its version replaces its own; it works with what it found there."""
    command = node_modules / ".bin" / "codex"
    if not command.exists():
        pytest.skip("@openai/codex is not installed there")
    codex = Codex(command, agents.base_url, tmp_path)
    codex.settings = "features = { api_key_model_discovery = true }"
    codex.provider = (
        f'model_catalog_url = "{agents.base_url}/models"\nexperimental_bearer_token = "none"'
    )
    codex.run("hello", model="other")
    (codex.work / "red.png").write_bytes(base64.b64decode(RED_PNG))
    codex.run(
        "zebra, hello", "--image", "red.png", model="other"
    )  # it reads there that "other" sees none
    shown = codex.debug("models")
    models = {each["slug"]: each for each in shown["models"]}
    assert set(models) == {"demo", "gpt-6-sol", "other"}
    assert models["other"]["context_window"] == agents.services.models["other"].info.max_model_len


KEY = "sk-litegate-0123456789abcdef"
FAULTS: list[dict[str, Any]] = [
    {"when": "zebra, hello", "pieces": [{"text": "Hello."}]},
    {"when": "zebra, crash", "pieces": [{"text": "So far"}], "finish": "crash"},
    {"when": "So far", "pieces": [{"text": "And further."}]},
    {"when": "zebra, half a call", "pieces": [
        {"raw": '<tool_call>\n{"name": "exec_command", "arguments": {"cmd": "touch half'}], "finish": "error"},
    {"when": "zebra, no JSON", "pieces": [{"call": {"name": "exec_command", "arguments": '{"cmd": "touch '}}]},
    {"when": "failed to parse function arguments", "pieces": [{"text": "I write it anew."}]},
    {"when": "zebra, no tool", "pieces": [{"call": {"name": "no_such_tool", "arguments": {}}}]},
    {"when": "unsupported call", "pieces": [{"text": "There is no such tool."}]},
    {"when": "zebra, two commands", "pieces": [
        {"call": {"name": "exec_command", "arguments": {"cmd": "echo one-$((1 + 1))"}}},
        {"call": {"name": "exec_command", "arguments": {"cmd": "seq 1 200000; echo two-$((1 + 2))"}}}]},
    {"when": "two-3", "pieces": [{"text": "Both have run."}]},
    {"when": "zebra, for ever", "pieces": [{"text": "word "}], "repeat": 10_000, "delay_ms": 20},
    {"when": "zebra, too much", "pieces": [{"text": "word "}], "repeat": 5, "finish": "length"},
]  # fmt: skip


@pytest.fixture
def faults(codex: Codex, tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway whose model fails in several ways, and a key with a limit; Codex tries again as it does by default."""
    limited = {
        "name": "limited",
        "sha256": hashlib.sha256(KEY.encode()).hexdigest(),
        "requests_per_minute": 10,
    }
    config = {
        "server": {"api_keys": [limited]},
        "models": {"demo": {"engine": "scripted", "scripted": {"rules": FAULTS}}},
    }
    with run_gateway(config, tmp_path) as running:
        codex.url = running.base_url
        codex.retries = 5
        codex.provider = f'experimental_bearer_token = "{KEY}"'
        yield running


def ends_with(codex: Codex, prompt: str) -> str:
    """The answer to `prompt`, after which Codex has ended well, whatever it had to try again."""
    done, events = codex.try_to_run(FREE, prompt)
    assert done.returncode == 0, (done.stderr, events)
    return answer(events)


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ("zebra, crash", "And further."),
        ("zebra, half a call", "I write it anew."),
        ("zebra, no JSON", "I write it anew."),
        ("zebra, no tool", "There is no such tool."),
        ("zebra, two commands", "Both have run."),
    ],
)
def test_a_turn_ends_well_whatever_the_model_does(
    codex: Codex, faults: RunningGateway, prompt: str, said: str
) -> None:
    """An engine that dies amid a message and one that dies amid a call, arguments that are no JSON, a tool that does not exist,
    and two calls at once, one of which prints more than Codex keeps."""
    assert ends_with(codex, prompt) == said
    assert not (codex.work / "half").exists()


@pytest.mark.parametrize("socket", [False, True])
def test_it_waits_as_long_as_the_limit_of_its_key_says(
    codex: Codex, faults: RunningGateway, socket: bool
) -> None:
    """Over a WebSocket it would give up at once if it were not told how long."""
    codex.provider += "\nsupports_websockets = true" if socket else ""
    body = {"model": "demo", "input": "zebra, hello", "store": False}
    headers = {"Authorization": f"Bearer {KEY}"}
    while True:
        spent = httpx.post(f"{faults.base_url}/responses", json=body, headers=headers)
        if spent.status_code == 429:
            break
    assert ends_with(codex, "zebra, hello") == "Hello."


def test_an_interrupted_turn_ends_its_generation(codex: Codex, faults: RunningGateway) -> None:
    engine: Any = faults.services.models["demo"].engine
    with codex.started(FREE, "zebra, for ever") as process:
        wait_until(lambda: engine.running, "the model writes")
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    wait_until(lambda: not engine.running, "nothing goes on that nobody waits for")


def test_an_answer_that_was_cut_off_is_told_as_such(codex: Codex, faults: RunningGateway) -> None:
    done, events = codex.try_to_run(FREE, "zebra, too much")
    assert done.returncode != 0
    assert "max_output_tokens" in json.dumps(events)
