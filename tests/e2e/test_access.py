"""API keys: what one has stored, another does not see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import AuthenticationError, BadRequestError, NotFoundError, OpenAI

from gateway.access.access import hash_key
from gateway_testing.grammar import fold, parse_sse

KEYS = "\n".join(
    f'[[server.api_keys]]\nname = "{name}"\nsha256 = "{hash_key(name + "-key")}"'
    for name in ("alice", "bob")
)


@pytest.fixture(scope="module")
def guarded(start_server: Any) -> Any:
    return start_server(server=KEYS)


@pytest.fixture
def alice(guarded: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{guarded.url}/v1", api_key="alice-key", max_retries=0) as client:
        yield client


@pytest.fixture
def bob(guarded: Any) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{guarded.url}/v1", api_key="bob-key", max_retries=0) as client:
        yield client


def test_a_wrong_key_is_401_in_the_envelope(guarded: Any) -> None:
    stranger = OpenAI(base_url=f"{guarded.url}/v1", api_key="guess", max_retries=0)
    with pytest.raises(AuthenticationError):
        stranger.models.list()
    answer = httpx.get(f"{guarded.url}/v1/models")
    assert answer.status_code == 401
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")
    assert answer.headers["x-request-id"]


def test_probes_are_open(guarded: Any) -> None:
    assert httpx.get(f"{guarded.url}/health").status_code == 200
    for path in ("/health", "/ready"):
        answer = httpx.head(f"{guarded.url}{path}")
        assert (answer.status_code, answer.content) == (200, b"")
    assert httpx.get(f"{guarded.url}/ready").status_code == 200


def test_owners_see_only_their_own(alice: OpenAI, bob: OpenAI) -> None:
    response = alice.responses.create(model="scripted", input="secret")
    conversation = alice.conversations.create()
    assert alice.responses.retrieve(response.id).id == response.id
    for look in (
        lambda: bob.responses.retrieve(response.id),
        lambda: bob.responses.delete(response.id),
        lambda: bob.responses.cancel(response.id),
        lambda: bob.responses.input_items.list(response.id),
        lambda: bob.conversations.retrieve(conversation.id),
        lambda: bob.conversations.items.list(conversation.id),
        lambda: bob.responses.create(model="scripted", input="x", conversation=conversation.id),
    ):
        with pytest.raises(NotFoundError):
            look()
    with pytest.raises(BadRequestError, match="not found"):
        bob.responses.create(model="scripted", input="x", previous_response_id=response.id)


def test_sealed_reasoning_is_carried_by_a_client_that_stores_nothing(
    guarded: Any, alice: OpenAI, bob: OpenAI
) -> None:
    first = alice.responses.create(
        model="scripted",
        input="think first",
        store=False,
        include=["reasoning.encrypted_content"],
    )
    reasoning: Any = first.output[0].to_dict()
    assert reasoning["encrypted_content"]
    bare = {"type": "reasoning", "summary": [], "encrypted_content": reasoning["encrypted_content"]}
    again = alice.responses.create(
        model="scripted",
        input=[bare, {"role": "user", "content": "hello"}],
        store=False,  # type: ignore[list-item]
    )
    assert again.status == "completed"
    headers = {"authorization": "Bearer bob-key"}
    for sealed in (bare, {**bare, "encrypted_content": "gAAAAA"}):
        body = {"model": "scripted", "input": [sealed, {"role": "user", "content": "x"}]}
        answer = httpx.post(f"{guarded.url}/v1/responses", json=body, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "input[0].encrypted_content"


def test_a_streamed_item_carries_the_same_seal(guarded: Any) -> None:
    body = {
        "model": "scripted",
        "input": "think first",
        "stream": True,
        "include": ["reasoning.encrypted_content"],
    }
    headers = {"authorization": "Bearer alice-key"}
    answer = httpx.post(f"{guarded.url}/v1/responses", json=body, headers=headers)
    assert fold(parse_sse(answer.content))["output"][0]["encrypted_content"]
