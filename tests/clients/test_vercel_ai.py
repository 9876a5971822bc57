"""The Vercel AI SDK, by node, with its models for each of the gateway's APIs, against a running gateway."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.server import RunningGateway

SCRIPT = Path(__file__).parent / "vercel.mjs"
ADA = {"name": "Ada", "age": 36}


PACKAGES = ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "@ai-sdk/anthropic")


@pytest.fixture(params=["responses", "chat", "compatible", "messages"])
def api(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(node_modules: Path, gateway: RunningGateway, tmp_path: Path) -> Callable[..., Any]:
    """`run(api, case)`: what a case of the script says."""
    for package in PACKAGES:
        if not (node_modules / package).exists():
            pytest.skip(f"the npm package {package} is not installed there")
    (tmp_path / "node_modules").symlink_to(node_modules.resolve())  # where node looks for them
    script = shutil.copy(SCRIPT, tmp_path)

    def run(api: str, case: str) -> Any:
        done = subprocess.run(
            ["node", str(script), gateway.base_url, api, case],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_tool_is_called_and_answered_from(run: Any, api: str) -> None:
    said = run(api, "generate")
    assert (said["text"], said["steps"]) == ("It is 18 degrees.", 2)
    assert said["inputTokens"] > said["outputTokens"] > 0
    if api != "messages":  # which limits the answers of models that it does not know
        assert said["warnings"] == []


def test_a_stream_has_every_part(run: Any, api: str) -> None:
    said = run(api, "stream")
    assert said["text"] == "It is 18 degrees in both."
    assert said["errors"] == []
    assert said["finish"] == "stop"
    assert said["outputTokens"] > 0
    kinds = said["kinds"]
    assert kinds["tool-call"] == kinds["tool-result"] == kinds["tool-input-end"] == 2
    assert kinds["tool-input-delta"] > 2
    assert kinds["text-start"] == kinds["text-end"] == 2
    assert kinds["text-delta"] > 4


@pytest.mark.parametrize("api", ["responses", "compatible", "messages"])
def test_reasoning_is_streamed_apart(run: Any, api: str) -> None:
    """Its text is seen where no summary is wanted; OpenAI's chat model knows no reasoning."""
    said = run(api, "think")
    assert said["text"] == "Done thinking."
    assert said["errors"] == []
    assert said["kinds"]["reasoning-start"] == said["kinds"]["reasoning-end"] == 1
    if api != "responses":
        assert said["thoughts"] == ["Hm.\nWell."] * 2


def test_reasoning_is_seen_as_a_summary(run: Any) -> None:
    said = run("responses", "summary")
    assert said["thought"] == said["streamed"] == "Hm.\nWell."
    assert said["errors"] == []
    kinds = said["kinds"]
    assert kinds["reasoning-start"] == kinds["reasoning-end"] == 1
    assert kinds["reasoning-delta"] > 1


def test_summaries_come_back_and_are_read_once(run: Any, told: Any) -> None:
    """As references to what is stored, and sealed."""
    assert run("responses", "summaries") == {"texts": ["It is 18 degrees."] * 2}
    assert told().count("There is a tool for the weather.") == 1


def test_the_history_goes_round(run: Any, api: str, told: Any) -> None:
    """Of Responses as references to what is stored."""
    assert run(api, "history") == {"text": "As I said."}
    assert "18 degrees in Paris" in told()
    if api == "responses":
        assert "get_weather" in told()


def test_reasoning_goes_round_without_a_store(run: Any, told: Any) -> None:
    assert run("responses", "stateless") == {"text": "It is 18 degrees.", "steps": 2}
    assert "There is a tool for the weather." in told()


def test_previous_responses_are_remembered(run: Any, told: Any) -> None:
    assert run("responses", "previous") == {"text": "As I said."}
    assert told().count("weather in Paris") == 1


@pytest.mark.parametrize("case", ["object", "streamedObject", "output"])
def test_objects_are_made(run: Any, api: str, case: str) -> None:
    said = run(api, case)
    assert said["object"] == ADA
    if case == "streamedObject" and api != "messages":  # which has the object in one piece
        assert said["parts"] > 1


def test_calls_are_forced(run: Any, api: str) -> None:
    assert run(api, "forced") == {"calls": ["get_weather", "get_weather"]}


@pytest.mark.parametrize("case", ["known", "settings"])
def test_settings_are_taken(run: Any, api: str, case: str) -> None:
    assert run(api, case) == {"text": "Done thinking."}


def test_tools_of_openai_that_the_client_runs(run: Any) -> None:
    """Plain, streamed, and with their items sent back, by reference and whole."""
    said = run("responses", "clientTools")
    assert len(said) == 4
    for each in said.values():
        assert each == {"texts": ["The command said 42."] * 2 + ["As I said."] * 2, "errors": []}


def test_tools_of_a_configured_mcp_server(run: Any) -> None:
    """By `connectorId`: this SDK sends no label alone, and reads no null in the list of tools."""
    said = run("responses", "mcp")
    assert said == {"texts": ["It is five."] * 2 + ["As I said."] * 2, "errors": []}


def test_calls_of_an_mcp_server_are_approved_or_not(run: Any) -> None:
    assert run("responses", "approval") == {"said": ["It is five.", "As you wish."]}


def test_aborting_ends_the_generation(run: Any, api: str, until_idle: Any) -> None:
    assert run(api, "abort")["seen"] >= 3
    until_idle()


def test_a_failure_in_mid_stream_is_an_error(run: Any, api: str) -> None:
    said = run(api, "broken")
    assert said["kinds"]["error"] == 1
    assert "failed" in said["errors"][0]


def test_a_refusal_has_its_status_and_sentence(run: Any, api: str) -> None:
    said = run(api, "refused")
    assert said["status"] == 404
    assert "nobody" in said["message"]
    assert said["retryable"] is False
