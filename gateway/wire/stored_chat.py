"""Stored chat completions, as `GET /v1/chat/completions` and its relatives tell of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gateway.wire.chat import ChatCompletion
from gateway.wire.common import JsonObject, Value
from gateway.wire.decoding import decode_object, missing
from gateway.wire.request import decode_metadata


class StoredChatCompletion(ChatCompletion, frozen=True, kw_only=True):
    """A completion with what its request asked for. Plain and streamed ones are the same here: the fields of self-hosted
    engines that only one of the two tells (tokens, log probabilities of the prompt) are not kept.
    """

    metadata: dict[str, str] = {}
    input_user: str | None = None
    """The request's `user`."""
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    response_format: JsonObject | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None


class ChatCompletionList(Value, frozen=True, kw_only=True):
    """A page of stored completions. `first_id` and `last_id` are null where there are none."""

    object: Literal["list"] = "list"
    data: list[StoredChatCompletion]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class ChatMessageList(Value, frozen=True, kw_only=True):
    """A page of the messages that a stored completion was made from."""

    object: Literal["list"] = "list"
    data: list[JsonObject]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class DeletedChatCompletion(Value, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.deleted"] = "chat.completion.deleted"
    deleted: bool = True


def completion_list(data: list[StoredChatCompletion], *, has_more: bool) -> ChatCompletionList:
    """A page with its first and last ids."""
    return ChatCompletionList(
        data=data,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
        has_more=has_more,
    )


def stored_messages(completion_id: str, sent: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """A request's messages as they are listed: each with an id, and its content as text or as parts (OpenAI's shape)."""
    listed: list[JsonObject] = []
    for index, message in enumerate(sent):
        content = message.get("content")
        parts = content if isinstance(content, list) else None
        told = {key: value for key, value in message.items() if value is not None}
        listed.append(
            {
                **told,
                "id": f"{completion_id}-{index}",
                "role": message["role"],
                "content": None if parts is not None else content,
                "name": message.get("name"),
                "content_parts": parts,
            }
        )
    return listed


def decode_update(body: bytes) -> dict[str, str]:
    """The metadata in the body of `POST /v1/chat/completions/{id}`, null being none; raises `InvalidRequest`."""
    raw = decode_object(body)
    if "metadata" not in raw:
        raise missing("metadata", "It is all that can be changed.")
    return {} if raw["metadata"] is None else decode_metadata(raw["metadata"])
