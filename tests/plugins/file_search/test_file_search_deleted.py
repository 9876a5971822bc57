"""What a deleted response has read is kept for those that go on from it, and told to be gone where nothing keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway_testing.redis_process import RedisProcess

FAMILIES = ("harmony", "qwen3")
READ = "The tower has a height of 312 metres."
MARKED = "【0:0†tower.md】"


@pytest.fixture(params=["memory", "redis"])
def store_keys(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The keys that choose a store."""
    if request.param == "memory":
        yield {"server": {"store": "memory"}}
        return
    redis = RedisProcess(tmp_path)
    yield {"server": {"store": "redis"}, "stores": {"redis": {"url": redis.url}}}
    redis.kill()


@pytest.fixture
def gateway(gateway_server: Callable[..., Any], store_keys: dict[str, Any]) -> Any:
    search = {"call": {"name": "file_search", "arguments": {"queries": ["tower height"]}}}
    rules = [
        {"when": "how high is it", "pieces": [search]},
        {"when": "【0:0†tower.md】", "pieces": [{"text": "312 metres."}]},
        {"when": "thanks", "pieces": [{"text": "Welcome."}]},
        {"when": "cite it", "pieces": [{"text": "As said【0:0†tower.md】."}]},
    ]
    models = {
        family: {
            "engine": "scripted",
            "parser": family,
            "renderer": "harmony" if family == "harmony" else "chat_template",
            "scripted": {"rules": rules},
        }
        for family in FAMILIES
    }
    return gateway_server({"models": models, "tools": {"file_search": {}}, **store_keys})


def prompt(gateway: Any, model: str) -> str:
    """The last that the model has read."""
    engine = gateway.services.models[model].engine
    return str(engine.tokenizer.decode(engine.requests[-1].prompt.token_ids))


def tower(client: Any) -> list[Any]:
    """An entry of `tools` that searches a store with a tower."""
    store = client.vector_stores.create()
    client.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("tower.md", READ.encode())
    )
    return [{"type": "file_search", "vector_store_ids": [store.id]}]


@pytest.mark.parametrize("model", FAMILIES)
def test_branches_keep_what_a_deleted_response_has_read(gateway: Any, model: str) -> None:
    with gateway.client() as client:
        tools = tower(client)

        def after(previous: str, said: str) -> Any:
            return client.responses.create(
                model=model, input=said, previous_response_id=previous, tools=tools
            )

        first = client.responses.create(model=model, input="how high is it", tools=tools)
        assert first.output_text == "312 metres."
        one, other = after(first.id, "thanks"), after(first.id, "thanks")
        client.responses.delete(first.id)
        client.responses.delete(one.id)
        cited = after(other.id, "cite it")
        assert f"{MARKED}\n{READ}" in prompt(gateway, model)
        assert cited.output_text == "As said."
        assert cited.output[-1].content[0].annotations[0].filename == "tower.md"


@pytest.mark.parametrize("model", FAMILIES)
def test_a_conversations_call_without_its_response_is_told_to_be_gone(
    gateway: Any, model: str
) -> None:
    with gateway.client() as client:
        tools = tower(client)
        conversation = client.conversations.create()

        def say(said: str) -> Any:
            return client.responses.create(
                model=model, input=said, conversation=conversation.id, tools=tools
            )

        first = say("how high is it")
        say("thanks")
        assert f"{MARKED}\n{READ}" in prompt(gateway, model)
        client.responses.delete(first.id)
        cited = say("cite it")
        told = prompt(gateway, model)
        assert READ not in told
        assert "(What this call gave is not kept.)" in told
        assert "tower height" in told, "the call itself is the conversation's"
        assert cited.output[-1].content[0].annotations == []
