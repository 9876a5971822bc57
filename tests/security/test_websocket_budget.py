"""What one WebSocket connection, and all connections of one owner, may hold in memory."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from gateway.access.access import hash_key
from gateway_testing.server import RunningGateway, run_gateway

SCENARIO = Path(__file__).parents[1] / "e2e" / "scenario.json"
CONNECTION, OWNER = 100_000, 250_000
NAMES = ("ada", "bob")
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {
        "server": {
            "max_websocket_bytes": CONNECTION,
            "max_owner_websocket_bytes": OWNER,
            "api_keys": [{"name": name, "sha256": hash_key(name)} for name in NAMES],
        },
        "models": {"m": {"engine": "scripted", "path": str(SCENARIO)}},
    }
    with run_gateway(config, tmp_path_factory.mktemp("budget")) as running:
        yield running


@contextmanager
def connected(
    gateway: RunningGateway, owner: str = "ada", **options: Any
) -> Iterator[ClientConnection]:
    url = gateway.base_url.replace("http", "ws") + "/responses"
    headers = {"authorization": f"Bearer {owner}"}
    with connect(url, additional_headers=headers, **options) as made:
        yield made


@pytest.fixture(autouse=True)
def _nothing_is_held_afterwards(gateway: RunningGateway) -> Iterator[None]:
    yield
    give_up = time.monotonic() + 60
    while any(held(gateway, name) for name in NAMES):
        assert time.monotonic() < give_up
        time.sleep(0.02)


def held(gateway: RunningGateway, owner: str) -> int:
    return gateway.services.held_bytes.of(owner)


def send(socket: ClientConnection, size: int = 0, **fields: Any) -> int:
    """Send a request of `size` bytes or a few more; how many it has."""
    body = {"type": "response.create", "model": "m", "input": "go slowly", **fields}
    body["metadata"] = {}
    body["instructions"] = "x" * max(0, size - len(json.dumps(body)))
    text = json.dumps(body)
    socket.send(text)
    return len(text)


def receive(socket: ClientConnection) -> dict[str, Any]:
    event: dict[str, Any] = json.loads(socket.recv(60))
    return event


def end(socket: ClientConnection) -> dict[str, Any]:
    while (event := receive(socket))["type"] not in ENDS:
        pass
    return event


def wait_until_held(gateway: RunningGateway, owner: str, size: int) -> None:
    give_up = time.monotonic() + 60
    while held(gateway, owner) < size:
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_requests_above_the_budget_are_refused_and_the_connection_goes_on(
    gateway: RunningGateway,
) -> None:
    with connected(gateway) as socket:
        send(socket, 40_000, max_output_tokens=40)
        send(socket, 40_000, max_output_tokens=40)
        lanes = ("a", "b")
        for lane in lanes:  # at once, while the first ones are held
            send(socket, 40_000, stream_id=lane)
        for lane in lanes:
            while (event := receive(socket))["type"] != "error":
                pass
            assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
            assert event["stream_id"] == lane
        assert held(gateway, "ada") <= CONNECTION
        assert end(socket)["type"] == "response.incomplete"
        assert end(socket)["type"] == "response.incomplete"
        send(socket, 40_000, max_output_tokens=5)
        assert end(socket)["type"] == "response.incomplete"


def test_the_budget_of_an_owner_holds_for_all_connections_and_no_other_owner(
    gateway: RunningGateway,
) -> None:
    with ExitStack() as stack:
        sockets = [stack.enter_context(connected(gateway)) for _ in range(4)]
        for socket in sockets[:3]:
            send(socket, 80_000)
        wait_until_held(gateway, "ada", 240_000)
        send(sockets[3], 80_000)
        refused = end(sockets[3])
        assert (refused["type"], refused["status"]) == ("error", 429)
        assert held(gateway, "ada") <= OWNER
        other = stack.enter_context(connected(gateway, "bob"))
        send(other, 80_000, input="hello")
        assert end(other)["type"] == "response.completed"


def test_a_flood_holds_no_more_than_the_budget(gateway: RunningGateway) -> None:
    most = 0
    with connected(gateway) as socket:
        for number in range(400):
            send(socket, 9_000, stream_id=f"lane {number % 64}", max_output_tokens=3)
            most = max(most, held(gateway, "ada"))
        kinds = [end(socket)["type"] for _ in range(400)]
    assert most <= CONNECTION
    assert "error" in kinds
    assert "response.incomplete" in kinds


def test_a_message_above_the_budget_closes_the_connection(gateway: RunningGateway) -> None:
    with connected(gateway) as socket:
        send(socket, 2 * CONNECTION)
        with pytest.raises(ConnectionClosed) as closed:
            end(socket)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_histories_that_are_not_stored_count_and_the_oldest_are_forgotten(
    gateway: RunningGateway,
) -> None:
    with connected(gateway) as socket:
        made = {}
        for lane in ("a", "b", "c", "d"):
            text = "hello " + "y" * 30_000
            send(socket, input=text, store=False, stream_id=lane)
            made[lane] = end(socket)["response"]["id"]
            assert held(gateway, "ada") <= CONNECTION
        kept = []
        for lane in ("d", "a"):
            chained = {"previous_response_id": made[lane], "stream_id": lane, "store": False}
            send(socket, input="more", **chained)
            kept.append(end(socket)["type"])
        assert kept == ["response.completed", "error"]


def test_a_history_that_is_too_large_is_not_kept(gateway: RunningGateway) -> None:
    with connected(gateway) as socket:
        previous: dict[str, Any] = {}
        kinds = []
        for _ in range(4):
            send(socket, input="hello " + "y" * 40_000, store=False, **previous)
            event = end(socket)
            kinds.append(event["type"])
            assert held(gateway, "ada") <= CONNECTION
            if event["type"] == "error":
                break
            previous = {"previous_response_id": event["response"]["id"]}
    assert kinds[0] == "response.completed"
    assert kinds[-1] == "error"


def test_messages_are_not_compressed(gateway: RunningGateway) -> None:
    """A compressed message of 32 KiB may unpack to 32 MiB."""
    with connected(gateway, compression="deflate") as socket:
        assert socket.response is not None
        assert "sec-websocket-extensions" not in socket.response.headers
