"""Calls of MCP tools through a running gateway: streamed, plain, in the background, and what goes wrong."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold, parse_sse
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, str(Path(__file__).parent / "mcp_example_server.py"), "stdio"]
LEGACY = Path(__file__).parent / "mcp_legacy_server.py"
TOOLS: Any = [{"type": "mcp", "server_label": "ex"}]
StartGateway = Callable[..., Any]


def streamed(gateway: Any, **body: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All events of a request, and the response that they fold to."""
    answer = httpx.post(
        f"{gateway.base_url}/responses",
        json={"model": "m", "stream": True, "tools": TOOLS, **body},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    events = parse_sse(answer.content)
    return events, fold(events)


def calls_of(response: Any) -> list[Any]:
    return [item for item in response.output if item.type == "mcp_call"]


def test_a_call_is_streamed_in_its_own_event_family(example_gateway: Any) -> None:
    events, response = streamed(example_gateway, input="please add")
    listing, call, message = response["output"]
    assert listing["type"] == "mcp_list_tools"
    assert {tool["name"] for tool in listing["tools"]} >= {"add", "count", "hang"}
    [add] = [tool for tool in listing["tools"] if tool["name"] == "add"]
    assert add["annotations"]["readOnlyHint"] is True
    assert add["input_schema"]["required"] == ["a", "b"]
    assert (call["status"], call["output"], call["error"]) == ("completed", "The sum is 5.", None)
    assert (call["server_label"], call["name"]) == ("ex", "add")
    assert message["content"][0]["text"] == "It is five."
    kinds = [
        e["type"].removeprefix("response.")
        for e in events
        if e.get("output_index") in (0, 1) and not e["type"].endswith("arguments.delta")
    ]
    assert kinds == [
        "output_item.added",
        "mcp_list_tools.in_progress",
        "mcp_list_tools.completed",
        "output_item.done",
        "output_item.added",
        "mcp_call.in_progress",
        "mcp_call_arguments.done",
        "mcp_call.completed",
        "output_item.done",
    ]


def test_the_sdk_reads_it_streamed_plain_and_in_the_background(example_gateway: Any) -> None:
    gateway = example_gateway
    with gateway.client() as client:
        with client.responses.stream(model="m", input="please add", tools=TOOLS) as stream:
            for _ in stream:
                pass
            first = stream.get_final_response()
        plain = client.responses.create(model="m", input="please add", tools=TOOLS)
        started = client.responses.create(
            model="m", input="please add", tools=TOOLS, background=True
        )
        wait_until(
            lambda: client.responses.retrieve(started.id).status not in ("queued", "in_progress"),
            "the end of the run",
        )
        later = client.responses.retrieve(started.id)
        for response in (first, plain, later):
            assert response.status == "completed"
            assert response.output_text == "It is five."
            assert [item.type for item in response.output] == [
                "mcp_list_tools",
                "mcp_call",
                "message",
            ]
        assert client.responses.retrieve(plain.id).output == plain.output


def test_what_was_listed_is_not_listed_again_in_a_conversation(example_gateway: Any) -> None:
    with example_gateway.client() as client:
        first = client.responses.create(model="m", input="please add", tools=TOOLS)
        second = client.responses.create(
            model="m", input="count for me", tools=TOOLS, previous_response_id=first.id
        )
        assert [item.type for item in second.output] == ["mcp_call", "message"]


def test_shared_connections_outlive_responses_and_others_do_not(mcp_gateway: StartGateway) -> None:
    servers = {"ex": {"command": COMMAND}, "own": {"command": COMMAND, "scope": "response"}}
    gateway = mcp_gateway(servers=servers)

    def count(label: str) -> str:
        with gateway.client() as client:
            tools = [{"type": "mcp", "server_label": label}]
            response = client.responses.create(model="m", input="count for me", tools=tools)
            return str(calls_of(response)[0].output)

    assert [count("ex").split()[1] for _ in range(3)] == ["1", "2", "3"]
    alone = [count("own") for _ in range(2)]
    assert [each.split()[1] for each in alone] == ["1", "1"]
    assert alone[0] != alone[1], "two processes"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("fail please", "it is broken"),
        ("wrong arguments", "validation error"),
        ("die please", "went away before it answered"),
        ("hang please", "did not answer within 10 seconds"),
    ],
)
def test_what_goes_wrong_is_a_failed_call_that_the_model_reads(
    mcp_gateway: StartGateway, asked: str, said: str
) -> None:
    limit = 10 if asked == "hang please" else 30
    gateway = mcp_gateway(servers={"ex": {"command": COMMAND, "time_limit": limit}})
    events, response = streamed(gateway, input=asked)
    assert response["status"] == "completed"
    call = response["output"][1]
    assert (call["status"], call["output"]) == ("failed", None)
    assert said in call["error"]["content"][0]["text"]
    assert "response.mcp_call.failed" in [event["type"] for event in events]
    assert response["output"][-1]["type"] == "message", "the model goes on"
    after = streamed(gateway, input="please add")[1]
    assert after["output"][1]["output"] == "The sum is 5.", "the next call finds a live server"


