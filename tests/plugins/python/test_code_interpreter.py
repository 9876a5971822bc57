"""`code_interpreter` through a running gateway: streamed, plain, in the background, and what goes wrong."""

from __future__ import annotations

import base64
import hashlib
import re
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
TOOLS: Any = [{"type": "code_interpreter", "container": {"type": "auto"}}]
OUTPUTS: Any = ["code_interpreter_call.outputs"]
streamed = partial(streamed_calls.streamed, tools=TOOLS)


@pytest.mark.parametrize("model", FAMILIES)
def test_a_call_is_streamed_in_its_own_event_family(
    python_gateway: RunningGateway, model: str, sandboxes: Any
) -> None:
    events, response = streamed(python_gateway, model, "please compute", include=OUTPUTS)
    call, message = response["output"]
    assert call["type"] == "code_interpreter_call"
    assert call["status"] == "completed"
    assert call["code"] == "x = 6 * 7\nprint('product', x)"
    assert call["outputs"] == [{"type": "logs", "logs": "product 42\n"}]
    assert re.fullmatch("cntr_[0-9a-f]{48}", call["container_id"])
    assert message["content"][0]["text"] == "It is 42."
    kinds = [
        e["type"].removeprefix("response.")
        for e in events
        if e.get("output_index") == 0 and not e["type"].endswith("delta")
    ]
    assert kinds == [
        "output_item.added",
        "code_interpreter_call.in_progress",
        "code_interpreter_call_code.done",
        "code_interpreter_call.interpreting",
        "code_interpreter_call.completed",
        "output_item.done",
    ]
    added = next(e for e in events if e["type"] == "response.output_item.added")
    assert added["item"]["container_id"] == call["container_id"]
    sandboxes.none_left()


@pytest.mark.parametrize("model", FAMILIES)
def test_the_sdk_reads_it_streamed_plain_and_in_the_background(
    python_gateway: RunningGateway, model: str, sandboxes: Any
) -> None:
    asked: Any = {"model": model, "input": "please compute", "tools": TOOLS, "include": OUTPUTS}
    with python_gateway.client() as client:
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
        assert response.output_text == "It is 42."
        assert response.output[0].outputs[0].logs == "product 42\n"
    sandboxes.none_left()


@pytest.mark.parametrize("model", FAMILIES)
def test_variables_are_kept_within_a_response_and_not_beyond(
    python_gateway: RunningGateway, model: str
) -> None:
    with python_gateway.client() as client:
        first = client.responses.create(model=model, input="remember it", tools=TOOLS)
        assert first.output_text == "I remembered."
        kinds = [item.type for item in first.output]
        assert kinds == ["code_interpreter_call", "code_interpreter_call", "message"]
        second = client.responses.create(
            model=model, input="what is y", tools=TOOLS, include=OUTPUTS
        )
        assert second.output[0].outputs[0].logs == "False is what I see\n"
        assert second.output[0].container_id != first.output[0].container_id


def test_outputs_are_shown_where_they_are_asked_for(python_gateway: RunningGateway) -> None:
    _, response = streamed(python_gateway, "qwen3", "please compute")
    assert response["output"][0]["outputs"] is None
    assert response["output"][1]["content"][0]["text"] == "It is 42.", (
        "the model read them all the same"
    )


def test_a_later_turn_still_knows_what_was_printed(python_gateway: RunningGateway) -> None:
    with python_gateway.client() as client:
        first = client.responses.create(model="harmony", input="please compute", tools=TOOLS)
        second = client.responses.create(
            model="harmony", input="and?", tools=TOOLS, previous_response_id=first.id
        )
    assert second.output_text == "It is 42.", "the rule sees 'product 42' in the prompt"


def test_what_is_drawn_is_an_image(python_gateway: RunningGateway) -> None:
    _, response = streamed(python_gateway, "qwen3", "draw it", include=OUTPUTS)
    [image] = response["output"][0]["outputs"]
    assert image["type"] == "image"
    kind, _, data = image["url"].partition(",")
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data).startswith(b"\x89PNG")
    assert response["output"][1]["content"][0]["text"] == "Drawn."


@pytest.mark.parametrize(
    ("asked", "said", "status"),
    [
        ("fail please", "It failed.", "completed"),
        ("die please", "It died.", "failed"),
        ("be big", "It was long.", "completed"),
        ("no text", "It was broken.", "completed"),
        ("kill all", "All is lost.", "failed"),
    ],
)
@pytest.mark.parametrize("model", FAMILIES)
def test_what_goes_wrong_is_read_by_the_model(
    python_gateway: RunningGateway, model: str, asked: str, said: str, status: str, sandboxes: Any
) -> None:
    _, response = streamed(python_gateway, model, asked, include=OUTPUTS)
    call, message = response["output"]
    assert response["status"] == "completed"
    assert call["status"] == status
    assert len(call["outputs"][0]["logs"]) < 70_000 if call["outputs"] else asked == "die please"
    assert message["content"][0]["text"] == said
    sandboxes.none_left()


@pytest.mark.parametrize("model", FAMILIES)
def test_a_call_past_its_time_limit_is_read_by_the_model(
    hasty_gateway: RunningGateway, model: str, sandboxes: Any
) -> None:
    _, response = streamed(hasty_gateway, model, "hang please", include=OUTPUTS)
    call, message = response["output"]
    assert (response["status"], call["status"]) == ("completed", "failed")
    assert message["content"][0]["text"] == "Too slow."
    sandboxes.none_left()


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "plain"])
def test_a_client_that_leaves_ends_the_sandbox(
    start_python: Callable[..., RunningGateway], stream: bool, sandboxes: Any
) -> None:
    gateway = start_python(time_limit=600.0)
    body = {"model": "qwen3", "stream": stream, "tools": TOOLS, "input": "hang please"}
    with leaving_client(gateway.base_url, body):
        sandboxes.wait_for("sleep 600")
    sandboxes.none_left()
    _, response = streamed(gateway, "qwen3", "please compute")
    assert response["status"] == "completed", "the gateway goes on"


