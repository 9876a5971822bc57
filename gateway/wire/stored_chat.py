"""Stored chat completions, as returned by `GET /v1/chat/completions` and related endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.wire.chat import ChatCompletion
from gateway.wire.common import JsonObject
from gateway.wire.decoding import decode_object
from gateway.wire.field_errors import missing
from gateway.wire.request import decode_metadata


class StoredChatCompletion(ChatCompletion, frozen=True, kw_only=True):
    """A completion with parameters of its request. Streamed and non-streamed completions have the same form: fields of
    self-hosted engines that only one of the two kinds has (tokens, log probabilities of the prompt) are not stored."""

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


def stored_messages(completion_id: str, sent: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """A request's messages in the form in which they are listed (OpenAI's): each with an id, and its content as text or
    as parts."""
    listed: list[JsonObject] = []
    for index, message in enumerate(sent):
        content = message.get("content")
        parts = content if isinstance(content, list) else None
        fields = {key: value for key, value in message.items() if value is not None}
        listed.append(
            {
                **fields,
                "id": f"{completion_id}-{index}",
                "role": message["role"],
                "content": None if parts is not None else content,
                "name": message.get("name"),
                "content_parts": parts,
            }
        )
    return listed


def decode_update(body: bytes) -> dict[str, str]:
    """Decode the metadata in the body of `POST /v1/chat/completions/{id}`; null means none. Raises `InvalidRequest`."""
    raw = decode_object(body)
    if "metadata" not in raw:
        raise missing("metadata", "Only the metadata can be changed.")
    return {} if raw["metadata"] is None else decode_metadata(raw["metadata"])
