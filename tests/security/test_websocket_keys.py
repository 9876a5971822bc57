"""A WebSocket connection lives long. Each message on it has the rights that its key has then, and no other owner's data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from gateway.access.access import hash_key
from gateway.config import ApiKey
from gateway_testing.server import RunningGateway, run_gateway

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
KEYS = {"ada": "key-of-ada", "bob": "key-of-bob"}


def keys(of: dict[str, str]) -> list[ApiKey]:
    return [ApiKey(name=name, sha256=hash_key(key)) for name, key in of.items()]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    config = {
        "server": {
            "api_keys": [{"name": name, "sha256": hash_key(key)} for name, key in KEYS.items()]
        },
        "models": {"m": {"engine": "scripted"}},
    }
    with run_gateway(config, tmp_path) as running:
        yield running


@contextmanager
def connected(gateway: RunningGateway, key: str) -> Iterator[Connection]:
    url = gateway.base_url.replace("http", "ws") + "/responses"
    with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as made:
        yield made


def ask(socket: Connection, **fields: Any) -> dict[str, Any]:
    """The last event of a response."""
    socket.send(json.dumps({"type": "response.create", "model": "m", "input": "hello", **fields}))
    while (event := json.loads(socket.recv(60)))["type"] not in ENDS:
        pass
    found: dict[str, Any] = event
    return found


def use(gateway: RunningGateway, of: dict[str, str]) -> None:
    async def change() -> None:
        gateway.services.authenticator.use_keys("the configuration", keys(of))

    gateway.run(change())


@pytest.mark.parametrize("stored", [True, False])
def test_no_other_owner_continues_a_response(gateway: RunningGateway, stored: bool) -> None:
    with connected(gateway, KEYS["ada"]) as ada, connected(gateway, KEYS["bob"]) as bob:
        mine = ask(ada, store=stored)["response"]["id"]
        foreign = ask(bob, previous_response_id=mine)
        unknown = ask(bob, previous_response_id="resp_unknown")
        assert (foreign["type"], foreign["status"]) == ("error", unknown["status"])
        assert foreign["error"]["message"].replace(mine, "resp_unknown") == unknown["error"]["message"]  # fmt: skip
        assert ask(ada, previous_response_id=mine)["type"] == "response.completed"


def test_a_key_that_is_given_to_somebody_else_is_not_the_old_owner_any_more(
    gateway: RunningGateway,
) -> None:
    with connected(gateway, KEYS["ada"]) as socket:
        stored = ask(socket)["response"]["id"]
        kept = ask(socket, store=False)["response"]["id"]
        use(gateway, {"eve": KEYS["ada"], "bob": KEYS["bob"]})
        for fields in (
            {},
            {"previous_response_id": stored},
            {"previous_response_id": kept},
        ):
            refused = ask(socket, **fields)
            assert (refused["type"], refused["status"]) == ("error", 401)
        use(gateway, KEYS)
        assert ask(socket, previous_response_id=stored)["type"] == "response.completed"


def test_a_revoked_key_is_refused_at_its_next_message(gateway: RunningGateway) -> None:
    with connected(gateway, KEYS["ada"]) as socket:
        assert ask(socket)["type"] == "response.completed"
        use(gateway, {"bob": KEYS["bob"]})
        refused = ask(socket)
        assert (refused["type"], refused["status"]) == ("error", 401)
