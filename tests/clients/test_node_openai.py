"""OpenAI's SDK for JavaScript, by node, against a running gateway."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.server import RunningGateway

SCRIPT = Path(__file__).parent / "openai_sdk.mjs"
ADA = {"name": "Ada", "age": 36}


@pytest.fixture
def run(node_modules: Path, gateway: RunningGateway, tmp_path: Path) -> Callable[[str], Any]:
    """`run(case)`: what a case of the script says."""
    if not (node_modules / "openai").exists() or not (node_modules / "zod").exists():
        pytest.skip("the npm packages openai and zod are not installed there")
    (tmp_path / "node_modules").symlink_to(node_modules.resolve())  # where node looks for them
    script = shutil.copy(SCRIPT, tmp_path)

    def run(case: str) -> Any:
        done = subprocess.run(
            ["node", str(script), gateway.base_url, case],
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_a_tool_round_trip(run: Any) -> None:
    said = run("roundTrip")
    assert said["texts"] == ["It is 18 degrees."] * 2
    assert said["requestId"].startswith("req_")


def test_a_stream_its_accumulator_and_what_is_stored(run: Any) -> None:
    said = run("stream")
    assert said["types"] == ["reasoning", "function_call"]
    assert said["parsed"] == json.loads(said["deltas"]) == {"city": "Paris"}
    assert said["kinds"]["response.output_item.added"] == 2
    assert said["kinds"]["response.completed"] == 1
    assert said["sameIds"]
    assert said["inOrder"]
    assert said["text"] == "Done thinking."


def test_parsed_output(run: Any) -> None:
    """Of Responses plain and streamed, and of Chat Completions."""
    assert run("parse") == [ADA] * 3


def test_the_tool_runner_of_responses(run: Any) -> None:
    """Plain, streamed, and with the tools run while the stream goes on."""
    assert run("responsesRunner") == {"texts": ["It is 18 degrees in both."] * 3}


def test_the_tool_runner_of_chat(run: Any) -> None:
    said = run("chatRunner")
    assert said["texts"] == ["It is 18 degrees in both."] * 2
    assert said["results"] == ["18 degrees in Oslo", "18 degrees in Rome"]
    assert said["roles"] == ["user", "assistant", "tool", "tool", "assistant"]
    assert said["usage"] > 0


def test_chat_is_streamed(run: Any) -> None:
    said = run("chatStream")
    assert (said["text"], said["finish"]) == ("I look at both.", "tool_calls")
    assert said["calls"] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert said["usage"] > 0
    assert said["relayed"] == "As I said."


def test_a_started_stream_is_taken_up_again(run: Any) -> None:
    assert run("resumed") == {
        "first": 1,
        "last": "response.completed",
        "numbers": [3, 4],
        "text": "some words " * 5,
    }


def test_a_background_run_is_waited_for_cancelled_and_deleted(run: Any) -> None:
    assert run("background") == {"text": "As I said.", "cancelled": "cancelled", "gone": 404}


def test_input_items_are_paged_and_counted(run: Any) -> None:
    said = run("inputItems")
    assert said["up"] == ["one", "two", "three", "and once more"]
    assert said["down"] == said["up"][::-1]
    assert said["tokens"] > 4


def test_conversations(run: Any) -> None:
    assert run("conversations") == {
        "roles": ["user", "user", "assistant", "user"],
        "same": True,
        "metadata": {"b": "2"},
        "deleted": True,
        "gone": 404,
    }


def test_stored_completions(run: Any) -> None:
    assert run("storedChat") == {
        "listed": True,
        "metadata": {"run": "again"},
        "kept": ["and once more"],
        "deleted": True,
    }


def test_completions_and_models(run: Any) -> None:
    said = run("completions")
    assert said["same"]
    assert said["text"] == "As I said."
    assert said["listed"] == ["demo", "harmony"]
    assert said["one"] == "demo"


def test_embeddings_are_the_same_as_bytes_and_as_numbers(run: Any) -> None:
    said = run("embeddings")
    assert said["count"] == 2
    assert said["size"] > 1
    assert said["apart"] < 1e-6


def test_failures_are_errors_of_their_kind(run: Any) -> None:
    said = run("failures")
    assert said.pop("stream") == "failed", "the final response says it"
    assert {
        case: (each["kind"], each.get("status"), each.get("code"), each.get("param"))
        for case, each in said.items()
    } == {
        "model": ("NotFoundError", 404, "model_not_found", "model"),
        "value": ("BadRequestError", 400, "decimal_above_max_value", "temperature"),
        "busy": ("RateLimitError", 429, "rate_limit_exceeded", None),
        "engine": ("InternalServerError", 500, "server_error", None),
        "broken": ("APIError", None, "server_error", None),
        "cut": ("LengthFinishReasonError", None, None, None),
    }
    assert all(each["hasRequestId"] for case, each in said.items() if case != "cut")


def test_responses_over_a_web_socket(run: Any, node_modules: Path) -> None:
    if not (node_modules / "ws").exists():
        pytest.skip("the npm package ws is not installed there")
    assert run("socket") == {"texts": ["Done thinking.", "As I said."]}


def test_aborting_ends_the_generation(run: Any, until_idle: Any) -> None:
    assert run("aborted") == {"seen": [8, 8], "plain": "APIUserAbortError"}
    until_idle()
