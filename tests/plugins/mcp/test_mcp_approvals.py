"""Calls that the client approves first."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_example_server.py"), "stdio"]
TOOL: dict[str, Any] = {"type": "mcp", "server_label": "ex", "require_approval": "always"}


class Client:
    """Sends requests, streamed, and checks each stream."""

    def __init__(self, gateway: Any) -> None:
        self.url = f"{gateway.base_url}/responses"

    def ask(self, **body: Any) -> dict[str, Any]:
        body = {"model": "m", "tools": [TOOL], **body}
        answer = httpx.post(self.url, json={**body, "stream": True}, timeout=60)
        assert answer.status_code == 200, answer.text
        return fold(parse_sse(answer.content))

    def refusal(self, **body: Any) -> dict[str, Any]:
        answer = httpx.post(self.url, json={"model": "m", "tools": [TOOL], **body}, timeout=60)
        assert answer.status_code == 400, answer.text
        error: dict[str, Any] = answer.json()["error"]
        return error


@pytest.fixture
def client(example_gateway: Any) -> Client:
    return Client(example_gateway)


def answer_to(request: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "mcp_approval_response", "approval_request_id": request["id"], **fields}


def test_a_call_waits_for_its_approval_and_is_run_then(client: Client) -> None:
    first = client.ask(input="please add")
    assert first["status"] == "completed"
    assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "mcp_approval_request"]
    asked = first["output"][1]
    assert (asked["name"], asked["server_label"]) == ("add", "ex")
    assert asked["arguments"] == '{"a": 2, "b": 3}'
    second = client.ask(input=[answer_to(asked, approve=True)], previous_response_id=first["id"])
    call, message = second["output"]
    assert call["type"] == "mcp_call"
    assert call["approval_request_id"] == asked["id"]
    assert (call["status"], call["output"]) == ("completed", "The sum is 5.")
    assert call["arguments"] == asked["arguments"]
    assert message["content"][0]["text"] == "It is five."


def test_a_call_that_is_not_approved_is_not_run_and_the_model_is_told(client: Client) -> None:
    first = client.ask(input="please add")
    denial = answer_to(first["output"][1], approve=False, reason="Not today.")
    second = client.ask(input=[denial], previous_response_id=first["id"])
    [message] = second["output"]
    assert message["content"][0]["text"] == "As you wish."


def test_without_a_store_the_client_sends_the_request_back(client: Client) -> None:
    first = client.ask(input="please add", store=False)
    asked = first["output"][1]
    history = [{"role": "user", "content": "please add"}, *first["output"]]
    approval = answer_to(asked, approve=True)
    second = client.ask(input=[*history, approval], store=False)
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]
    further = {"role": "user", "content": "count for me"}
    again = client.ask(input=[*history, approval, *second["output"], further], store=False)
    assert [item["type"] for item in again["output"]] == ["mcp_approval_request"], (
        "what was approved and run is not run again"
    )


def test_approving_twice_runs_once(client: Client) -> None:
    first = client.ask(input="please add")
    approval = answer_to(first["output"][1], approve=True)
    second = client.ask(input=[approval, approval], previous_response_id=first["id"])
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]
    third = client.ask(input=[approval], previous_response_id=second["id"])
    assert "mcp_call" not in [item["type"] for item in third["output"]]


@pytest.mark.parametrize("store", [True, False])
def test_an_approved_call_is_run_once_however_often_it_is_approved(
    client: Client, store: bool
) -> None:
    """The later requests continue the first response, so they do not show that the call was run."""
    first = client.ask(input="count for me", store=store)
    approval = answer_to(first["output"][-1], approve=True)
    body: dict[str, Any] = {"input": [approval], "previous_response_id": first["id"]}
    if not store:
        history = [{"role": "user", "content": "count for me"}, *first["output"], approval]
        body = {"input": history, "store": False}
    with ThreadPoolExecutor(3) as pool:
        together = [pool.submit(client.ask, **body) for _ in range(3)]
        responses = [each.result() for each in together]
    responses.append(client.ask(**body))
    calls = [response["output"][0] for response in responses]
    assert {call["type"] for call in calls} == {"mcp_call"}
    assert {call["status"] for call in calls} == {"completed"}
    assert len({call["output"] for call in calls}) == 1, "the counter was at one number"


def test_yes_and_no_is_no(client: Client) -> None:
    first = client.ask(input="please add")
    asked = first["output"][1]
    both = [answer_to(asked, approve=True), answer_to(asked, approve=False)]
    second = client.ask(input=both, previous_response_id=first["id"])
    assert "mcp_call" not in [item["type"] for item in second["output"]]


def test_a_forced_tool_choice_is_for_the_model_not_for_the_approved_call(client: Client) -> None:
    first = client.ask(input="please add")
    second = client.ask(
        input=[answer_to(first["output"][1], approve=True)],
        previous_response_id=first["id"],
        tool_choice="none",
    )
    assert [item["type"] for item in second["output"]] == ["mcp_call", "message"]


def test_an_answer_to_what_was_not_asked_is_refused(client: Client) -> None:
    stray = {"type": "mcp_approval_response", "approval_request_id": "mcpr_0", "approve": True}
    error = client.refusal(input=[{"role": "user", "content": "hi"}, stray])
    assert error["param"] == "input[1].approval_request_id"


def test_approving_does_not_offer_a_tool_that_the_request_does_not_allow(client: Client) -> None:
    first = client.ask(input="please add")
    body: dict[str, Any] = {
        "input": [answer_to(first["output"][1], approve=True)],
        "previous_response_id": first["id"],
    }
    assert client.refusal(**body, tools=[])["code"] == "approved_tool_not_offered"
    narrow = [{**TOOL, "allowed_tools": ["count"]}]
    assert client.refusal(**body, tools=narrow)["code"] == "approved_tool_not_offered"


@pytest.mark.parametrize(
    ("approval", "asks"),
    [
        ("never", []),
        ("always", ["add", "count"]),
        ({"never": {"tool_names": ["add"]}}, ["count"]),
        ({"never": {"read_only": True}}, ["count"]),
        ({"always": {"tool_names": ["add"]}, "never": {"tool_names": ["count"]}}, ["add"]),
        ({"always": {"tool_names": ["add"]}}, ["add", "count"]),
    ],
)
def test_approval_is_asked_tool_by_tool(client: Client, approval: Any, asks: list[str]) -> None:
    response = client.ask(input="add and think", tools=[{**TOOL, "require_approval": approval}])
    items = response["output"]
    asked = [item["name"] for item in items if item["type"] == "mcp_approval_request"]
    run = [item["name"] for item in items if item["type"] == "mcp_call"]
    assert asked == asks
    assert sorted(asked + run) == ["add", "count"]
    assert response["status"] == "completed"


def test_the_operator_can_make_approval_the_default(mcp_gateway: Callable[..., Any]) -> None:
    servers = {"ex": {"command": COMMAND, "require_approval": "always"}}
    client = Client(mcp_gateway(servers=servers))
    silent = [{"type": "mcp", "server_label": "ex"}]
    response = client.ask(input="please add", tools=silent)
    assert response["output"][1]["type"] == "mcp_approval_request"
    willing = [{**silent[0], "require_approval": "never"}]
    response = client.ask(input="please add", tools=willing)
    assert response["output"][1]["type"] == "mcp_call"


def test_the_sdk_reads_the_whole_exchange_in_a_conversation(example_gateway: Any) -> None:
    tools: Any = [TOOL]
    with example_gateway.client() as client:
        conversation = client.conversations.create().id
        first = client.responses.create(
            model="m", input="please add", tools=tools, conversation=conversation
        )
        asked = first.output[1]
        assert asked.type == "mcp_approval_request"
        approval: Any = {
            "type": "mcp_approval_response",
            "approval_request_id": asked.id,
            "approve": True,
        }
        with client.responses.stream(
            model="m", input=[approval], tools=tools, conversation=conversation
        ) as stream:
            for _ in stream:
                pass
            second = stream.get_final_response()
    assert [item.type for item in second.output] == ["mcp_call", "message"]
    assert second.output[0].approval_request_id == asked.id
