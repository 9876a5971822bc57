"""Responses over a WebSocket: by the official SDK, and message by message."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gateway.access.access import hash_key
from gateway_testing.grammar import fold
from tests.e2e.conftest import running_requests
from tests.e2e.responses_socket import ENDS, connected, events, receive, respond, send
from tests.waiting import wait_until

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}


@pytest.fixture
def socket(server: Any) -> Iterator[ClientConnection]:
    with connected(server) as made:
        yield made


def text(response: dict[str, Any]) -> str:
    return "".join(p["text"] for i in response["output"] if i["type"] == "message" for p in i["content"])  # fmt: skip


# The SDK opens its connection as websockets 17.1 and later would rather not have it.
@pytest.mark.filterwarnings("ignore:connect\\(\\) must be used as:DeprecationWarning")
def test_the_sdk_makes_response_after_response_on_one_connection(client: OpenAI) -> None:
    with client.responses.connect() as connection:
        previous = None
        for prompt in ("think first", "unicode please"):
            connection.response.create(
                model="scripted", input=prompt, **({"previous_response_id": previous} if previous else {})
            )  # fmt: skip
            told = []
            for event in connection:
                told.append(event.type)
                if event.type == "response.completed":
                    previous = event.response.id
                    break
            assert told[0] == "response.created"
            assert "response.output_text.delta" in told
    assert previous is not None
    assert client.responses.retrieve(previous).output_text.startswith("Zürich")


def test_it_is_what_a_stream_over_http_is(socket: ClientConnection, http: httpx.Client) -> None:
    final = respond(socket, input="two cities", tools=[WEATHER])
    assert http.get(f"/v1/responses/{final['id']}").json() == final
    plain = http.post(
        "/v1/responses", json={"model": "scripted", "input": "two cities", "tools": [WEATHER]}
    ).json()
    assert [i["type"] for i in plain["output"]] == [i["type"] for i in final["output"]]


def test_what_is_not_stored_is_gone_on_from_on_its_connection(
    server: Any, socket: ClientConnection, http: httpx.Client
) -> None:
    first = respond(socket, input="weather in Paris", tools=[WEATHER], store=False)
    assert http.get(f"/v1/responses/{first['id']}").status_code == 404
    output = {
        "type": "function_call_output",
        "call_id": first["output"][-1]["call_id"],
        "output": "18 degrees",
    }
    with connected(server) as other:
        send(other, input=[output], previous_response_id=first["id"], store=False)
        refused = receive(other)
        assert (refused["status"], refused["error"]["code"]) == (400, "previous_response_not_found")
    second = respond(
        socket, input=[output], previous_response_id=first["id"], tools=[WEATHER], store=False
    )
    assert text(second) == "It is 18 degrees in Paris."
    third = respond(socket, input="and", previous_response_id=second["id"], store=False)
    assert text(third) == "It is 18 degrees in Paris."
    # Only the latest is kept.
    send(socket, input="and", previous_response_id=first["id"])
    assert receive(socket)["error"]["code"] == "previous_response_not_found"


@pytest.mark.parametrize(
    "wrong", [{"temperature": 9}, {"max_output_tokens": "x"}, {"background": True}, {"model": "x"}]
)
def test_a_continuation_that_fails_forgets_what_it_continues(
    socket: ClientConnection, wrong: dict[str, Any]
) -> None:
    first = respond(socket, input="hello", store=False)
    send(socket, **{"input": "and", "previous_response_id": first["id"], **wrong})
    assert receive(socket)["type"] == "error"
    send(socket, input="and", previous_response_id=first["id"])
    assert receive(socket)["error"]["code"] == "previous_response_not_found"
    second = respond(socket, input="hello", store=False)
    send(socket, input="a failure of another request", temperature=9)
    assert receive(socket)["type"] == "error"
    assert respond(socket, input="and", previous_response_id=second["id"])["status"] == "completed"


def test_a_connection_is_warmed_up_without_output(socket: ClientConnection) -> None:
    warm = respond(socket, input="weather in Paris", tools=[WEATHER], generate=False, store=False)
    assert (warm["status"], warm["output"]) == ("completed", [])
    then = respond(socket, input=[], previous_response_id=warm["id"], tools=[WEATHER], store=False)
    assert then["output"][-1]["type"] == "function_call"


def test_requests_of_one_lane_are_answered_in_turn(socket: ClientConnection) -> None:
    for number in range(5):
        send(socket, input=f"word {number}")
    assert [text(fold(events(socket))) for _ in range(5)] == [f"word {n}" for n in range(5)]


def test_lanes_run_at_once_and_are_told_apart(socket: ClientConnection) -> None:
    send(socket, input="go slowly", stream_id="slow", max_output_tokens=70)
    send(socket, input="quick", stream_id="quick")
    got: dict[str, list[dict[str, Any]]] = {"slow": [], "quick": []}
    order = []
    while len(order) < 2:
        event = receive(socket)
        lane = event.pop("stream_id")
        got[lane].append(event)
        if event["type"] in ENDS:
            order.append(lane)
    assert order == ["quick", "slow"]
    assert text(fold(got["quick"])) == "quick"
    assert fold(got["slow"])["status"] == "incomplete"


@pytest.mark.parametrize(
    ("message", "status", "param", "code"),
    [
        ("no json", 400, None, "invalid_json"),
        ("[]", 400, None, "invalid_json"),
        (b"\xff", 400, None, "invalid_json"),
        ("", 400, None, "invalid_json"),
        ("{}", 400, "type", "missing_required_parameter"),
        ("\ufeff{}", 400, "type", "missing_required_parameter"),
        ({"type": "response.stir"}, 400, "type", "invalid_value"),
        ({"stream_id": 3}, 400, "stream_id", "invalid_type"),
        ({"stream_id": ""}, 400, "stream_id", None),
        ({"model": "gpt-9"}, 404, "model", "model_not_found"),
        ({"background": True}, 400, "background", "unsupported_parameter"),
        ({"temperature": 9}, 400, "temperature", "decimal_above_max_value"),
        ({"input": "be busy"}, 429, None, "rate_limit_exceeded"),
        ({"previous_response_id": "resp_x"}, 400, "previous_response_id", "previous_response_not_found"),
    ],
)  # fmt: skip
def test_a_bad_message_is_told_and_the_connection_goes_on(
    socket: ClientConnection, message: Any, status: int, param: str | None, code: str | None
) -> None:
    if isinstance(message, dict):
        send(socket, **{"input": "x", **message})
    else:
        socket.send(message)
    error = receive(socket)
    assert error["type"] == "error"
    assert (error["status"], error["error"]["param"], error["error"]["code"]) == (
        status,
        param,
        code,
    )
    assert text(respond(socket, input="all is well")) == "all is well"


def test_a_flood_of_requests_is_refused(socket: ClientConnection) -> None:
    send(socket, input="never stop")  # what follows on its lane waits
    for _ in range(40):
        send(socket, input="x")
    refused = 0
    while refused < 20:
        refused += receive(socket)["type"] == "error"


def test_a_client_that_leaves_ends_its_responses(server: Any, http: httpx.Client) -> None:
    wait_until(lambda: running_requests(http) == 0, "what earlier tests left has ended")
    with connected(server) as leaving:
        for lane in ("a", "b"):
            send(leaving, input="never stop", stream_id=lane)
        while receive(leaving)["type"] != "response.output_text.delta":
            pass
        wait_until(lambda: running_requests(http) == 2)
    wait_until(lambda: running_requests(http) == 0, "the requests end without their client")


def test_keys_and_origins_are_asked_for(start_server: Any) -> None:
    """A page of a browser may open a WebSocket to anywhere; only those that are allowed come in."""
    key = f'[[server.api_keys]]\nname = "ada"\nsha256 = "{hash_key("ada-key")}"'
    guarded = start_server(server=f'cors_allow_origins = ["https://good.example"]\n{key}')
    bearer = {"authorization": "Bearer ada-key"}
    for headers, origin, status in (
        ({}, None, 401),
        ({"authorization": "Bearer guess"}, None, 401),
        (bearer, "https://evil.example", 403),
    ):
        with (
            pytest.raises(InvalidStatus) as refused,
            connected(guarded, additional_headers=headers, origin=origin),
        ):
            pass
        assert refused.value.response.status_code == status
        assert json.loads(refused.value.response.body)["error"]["message"]
        assert refused.value.response.headers["x-request-id"]
    for origin in (None, "https://good.example", guarded.url):
        with connected(guarded, additional_headers=bearer, origin=origin) as socket:
            final = respond(socket, input="hello")
    assert httpx.get(f"{guarded.url}/v1/responses/{final['id']}", headers=bearer).status_code == 200


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/", "/v1/responses/x"])
def test_another_path_has_no_websocket(server: Any, path: str) -> None:
    url = server.url.replace("http://", "ws://") + path
    with pytest.raises(InvalidStatus) as refused, connect(url, open_timeout=60):
        pass
    assert refused.value.response.status_code == 404
    assert json.loads(refused.value.response.body)["error"]["code"] == "unknown_url"


def test_a_server_that_stops_ends_what_runs_and_the_connection(start_server: Any) -> None:
    server = start_server(grace=0.3)
    with connected(server) as socket:
        send(socket, input="never stop")
        while receive(socket)["type"] != "response.output_text.delta":
            pass
        assert server.stop() == 0
        told = []
        with pytest.raises(ConnectionClosed):
            while True:
                told.append(receive(socket))
    assert told[-1]["type"] == "response.failed"
    assert "Traceback" not in server.log


def test_a_message_that_is_too_large_closes_the_connection(server: Any) -> None:
    with connected(server) as socket:
        send(socket, input="x" * 2_100_000)
        with pytest.raises(ConnectionClosed) as closed:
            receive(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009
