"""Conversations over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI


def texts(client: OpenAI, conversation_id: str) -> list[str]:
    items = client.conversations.items.list(conversation_id, order="asc")
    return [item.content[0].text for item in items]  # type: ignore[union-attr]


def test_a_conversation_grows_with_its_responses(client: OpenAI) -> None:
    made = client.conversations.create(
        metadata={"topic": "x"}, items=[{"type": "message", "role": "user", "content": "hey"}]
    )
    first = client.responses.create(model="scripted", input="one", conversation=made.id)
    second = client.responses.create(model="scripted", input="two", conversation=made.id)
    assert first.conversation is not None
    assert first.conversation.id == made.id
    assert second.usage is not None
    assert first.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens
    assert texts(client, made.id) == ["hey", "one", "one", "two", "two"]


def test_two_responses_at_once_do_not_mix_their_items(server: Any, client: OpenAI) -> None:
    made = client.conversations.create()

    async def main() -> None:
        async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as many:
            await asyncio.gather(
                *(
                    many.responses.create(model="scripted", input=f"n{i}", conversation=made.id)
                    for i in range(8)
                )
            )

    asyncio.run(main())
    found = texts(client, made.id)
    assert len(found) == 16
    assert all(found[i] == found[i + 1] for i in range(0, 16, 2))


def test_items_are_added_listed_and_taken_out(client: OpenAI, http: httpx.Client) -> None:
    made = client.conversations.create()
    added = client.conversations.items.create(
        made.id,
        items=[{"type": "message", "role": "user", "content": str(i)} for i in range(5)],
    )
    ids = [item.id for item in added.data]
    assert [i.id for i in client.conversations.items.list(made.id, order="asc", limit=2)] == ids
    page = http.get(
        f"/v1/conversations/{made.id}/items", params={"order": "asc", "limit": 2, "after": ids[1]}
    ).json()
    assert [i["id"] for i in page["data"]] == ids[2:4]
    assert (page["has_more"], page["first_id"], page["last_id"]) == (True, ids[2], ids[3])
    assert ids[0] is not None
    one = client.conversations.items.retrieve(ids[0], conversation_id=made.id)
    assert one.id == ids[0]
    client.conversations.items.delete(ids[0], conversation_id=made.id)
    assert texts(client, made.id) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("kind", ["additional_tools", "tool_search_output"])
def test_credentials_in_items_are_not_kept(http: httpx.Client, kind: str) -> None:
    mcp = {
        "type": "mcp",
        "server_label": "wiki",
        "server_url": "https://user:SECRET@mcp.example/sse?key=SECRET",
        "authorization": "SECRET",
        "headers": {"x-key": "SECRET"},
    }
    sent = {"items": [{"type": kind, "tools": [mcp]}]}
    made = http.post("/v1/conversations", json=sent).json()
    added = http.post(f"/v1/conversations/{made['id']}/items", json=sent)
    kept = http.get(f"/v1/conversations/{made['id']}/items")
    assert "SECRET" not in added.text + kept.text
    urls = [each["tools"][0]["server_url"] for each in kept.json()["data"]]
    assert urls == ["https://mcp.example/sse"] * 2


def test_metadata_changes_and_deletion_forgets(client: OpenAI, http: httpx.Client) -> None:
    made = client.conversations.create(metadata={"a": "1"})
    changed = client.conversations.update(made.id, metadata={"b": "2"})
    assert changed.metadata == {"b": "2"}
    assert client.conversations.retrieve(made.id).metadata == {"b": "2"}
    assert client.conversations.update(made.id, metadata=None).metadata == {}
    assert client.conversations.delete(made.id).deleted
    assert http.get(f"/v1/conversations/{made.id}").status_code == 404


def test_a_conversation_does_not_come_back_with_a_change_that_was_being_sent(
    server: Any, http: httpx.Client
) -> None:
    """It is deleted while the body of the change is on its way."""
    path = f"/v1/conversations/{http.post('/v1/conversations', json={}).json()['id']}"

    def body() -> Iterator[bytes]:
        yield b'{"metadata": '
        for _ in range(20):  # by then the server has seen the request's head
            http.get(path)
        assert http.delete(path).status_code == 200
        yield b'{"a": "b"}}'

    headers = {"content-type": "application/json"}
    with httpx.Client(base_url=server.url, timeout=60) as slow:
        assert slow.post(path, content=body(), headers=headers).status_code == 404
    assert http.get(path).status_code == 404


def test_a_failed_response_leaves_no_trace(client: OpenAI, http: httpx.Client) -> None:
    made = client.conversations.create()
    body = {"model": "scripted", "input": "break down", "conversation": made.id}
    assert http.post("/v1/responses", json=body).status_code == 500
    assert texts(client, made.id) == []