def test_cancelling_a_background_response_ends_the_sandbox(
    start_python: Callable[..., RunningGateway], sandboxes: Any
) -> None:
    gateway = start_python(time_limit=600.0)
    with gateway.client() as client:
        started = client.responses.create(
            model="qwen3", input="hang please", tools=TOOLS, background=True
        )
        sandboxes.wait_for("sleep 600")
        client.responses.cancel(started.id)
        wait_until(lambda: client.responses.retrieve(started.id).status == "cancelled")
        ended = client.responses.retrieve(started.id)
        assert ended.output[0].status == "incomplete"
    sandboxes.none_left()


def test_a_response_past_its_deadline_ends_the_sandbox(
    start_python: Callable[..., RunningGateway], sandboxes: Any
) -> None:
    gateway = start_python(time_limit=600.0, server={"request_timeout": 10.0})
    _, response = streamed(gateway, "qwen3", "hang please")
    assert response["status"] == "failed"
    assert response["output"][0]["status"] == "incomplete"
    sandboxes.none_left()


def test_responses_at_once_have_sandboxes_of_their_own(
    python_gateway: RunningGateway, sandboxes: Any
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        done = list(
            pool.map(lambda _: streamed(python_gateway, "qwen3", "remember it")[1], range(4))
        )
    assert {each["output"][-1]["content"][0]["text"] for each in done} == {"I remembered."}
    assert len({each["output"][0]["container_id"] for each in done}) == 4
    sandboxes.none_left()


def test_there_are_only_so_many_sandboxes(
    start_python: Callable[..., RunningGateway], sandboxes: Any
) -> None:
    gateway = start_python(time_limit=600.0, max_running=1, max_wait=0.5)
    body = {"model": "qwen3", "tools": TOOLS, "input": "hang please"}
    with leaving_client(gateway.base_url, body):
        sandboxes.wait_for("sleep 600")
        _, response = streamed(gateway, "qwen3", "please compute", include=OUTPUTS)
    sandboxes.none_left()
    _, later = streamed(gateway, "qwen3", "please compute")
    assert later["status"] == "completed", "its place is free again"
    [call, *_] = response["output"]
    assert call["status"] == "failed"
    assert "in use" in call["outputs"][0]["logs"]


# Containers that are named.


def test_a_kept_container_is_named_by_its_id(
    start_python: Callable[..., RunningGateway], sandboxes: Any
) -> None:
    gateway = start_python(keep_running=60.0)
    with gateway.client() as client:
        first = client.responses.create(model="qwen3", input="remember it", tools=TOOLS)
        container = first.output[0].container_id
        tools: Any = [{"type": "code_interpreter", "container": container}]
        second = client.responses.create(
            model="qwen3", input="what is y", tools=tools, include=OUTPUTS
        )
        assert second.output[0].container_id == container
        assert second.output[0].outputs[0].logs == "True is what I see\n"
    assert sandboxes.count() > 0


def test_kept_variables_expire_and_files_do_not(
    start_python: Callable[..., RunningGateway], sandboxes: Any
) -> None:
    gateway = start_python(keep_running=0.5)
    _, response = streamed(gateway, "qwen3", "remember it")
    sandboxes.none_left()
    tools = [{"type": "code_interpreter", "container": response["output"][0]["container_id"]}]
    _, second = streamed(gateway, "qwen3", "what is y", tools=tools, include=OUTPUTS)
    assert second["output"][0]["outputs"][0]["logs"] == "False is what I see\n"
    assert second["output"][1]["content"][0]["text"] == "It is a new one.", "the model is told"


def test_a_container_is_its_owners_alone(start_python: Callable[..., RunningGateway]) -> None:
    keys = [
        {"name": name, "sha256": hashlib.sha256((name[0] * 40).encode()).hexdigest()}
        for name in ("alice", "bob")
    ]
    gateway = start_python(keep_running=60.0, server={"api_keys": keys})
    with gateway.client(api_key="a" * 40) as alice, gateway.client(api_key="b" * 40) as bob:
        first = alice.responses.create(model="qwen3", input="remember it", tools=TOOLS)
        tools: Any = [{"type": "code_interpreter", "container": first.output[0].container_id}]
        with pytest.raises(Exception, match="not found") as refused:
            bob.responses.create(model="qwen3", input="what is y", tools=tools)
        assert getattr(refused.value, "status_code", None) == 404
        assert (
            alice.responses.create(model="qwen3", input="what is y", tools=tools).output_text
            == "Seen."
        )


@pytest.mark.parametrize(
    ("container", "param"),
    [
        ("cntr_unknown", "tools[0].container"),
        ({"type": "auto", "file_ids": ["file_1"]}, "tools[0].container.file_ids"),
        ({"type": "auto", "memory_limit": "64g"}, "tools[0].container.memory_limit"),
        (
            {"type": "auto", "network_policy": {"type": "allowlist", "allowed_domains": ["a.b"]}},
            "tools[0].container.network_policy",
        ),
    ],
)
def test_what_a_container_cannot_be_is_refused(
    python_gateway: RunningGateway, container: Any, param: str
) -> None:
    answer = httpx.post(
        f"{python_gateway.base_url}/responses",
        json={
            "model": "qwen3",
            "input": "please compute",
            "tools": [{"type": "code_interpreter", "container": container}],
        },
    )
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["param"] == param
