"""A configured gateway that names no store: what it has stored outlives it, and its workers share it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.slow

WORKERS = """
[server]
port = {port}
workers = 3
grace_period = 1

[models.scripted]
engine = "scripted"
path = "{scenario}"
"""


def test_a_conversation_goes_on_after_a_restart(
    start_server: Callable[..., Any], state_folder: Path
) -> None:
    with (first := start_server()).client() as client:
        conversation = client.conversations.create(metadata={"topic": "demo"})
        response = client.responses.create(
            model="scripted", input="hello", conversation=conversation.id
        )
        chained = client.responses.create(model="scripted", input="hello")
    assert (state_folder / "litegate/store.sqlite").exists()
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(timeout=60)
    with start_server().client() as client:
        assert client.responses.retrieve(response.id).output_text == response.output_text
        assert client.conversations.retrieve(conversation.id).metadata == {"topic": "demo"}
        assert len(client.conversations.items.list(conversation.id).data) >= 2
        further = client.responses.create(
            model="scripted", input="hello", previous_response_id=chained.id
        )
        assert further.previous_response_id == chained.id


def test_all_workers_see_what_one_has_stored(start_server: Callable[..., Any]) -> None:
    """Each request takes a connection of its own, and so any of the workers."""
    server = start_server(WORKERS)
    made = [
        httpx.post(
            f"{server.url}/v1/responses",
            json={"model": "scripted", "input": "hello", "background": True, "stream": True},
            timeout=60,
        ).text
        for _ in range(6)
    ]
    for text in made:
        response_id = text.split('"id":"')[1].split('"')[0]
        for _ in range(6):
            seen = httpx.get(
                f"{server.url}/v1/responses/{response_id}", params={"stream": True}, timeout=60
            )
            assert seen.status_code == 200
            assert "response.completed" in seen.text
            assert seen.text.count('"sequence_number"') == text.count('"sequence_number"')
    assert server.stop() == 0
