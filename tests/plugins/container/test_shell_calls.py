"""`shell` and `container.exec` through a running gateway: streamed, plain, in the background, and what goes wrong."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway
from tests.leaving_client import leaving_client
from tests.plugins import streamed_calls
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

FAMILIES = ("qwen3", "harmony")
TOOLS: Any = [{"type": "shell", "environment": {"type": "container_auto"}}]
streamed = partial(streamed_calls.streamed, tools=TOOLS)


@pytest.mark.parametrize("model", FAMILIES)
def test_a_call_and_its_output_are_two_items(
    container_gateway: RunningGateway, model: str, sandboxes: Any
) -> None:
    events, response = streamed(container_gateway, model, "two commands")
    call, output, message = response["output"]
    assert (call["type"], call["status"]) == ("shell_call", "completed")
    assert call["action"]["commands"] == ["echo o''ne; echo warn >&2", "exit 3"]
    assert call["environment"]["type"] == "container_reference"
    assert call["environment"]["container_id"].startswith("cntr_")
    assert (output["type"], output["status"]) == ("shell_call_output", "completed")
    assert output["call_id"] == call["call_id"]
    assert output["output"] == [
        {"stdout": "one\n", "stderr": "warn\n", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 3}},
    ]
    assert message["content"][0]["text"] == "Both ran."
    kinds = [e["type"].removeprefix("response.") for e in events if e.get("output_index") == 1]
    assert kinds == [
        "output_item.added",
        "shell_call_output_content.delta",
        "shell_call_output_content.done",
        "shell_call_output_content.delta",
        "shell_call_output_content.done",
        "output_item.done",
    ]
    sandboxes.none_left()


@pytest.mark.parametrize("model", FAMILIES)
def test_the_sdk_reads_it_streamed_plain_and_in_the_background(
    container_gateway: RunningGateway, model: str, sandboxes: Any
) -> None:
    asked: Any = {"model": model, "input": "two commands", "tools": TOOLS}
    with container_gateway.client() as client:
        with client.responses.stream(**asked) as stream:
            for _ in stream:
                pass
            first = stream.get_final_response()
        plain = client.responses.create(**asked)
        started = client.responses.create(**asked, background=True)
        wait_until(
            lambda: client.responses.retrieve(started.id).status not in ("queued", "in_progress")
        )
        later = client.responses.retrieve(started.id)
    for response in (first, plain, later):
        assert response.status == "completed"
        assert [item.type for item in response.output] == [
            "shell_call",
            "shell_call_output",
            "message",
        ]
        assert response.output[1].output[0].stdout == "one\n"
    sandboxes.none_left()


@pytest.mark.parametrize("model", FAMILIES)
def test_files_are_kept_within_a_response(container_gateway: RunningGateway, model: str) -> None:
    _, response = streamed(container_gateway, model, "write it")
    assert response["output"][-1]["content"][0]["text"] == "I have read it."


@pytest.mark.parametrize(
    ("asked", "said"),
    [("hang please", "Too slow."), ("nonsense", "I misspoke."), ("be big", "It was long.")],
)
@pytest.mark.parametrize("model", FAMILIES)
def test_what_goes_wrong_is_read_by_the_model(
    container_gateway: RunningGateway, model: str, asked: str, said: str
) -> None:
    _, response = streamed(container_gateway, model, asked)
    assert response["status"] == "completed"
    assert response["output"][-1]["content"][0]["text"] == said
    assert len(response["output"][1]["output"][0]["stdout"]) < 70_000


def test_a_time_limit_of_the_model_is_an_outcome(container_gateway: RunningGateway) -> None:
    _, response = streamed(container_gateway, "qwen3", "hang after a word")
    [outcome] = response["output"][1]["output"]
    assert outcome == {"stdout": "begun\n", "stderr": "", "outcome": {"type": "timeout"}}


def test_calls_at_once_are_told_in_order(container_gateway: RunningGateway) -> None:
    _, response = streamed(container_gateway, "qwen3", "twice")
    kinds = [item["type"] for item in response["output"]]
    assert kinds == ["shell_call", "shell_call_output"] * 2 + ["message"]
    assert [item["output"][0]["stdout"] for item in response["output"][1::2]] == [
        "first\n",
        "second\n",
    ]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
def test_a_client_that_leaves_ends_the_commands(
    container_gateway: RunningGateway, stream: bool, sandboxes: Any
) -> None:
    body = {"model": "qwen3", "stream": stream, "tools": TOOLS, "input": "sleep long"}
    with leaving_client(container_gateway.base_url, body):
        sandboxes.wait_for("sleep 600")
    sandboxes.none_left()


def test_cancelling_a_background_response_ends_the_commands(
    container_gateway: RunningGateway, sandboxes: Any
) -> None:
    with container_gateway.client() as client:
        started = client.responses.create(
            model="qwen3", input="sleep long", tools=TOOLS, background=True
        )
        sandboxes.wait_for("sleep 600")
        client.responses.cancel(started.id)
        wait_until(lambda: client.responses.retrieve(started.id).status == "cancelled")
        ended = client.responses.retrieve(started.id)
        assert [(item.type, item.status) for item in ended.output] == [
            ("shell_call", "completed"),
            ("shell_call_output", "incomplete"),
        ]
    sandboxes.none_left()


def test_a_kept_container_is_named_by_its_id(
    start_container: Callable[..., RunningGateway],
) -> None:
    gateway = start_container(keep_running=60.0)
    _, first = streamed(gateway, "qwen3", "write it")
    where = first["output"][0]["environment"]
    assert where["type"] == "container_reference"
    _, second = streamed(
        gateway, "qwen3", "written well", tools=[{"type": "shell", "environment": where}]
    )
    assert second["output"][1]["output"][0]["stdout"] == "1234\n"
    assert second["output"][0]["environment"] == where


@pytest.mark.parametrize(
    ("environment", "status", "param"),
    [
        ({"type": "container_reference", "container_id": "cntr_no"}, 404, "container_id"),
        ({"type": "container_auto", "skills": [{"type": "skill_reference"}]}, 400, "skills"),
        ({"type": "spaceship"}, 400, "type"),
    ],
)
def test_what_an_environment_cannot_be_is_refused(
    container_gateway: RunningGateway, environment: Any, status: int, param: str
) -> None:
    answer = httpx.post(
        f"{container_gateway.base_url}/responses",
        json={
            "model": "qwen3",
            "input": "two commands",
            "tools": [{"type": "shell", "environment": environment}],
        },
    )
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == f"tools[0].environment.{param}"


@pytest.mark.parametrize("environment", [None, {"type": "local"}])
def test_the_clients_own_shell_stays_the_clients(
    container_gateway: RunningGateway, environment: Any
) -> None:
    tool = (
        {"type": "shell"} if environment is None else {"type": "shell", "environment": environment}
    )
    _, response = streamed(container_gateway, "qwen3", "two commands", tools=[tool])
    [call] = response["output"]
    assert call["type"] == "shell_call"
    assert call["environment"] == {"type": "local"}


@pytest.mark.parametrize("model", FAMILIES)
def test_programs_and_sessions_are_offered_to_all(
    container_gateway: RunningGateway, model: str, sandboxes: Any
) -> None:
    _, response = streamed(container_gateway, model, "exec it", tools=[])
    call, message = response["output"]
    assert (call["type"], call["status"], call["server_label"]) == (
        "mcp_call",
        "completed",
        "container",
    )
    assert call["output"] == "me in /tmp"
    assert message["content"][0]["text"] == "Executed."
    _, response = streamed(container_gateway, model, "start a session", tools=[])
    started, fed, message = response["output"]
    assert started["output"] == "[The session 's' goes on.]"
    assert fed["output"] == "heard\n\n[The session 's' has ended with exit code 5.]"
    assert message["content"][0]["text"] == "It is over."
    sandboxes.none_left()


def test_files_of_tools_that_nobody_asked_for_are_the_requests_owners(
    start_container: Callable[..., RunningGateway],
) -> None:
    key = {"name": "alice", "sha256": hashlib.sha256(b"a" * 40).hexdigest()}
    gateway = start_container(server={"api_keys": [key]})
    with gateway.client(api_key="a" * 40) as client:
        response = client.responses.create(model="harmony", input="make a file")
        assert response.output_text == "See sandbox:/mnt/data/made."
        [cited] = response.output[-1].content[0].annotations
        assert (cited.start_index, cited.end_index) == (4, 26)
        content = client.containers.files.content.retrieve(
            cited.file_id, container_id=cited.container_id
        )
        assert content.read() == b"hi\n"


def test_a_call_that_is_cut_off_is_not_run(container_gateway: RunningGateway) -> None:
    _, response = streamed(container_gateway, "qwen3", "two commands", max_output_tokens=12)
    assert response["status"] == "incomplete"
    [call] = response["output"]
    assert (call["type"], call["status"]) == ("shell_call", "incomplete")
    assert call["action"]["commands"] == []


def test_the_call_can_be_forced(container_gateway: RunningGateway) -> None:
    _, response = streamed(
        container_gateway, "qwen3", "two commands", tool_choice={"type": "shell"}
    )
    assert response["output"][-1]["content"][0]["text"] == "Both ran."


def test_a_later_turn_still_knows_what_was_written(container_gateway: RunningGateway) -> None:
    with container_gateway.client() as client:
        first = client.responses.create(model="harmony", input="two commands", tools=TOOLS)
        second = client.responses.create(
            model="harmony", input="and?", tools=TOOLS, previous_response_id=first.id
        )
    assert second.output_text == "Both ran.", "the rule sees 'warn' in the prompt"