def test_an_unknown_tool_is_an_error_that_the_model_reads(example_gateway: Any) -> None:
    """As everywhere: what the model makes up is shown as it called it, and no server is asked."""
    _, response = streamed(example_gateway, input="no such thing", max_tool_calls=2)
    listed, *calls = response["output"]
    assert listed["type"] == "mcp_list_tools"
    assert (calls[0]["type"], calls[0]["status"]) == ("mcp_call", "failed")
    assert "function_call" not in {call["type"] for call in calls}
    assert "There is no tool named" in str(calls[0]["error"])


def test_a_megabyte_is_cut_with_a_note(mcp_gateway: StartGateway) -> None:
    gateway = mcp_gateway(servers={"ex": {"command": COMMAND, "max_output_bytes": 5000}})
    _, response = streamed(gateway, input="be big")
    output = response["output"][1]["output"]
    assert len(output) < 5200
    assert output.endswith("gave 1000000 bytes, of which these are the first 5000.]")


def test_a_server_that_restarts_between_two_responses_is_not_noticed(
    mcp_gateway: StartGateway, start_mcp_server: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its SDK says that it does not know the session; the gateway begins another and repeats the call."""
    server = start_mcp_server("streamable-http", "sessions")
    gateway = mcp_gateway(servers={"ex": {"url": server.url}})
    caplog.set_level(logging.INFO, "gateway.mcp")
    for process in range(3):
        _, response = streamed(gateway, input="count for me")
        call = response["output"][1]
        assert call["status"] == "completed", call
        assert call["output"].startswith("Call 1 of process"), process
        server.kill()
        server.start()
    assert "the MCP server ex: the MCP server has ended the session" in caplog.text
    assert "HTTP status 404 (Not Found)" in caplog.text


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_a_restarted_server_is_found_again(
    mcp_gateway: StartGateway, transport: str, start_mcp_server: Any
) -> None:
    server = start_mcp_server(transport)
    servers = {"ex": {"url": server.url, "transport": transport, "connect_timeout": 30}}
    gateway = mcp_gateway(servers=servers)
    assert streamed(gateway, input="please add")[1]["output"][1]["output"] == "The sum is 5."
    server.kill()
    _, away = streamed(gateway, input="please add")
    assert away["output"][1]["status"] == "failed"
    assert away["status"] == "completed"
    server.start()
    wait_until(
        lambda: streamed(gateway, input="please add")[1]["output"][1]["output"] == "The sum is 5.",
        "the server's return",
    )


@pytest.mark.parametrize("transport", ["streamable-http", "sse"])
def test_a_server_that_dies_in_mid_call_is_a_failed_call(
    mcp_gateway: StartGateway, transport: str, start_mcp_server: Any
) -> None:
    server = start_mcp_server(transport)
    gateway = mcp_gateway(servers={"ex": {"url": server.url, "transport": transport}})
    _, response = streamed(gateway, input="die please")
    call = response["output"][1]
    assert call["status"] == "failed"
    assert "went away before it answered" in call["error"]["content"][0]["text"]
    assert response["output"][2]["content"][0]["text"] == "It failed."


def test_a_server_that_is_not_there_is_a_failed_list(mcp_gateway: StartGateway) -> None:
    gateway = mcp_gateway(servers={"ex": {"command": ["/no/such/program"]}})
    events, response = streamed(gateway, input="hello")
    listing = response["output"][0]
    assert listing["tools"] == []
    assert listing["error"] == "The tools could not be listed: its program could not be started"
    assert "response.mcp_list_tools.failed" in [event["type"] for event in events]
    assert response["status"] == "completed"


@pytest.mark.parametrize("server", ["stdio", "legacy", "streamable", "sse"])
def test_a_change_of_tools_is_heard(
    mcp_gateway: StartGateway, server: str, request: pytest.FixtureRequest
) -> None:
    if server == "stdio":
        config: dict[str, Any] = {"command": COMMAND}
    elif server == "legacy":  # since 2026-07-28 one subscribes to changes; before, all were told
        config = {"command": [sys.executable, str(LEGACY)]}
    else:
        config = {"url": request.getfixturevalue(server).url}
        config["transport"] = {"streamable": "streamable-http"}.get(server, server)
    gateway = mcp_gateway(servers={"ex": config})
    streamed(gateway, input="learn please")
    wait_until(
        lambda: len(streamed(gateway, input="do the trick")[1]["output"]) == 3, "the new tool"
    )
    _, response = streamed(gateway, input="do the trick")
    assert response["output"][1]["output"] == "I am trick."


def test_tools_are_offered_unasked_where_the_configuration_says_so(
    mcp_gateway: StartGateway,
) -> None:
    gateway = mcp_gateway(
        servers={
            "ex": {"command": COMMAND, "offer": True},
            "down": {"command": ["/no"], "offer": True},
        }
    )
    _, response = streamed(gateway, input="please add", tools=[])
    assert [item["type"] for item in response["output"]] == ["mcp_call", "message"]


def test_two_servers_may_have_tools_of_one_name(mcp_gateway: StartGateway) -> None:
    gateway = mcp_gateway(servers={"ex": {"command": COMMAND}, "two": {"command": COMMAND}})
    tools = [*TOOLS, {"type": "mcp", "server_label": "two", "allowed_tools": ["add"]}]
    with gateway.client() as client:
        chosen: Any = {"type": "mcp", "server_label": "two", "name": "add"}
        response = client.responses.create(model="m", input="hi", tools=tools, tool_choice=chosen)
    [call] = calls_of(response)
    assert (call.server_label, call.name, call.status) == ("two", "add", "completed")


def test_allowed_tools_are_all_that_is_listed_and_offered(mcp_gateway: StartGateway) -> None:
    gateway = mcp_gateway(servers={"ex": {"command": COMMAND, "allowed_tools": ["add", "count"]}})

    def listed(**entry: Any) -> set[str]:
        _, response = streamed(gateway, input="hello", tools=[{**TOOLS[0], **entry}])
        return {tool["name"] for tool in response["output"][0]["tools"]}

    assert listed() == {"add", "count"}, "the configuration's own limit"
    assert listed(allowed_tools=["count", "hang"]) == {"count"}
    assert listed(allowed_tools={"read_only": True}) == {"add"}
    assert listed(allowed_tools={"tool_names": ["count"], "read_only": False}) == {"count"}
    _, response = streamed(
        gateway,
        input="please add",
        tools=[{**TOOLS[0], "allowed_tools": ["count"]}],
        max_tool_calls=1,
    )
    call = response["output"][1]
    assert (call["status"], call["output"]) == ("failed", None), "not run by the gateway"
    assert "There is no tool named 'add'" in str(call["error"])


@pytest.mark.parametrize(
    ("entry", "param"),
    [
        ({"server_label": "other"}, "tools[0].server_label"),
        ({"server_label": "ex", "authorization": "x"}, "tools[0].authorization"),
        ({"server_label": "ex", "headers": {"X": "y"}}, "tools[0].headers"),
        ({"server_label": "ex", "connector_id": "connector_gmail"}, "tools[0].connector_id"),
        ({"server_label": "far", "connector_id": "ex"}, "tools[0].connector_id"),
        ({"server_label": "ex", "tunnel_id": "t"}, "tools[0].tunnel_id"),
        ({"server_label": "far", "server_url": "https://example.com/mcp"}, "tools[0].server_url"),
    ],
)
def test_what_cannot_be_honoured_is_refused(
    example_gateway: Any, entry: dict[str, Any], param: str
) -> None:
    gateway = example_gateway
    body = {"model": "m", "input": "hi", "tools": [{"type": "mcp", **entry}]}
    answer = httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_calls_beyond_max_tool_calls_fail(example_gateway: Any) -> None:
    gateway = example_gateway
    _, response = streamed(gateway, input="add and think", max_tool_calls=1)
    calls = [item for item in response["output"] if item["type"] == "mcp_call"]
    assert [call["status"] for call in calls] == ["completed", "failed"]
