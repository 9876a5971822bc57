"""Stored chat completions, by the official SDK and by plain HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from typing import Any

import httpx
import pytest
from openai import NotFoundError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionDeleted

from gateway.base.errors import StoreUnavailable
from gateway_testing.chat_grammar import fold_chunks, parse_chunks
from gateway_testing.pytest_plugin import StartGateway
from gateway_testing.server import RunningGateway

MODELS: dict[str, Any] = {"m": {"engine": "scripted", "aliases": ["alias"]}}
TOOL: Any = {
    "type": "function",
    "function": {"name": "f", "parameters": {"type": "object", "maxProperties": 10**30}},
}


def user(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def mark() -> dict[str, str]:
    """Metadata that no other test has."""
    return {"test": uuid.uuid4().hex}


def test_the_life_of_a_stored_completion(sdk: OpenAI) -> None:
    made = sdk.chat.completions.create(
        model="scripted", messages=user("hello"), store=True, metadata={"a": "b"}, seed=7, user="u"
    )
    found = sdk.chat.completions.retrieve(made.id)
    assert isinstance(found, ChatCompletion)
    assert found.choices == made.choices
    assert found.usage == made.usage
    extra = found.to_dict()
    assert (extra["metadata"], extra["seed"], extra["input_user"]) == ({"a": "b"}, 7, "u")
    changed = sdk.chat.completions.update(made.id, metadata={"c": "d"})
    assert changed.to_dict()["metadata"] == {"c": "d"}
    assert sdk.chat.completions.retrieve(made.id).to_dict() == changed.to_dict()
    gone = sdk.chat.completions.delete(made.id)
    assert gone == ChatCompletionDeleted(id=made.id, deleted=True, object="chat.completion.deleted")
    for act in (
        sdk.chat.completions.retrieve,
        sdk.chat.completions.delete,
        sdk.chat.completions.messages.list,
        lambda each: sdk.chat.completions.update(each, metadata={}),
    ):
        with pytest.raises(NotFoundError) as caught:
            act(made.id)
        assert caught.value.code == "chat_completion_not_found"
        assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("body", [{}, {"store": False}, {"store": None}])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_asked_to_be_stored_is_not(
    raw: httpx.Client, body: dict[str, Any], stream: bool
) -> None:
    tag = mark()
    body = {"model": "scripted", "messages": user("hello"), "metadata": tag, **body}
    answer = raw.post("/v1/chat/completions", json={**body, "stream": stream})
    made = fold_chunks(parse_chunks(answer.content)) if stream else answer.json()
    assert raw.get(f"/v1/chat/completions/{made['id']}").status_code == 404
    listed = raw.get("/v1/chat/completions", params={"metadata[test]": tag["test"]}).json()
    assert listed["data"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"messages": user("hello"), "n": 2},
        {"messages": user("think first"), "logprobs": True, "top_logprobs": 2},
        {"messages": user("two cities"), "tools": [TOOL], "tool_choice": "auto"},
        {"messages": user("take a note"), "tools": [{"type": "custom", "custom": {"name": "note"}}]},
        {"messages": user("hello"), "max_tokens": 1, "return_token_ids": True},
        {"messages": user("weather in Paris"), "functions": [TOOL["function"]]},
        {"messages": user("filter it"), "response_format": {"type": "json_object"}},
    ],
)  # fmt: skip
def test_streamed_and_plain_completions_are_stored_alike(
    raw: httpx.Client, body: dict[str, Any]
) -> None:
    body = {"model": "scripted", "store": True, "metadata": {"k": "ü"}, **body}
    plain = raw.post("/v1/chat/completions", json=body).json()
    answer = raw.post("/v1/chat/completions", json={**body, "stream": True})
    streamed = fold_chunks(parse_chunks(answer.content))
    kept = [raw.get(f"/v1/chat/completions/{made['id']}").json() for made in (plain, streamed)]
    for each, made in zip(kept, (plain, streamed), strict=True):
        ChatCompletion.model_validate(each)
        assert each["id"] == made["id"]
        assert each["object"] == "chat.completion"
        assert each["metadata"] == {"k": "ü"}
        assert each["tools"] == body.get("tools")
        assert each["response_format"] == body.get("response_format")
    shown = [{k: v for k, v in c.items() if k != "token_ids"} for c in plain["choices"]]
    assert kept[0]["choices"] == shown
    assert kept[0]["usage"] == plain["usage"]
    assert without_ids(kept[0]) == without_ids(kept[1])


def without_ids(completion: dict[str, Any]) -> dict[str, Any]:
    for choice in completion["choices"]:
        for call in choice["message"].get("tool_calls", ()):
            del call["id"]
    return {k: v for k, v in completion.items() if k not in ("id", "created")}


def test_completions_are_listed_by_page_order_model_and_metadata(sdk: OpenAI) -> None:
    tag = mark()
    ids = []
    for model, more in (("scripted", {}), ("property", {"b": "1"}), ("scripted", {"b": "1"})):
        made = sdk.chat.completions.create(
            model=model, messages=user("hello"), store=True, metadata={**tag, **more}
        )
        ids.append(made.id)

    def listed(**query: Any) -> list[str]:
        """By as many pages as there are."""
        metadata = {**tag, **query.pop("metadata", {})}
        return [each.id for each in sdk.chat.completions.list(metadata=metadata, **query)]

    assert listed() == ids
    assert listed(limit=1) == ids
    assert listed(order="desc", limit=2) == ids[::-1]
    assert listed(model="scripted") == [ids[0], ids[2]]
    assert listed(metadata={"b": "1"}) == ids[1:]
    assert listed(metadata={"b": "1"}, model="property") == [ids[1]]
    assert listed(after=ids[0]) == ids[1:]
    assert listed(metadata={"c": "1"}) == []
    page = sdk.chat.completions.list(metadata=tag, limit=2)
    assert page.to_dict()["object"] == "list"
    assert page.to_dict()["first_id"] == ids[0]
    assert page.to_dict()["last_id"] == ids[1]
    assert page.has_more is True
    sdk.chat.completions.update(ids[0], metadata={})
    assert listed() == ids[1:]


def test_the_messages_are_those_of_the_request_in_pages(sdk: OpenAI, raw: httpx.Client) -> None:
    image = {"type": "text", "text": "part"}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[Any] = [
        {"role": "system", "content": "Be brief.", "name": "boss"},
        {"role": "user", "content": [image]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "hello"},
    ]
    made = sdk.chat.completions.create(model="scripted", messages=messages, store=True)
    whole = list(sdk.chat.completions.messages.list(made.id, limit=3))
    assert [each.id for each in whole] == [f"{made.id}-{number}" for number in range(4)]
    assert [each.role for each in whole] == ["system", "user", "assistant", "tool"]
    assert [each.content for each in whole] == ["Be brief.", None, None, "hello"]
    shown = raw.get(f"/v1/chat/completions/{made.id}/messages").json()
    assert shown["has_more"] is False
    assert (shown["first_id"], shown["last_id"]) == (whole[0].id, whole[-1].id)
    assert shown["data"][0]["name"] == "boss"
    assert shown["data"][1]["content_parts"] == [image]
    assert shown["data"][0]["content_parts"] is None
    assert shown["data"][2]["tool_calls"] == [call]
    assert shown["data"][3]["tool_call_id"] == "c"
    backwards = sdk.chat.completions.messages.list(made.id, order="desc", after=whole[2].id)
    assert [each.id for each in backwards] == [whole[1].id, whole[0].id]


BAD_QUERIES = [
    ("?limit=0", 400, "limit", "invalid_value"),
    ("?limit=x", 400, "limit", "invalid_value"),
    ("?order=up", 400, "order", "invalid_value"),
    ("?after=chatcmpl-nobody", 404, "after", "chat_completion_not_found"),
    ("?metadata=x", 400, "metadata", "invalid_value"),
    (f"?metadata[a]={'x' * 513}", 400, "metadata.a", "string_above_max_length"),
    ("/chatcmpl-nobody", 404, None, "chat_completion_not_found"),
    ("/chatcmpl-nobody/messages", 404, None, "chat_completion_not_found"),
    ("/{id}/messages?after=x", 404, "after", "message_not_found"),
    ("/{id}/messages?limit=101", 400, "limit", "invalid_value"),
]


@pytest.mark.parametrize(("path", "status", "param", "code"), BAD_QUERIES)
def test_a_bad_query_is_told_what_is_wrong(
    sdk: OpenAI, raw: httpx.Client, path: str, status: int, param: str | None, code: str
) -> None:
    made = sdk.chat.completions.create(model="scripted", messages=user("hello"), store=True)
    answer = raw.get("/v1/chat/completions" + path.replace("{id}", made.id))
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code)


@pytest.mark.parametrize(
    ("body", "param"),
    [({}, "metadata"), ({"metadata": {"a": 1}}, "metadata.a"), ({"metadata": []}, "metadata")],
)
def test_a_bad_update_is_told_what_is_wrong(
    sdk: OpenAI, raw: httpx.Client, body: dict[str, Any], param: str
) -> None:
    made = sdk.chat.completions.create(model="scripted", messages=user("hello"), store=True)
    answer = raw.post(f"/v1/chat/completions/{made.id}", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_what_failed_or_was_left_is_not_stored(raw: httpx.Client) -> None:
    tag = mark()
    body = {"model": "scripted", "store": True, "metadata": tag}
    assert raw.post("/v1/chat/completions", json={**body, "messages": user("break down")}).is_error
    raw.post("/v1/chat/completions", json={**body, "messages": user("break down"), "stream": True})
    slow = {**body, "messages": user("go slowly"), "stream": True}
    with raw.stream("POST", "/v1/chat/completions", json=slow) as answer:
        next(answer.iter_raw())
    listed = raw.get("/v1/chat/completions", params={"metadata[test]": tag["test"]}).json()
    assert listed["data"] == []


def test_owners_see_their_own(gateway_server: StartGateway) -> None:
    keys = [
        {"name": name, "sha256": hashlib.sha256(f"key-{name}".encode()).hexdigest()}
        for name in ("ada", "bob")
    ]
    gateway = gateway_server({"server": {"api_keys": keys}, "models": MODELS})
    with (
        gateway.client(api_key="key-ada") as ada,
        gateway.client(api_key="key-bob") as bob,
    ):
        made = ada.chat.completions.create(model="alias", messages=user("hello"), store=True)
        assert [each.id for each in ada.chat.completions.list(model="alias")] == [made.id]
        assert list(bob.chat.completions.list()) == []
        with pytest.raises(NotFoundError):
            bob.chat.completions.retrieve(made.id)
        with pytest.raises(NotFoundError):
            bob.chat.completions.delete(made.id)
        assert ada.chat.completions.retrieve(made.id).id == made.id


def test_a_server_without_a_store_says_so(gateway_server: StartGateway) -> None:
    gateway = gateway_server({"server": {"store": "none"}, "models": MODELS})
    with httpx.Client(base_url=gateway.base_url) as http:
        for answer in (
            http.post("/chat/completions", json={"messages": user("hello"), "store": True}),
            http.post("/responses", json={"input": "hello", "store": True}),
            http.get("/chat/completions"),
            http.get("/chat/completions/x"),
        ):
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "unsupported_parameter"
        body = {"messages": user("hello"), "store": False}
        assert http.post("/chat/completions", json=body).status_code == 200
        for asked in ({}, {"store": None}, {"store": False}):
            told = http.post("/responses", json={"input": "hello", **asked}).json()
            assert (told["status"], told["store"]) == ("completed", False)


def test_completed_means_kept(gateway_server: StartGateway, monkeypatch: Any) -> None:
    """A completion whose store goes away meanwhile fails: plain with a 503, streamed with an error and no finish."""
    gateway: RunningGateway = gateway_server({"models": MODELS})
    store = gateway.services.store

    async def away(record: object) -> None:
        await asyncio.sleep(0)
        raise StoreUnavailable("The store does not answer.")

    monkeypatch.setattr(store, "put_completion", away)
    with httpx.Client(base_url=gateway.base_url) as http:
        body = {"messages": user("hello"), "store": True}
        answer = http.post("/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        chunks = parse_chunks(http.post("/chat/completions", json={**body, "stream": True}).content)
        assert chunks[-1]["error"]["code"] == "store_unavailable"
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks[:-1])
        assert http.post("/chat/completions", json={**body, "store": False}).status_code == 200
