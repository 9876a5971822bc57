"""Chat completions that one gateway stores and another tells of."""

from __future__ import annotations

from typing import Any

import pytest
from openai import NotFoundError

from gateway_testing.pytest_plugin import StartGateway


def test_what_one_gateway_stores_another_lists_changes_and_deletes(
    gateway_server: StartGateway, redis_process: Any
) -> None:
    config = {
        "server": {"store": "redis"},
        "stores": {"redis": {"url": redis_process.url, "prefix": "stored-chat"}},
        "models": {"m": {"engine": "scripted"}},
    }
    one, other = gateway_server(config), gateway_server(config)
    with one.client() as here, other.client() as there:
        messages: list[Any] = [{"role": "user", "content": "hello"}]
        tools: list[Any] = [
            {"type": "function", "function": {"name": "f", "parameters": {"maximum": 10**30}}}
        ]
        plain = here.chat.completions.create(
            model="m", messages=messages, tools=tools, store=True, metadata={"a": "1"}
        )
        chunks = list(
            here.chat.completions.create(model="m", messages=messages, store=True, stream=True)
        )
        assert [each.id for each in there.chat.completions.list()] == [plain.id, chunks[0].id]
        assert [each.id for each in there.chat.completions.list(metadata={"a": "1"})] == [plain.id]
        found = there.chat.completions.retrieve(plain.id)
        assert found.choices == plain.choices
        assert found.to_dict()["tools"] == tools
        assert [m.content for m in there.chat.completions.messages.list(plain.id)] == ["hello"]
        there.chat.completions.update(plain.id, metadata={"b": "2"})
        assert here.chat.completions.retrieve(plain.id).to_dict()["metadata"] == {"b": "2"}
        assert there.chat.completions.delete(plain.id).deleted
        with pytest.raises(NotFoundError):
            here.chat.completions.retrieve(plain.id)
