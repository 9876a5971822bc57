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


def said(text: str, item_id: str, role: str = "user") -> dict[str, Any]:
    kind = "input_text" if role == "user" else "output_text"
    return {
        "type": "message",
        "id": item_id,
        "role": role,
        "content": [{"type": kind, "text": text}],
    }


@pytest.mark.parametrize("item_id", ["msg_x", "fc_0", "__fake_id__", "1"])
def test_items_with_one_id_are_all_kept(client: OpenAI, http: httpx.Client, item_id: str) -> None:
    items = [said("m0", item_id), said("m1", item_id, "assistant"), said("m2", item_id)]
    made = http.post("/v1/conversations", json={"items": items}).json()["id"]
    assert texts(client, made) == ["m0", "m1", "m2"]
    more = [said("m3", item_id), said("m4", "msg_y"), said("m5", "msg_y")]
    added = http.post(f"/v1/conversations/{made}/items", json={"items": more}).json()
    ids = [item.id for item in client.conversations.items.list(made, order="asc", limit=1)]
    assert len(set(ids)) == 6
    assert [each["id"] for each in added["data"]] == ids[3:]
    assert texts(client, made) == ["m0", "m1", "m2", "m3", "m4", "m5"]


@pytest.mark.parametrize("item_id", ["msg_user", "__fake_id__"])
def test_messages_of_several_requests_with_one_id_are_all_kept(
    client: OpenAI, http: httpx.Client, item_id: str
) -> None:
    made = client.conversations.create().id
    for text in ("T0", "T1", "T2"):
        body = {"model": "scripted", "input": [said(text, item_id)], "conversation": made}
        assert http.post("/v1/responses", json=body).status_code == 200
    assert texts(client, made) == ["T0", "T0", "T1", "T1", "T2", "T2"]


def test_a_history_that_is_sent_again_is_neither_kept_nor_read_twice(
    client: OpenAI, http: httpx.Client
) -> None:
    made = client.conversations.create().id
    first = said("T0", "msg_mine")
    body = {"model": "scripted", "input": [first], "conversation": made}
    answer = http.post("/v1/responses", json=body).json()
    again = {**body, "input": [first, *answer["output"], said("T1", "msg_next")]}
    second = http.post("/v1/responses", json=again).json()
    assert texts(client, made) == ["T0", "T0", "T1", "T1"]
    plain = {"model": "scripted", "input": [said("T0", ""), said("T0", "", "assistant"), said("T1", "")]}  # fmt: skip
    assert http.post("/v1/responses", json=plain).json()["usage"]["input_tokens"] == second["usage"]["input_tokens"]  # fmt: skip


def test_references_to_all_items_of_a_conversation_are_found(
    client: OpenAI, http: httpx.Client
) -> None:
    """They are not the history that a client sends again. The conversation has the items already."""
    made = client.conversations.create(items=[said("one", "msg_a1"), said("two", "msg_b2")])  # type: ignore[list-item]
    ids = [item.id for item in client.conversations.items.list(made.id, order="asc")]
    sent = [{"type": "item_reference", "id": each} for each in ids]
    answer = http.post(
        "/v1/responses", json={"model": "scripted", "input": sent, "conversation": made.id}
    )
    assert answer.status_code == 200, answer.text
    assert texts(client, made.id) == ["one", "two", "two"]


@pytest.mark.parametrize("order", ["asc", "desc"])
def test_pages_of_input_items_end(client: OpenAI, http: httpx.Client, order: str) -> None:
    items = [said(f"d{number}", "__fake_id__") for number in range(5)]
    made = http.post("/v1/responses", json={"model": "scripted", "input": items}).json()["id"]
    pages, after = [], None
    while len(pages) < 10:
        query = {"order": order, "limit": 2, **({"after": after} if after else {})}
        page = http.get(f"/v1/responses/{made}/input_items", params=query).json()
        pages.append([item["content"][0]["text"] for item in page["data"]])
        after = page["last_id"]
        if not page["has_more"]:
            break
    found = [text for page in pages for text in page]
    assert found == sorted(found, reverse=order == "desc")
    assert len(found) == 5
