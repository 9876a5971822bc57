"""Reasoning that an upstream encrypts comes back to it: stored, carried by the client, or between calls of tools.

The upstream is a gateway, which opens only what it has sealed itself; the client in front never sees that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.wire import items
from gateway_testing.server import RunningGateway, run_gateway

PLAN = "my plan is a bridge"
RULES = [
    {"when": "begin", "pieces": [{"reasoning": PLAN}, {"text": "I begin."}]},
    {"when": "again", "pieces": [{"text": "I go on."}]},
]
INCLUDE: list[Any] = ["reasoning.encrypted_content"]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    scripted = {"engine": "scripted", "scripted": {"rules": RULES}}
    models = {"said": scripted, "other": scripted}
    with run_gateway({"models": models}, tmp_path_factory.mktemp("up")) as running:
        yield running


@pytest.fixture(scope="module")
def front(
    upstream: RunningGateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    def behind(model: str, **more: Any) -> dict[str, Any]:
        told = {"base_url": upstream.base_url, "api": "responses", "model": model, **more}
        return {"engine": "openai", "openai": told}

    takes = {"encrypted_reasoning": True}
    models = {"m": behind("said", takes=takes), "other": behind("other", takes=takes)}
    with run_gateway({"models": models}, tmp_path_factory.mktemp("front")) as running:
        yield running


def reasoning_read(upstream: RunningGateway, model: str = "said") -> list[str]:
    """The reasoning in the upstream's last turn."""
    engine: Any = upstream.services.models[model].engine
    turn = engine.requests[-1].turn
    found = [item for item in turn.items if isinstance(item, items.Reasoning)]
    assert all(item.encrypted_content for item in found), "none is sent as text"
    return [part.text for item in found for part in item.content or ()]


@pytest.mark.parametrize("stream", [True, False])
def test_reasoning_of_a_stored_response_comes_back(
    upstream: RunningGateway, front: RunningGateway, stream: bool
) -> None:
    with front.client() as client:
        if stream:
            with client.responses.stream(model="m", input="begin") as events:
                first: Any = events.get_final_response()
        else:
            first = client.responses.create(model="m", input="begin")
        thought = first.output[0]
        assert (thought.content[0].text, thought.encrypted_content) == (PLAN, None)
        client.responses.create(model="m", input="again", previous_response_id=first.id)
        assert reasoning_read(upstream) == [PLAN]
        client.responses.create(model="other", input="again", previous_response_id=first.id)
        assert reasoning_read(upstream, "other") == [], "another model has not written it"


@pytest.mark.parametrize("shown", ["created", "retrieved", "without its text"])
def test_a_client_that_stores_nothing_carries_it(
    upstream: RunningGateway, front: RunningGateway, shown: str
) -> None:
    with front.client() as client:
        if shown == "retrieved":
            stored = client.responses.create(model="m", input="begin")
            first = client.responses.retrieve(stored.id, include=INCLUDE)
        else:
            first = client.responses.create(model="m", input="begin", store=False, include=INCLUDE)
        output = [item.model_dump(exclude_none=True) for item in first.output]
        if shown == "without its text":
            del output[0]["content"]
        history: Any = [{"role": "user", "content": "begin"}, *output, {"role": "user", "content": "again"}]  # fmt: skip
        client.responses.create(model="m", input=history, store=False)
        assert reasoning_read(upstream) == [PLAN]
        output[0]["id"] = "rs_mine"
        if shown != "without its text":
            output[0]["encrypted_content"] = "gAAAAA" + output[0]["encrypted_content"][6:-8]
            client.responses.create(model="m", input=history, store=False)
            assert reasoning_read(upstream) == [], "what was changed is not sent"
