"""Chains of thought that clients carry: `store: false` with function calls, across gateways whose keys are rotated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from cryptography.fernet import Fernet
from openai import BadRequestError

from gateway_testing.server import RunningGateway, run_gateway

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
KEYS = {"old": [OLD], "rotated": [NEW, OLD], "preparing": [OLD, NEW], "retired": [NEW]}
TOOL: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": False,
}
RULES = [
    {"when": "begin", "pieces": [{"reasoning": "my plan is a bridge"}, {"call": {"name": "look", "arguments": {"at": "a"}}}]},
    {"when": "first result", "pieces": [{"reasoning": "and then a tunnel"}, {"call": {"name": "look", "arguments": {"at": "b"}}}]},
    {"when": "second result", "pieces": [{"text": "two results"}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningGateway]]:
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(
                run_gateway(
                    {
                        "server": {"reasoning_keys": keys, "store": "none"},
                        "models": {"m": {"engine": "scripted", "scripted": {"rules": RULES}}},
                    },
                    tmp_path_factory.mktemp(name),
                )
            )
            for name, keys in KEYS.items()
        }


def turn(gateway: RunningGateway, history: list[Any]) -> list[Any]:
    """One turn of a client that keeps the history itself, as the SDK's documentation has it."""
    with gateway.client() as client:
        response = client.responses.create(
            model="m",
            input=history,
            tools=[TOOL],
            store=False,
            include=["reasoning.encrypted_content"],
        )
    assert response.status == "completed"
    return [item.model_dump(exclude_none=True) for item in response.output]


def sealed(items: list[Any]) -> list[Any]:
    """The items as a client sends them that drops the open text, as OpenAI's own never shows it."""
    return [
        {k: v for k, v in item.items() if k != "content"} if item["type"] == "reasoning" else item
        for item in items
    ]


def counted(gateway: RunningGateway, history: list[Any]) -> int:
    with gateway.client() as client:
        return int(
            client.responses.input_tokens.count(model="m", input=history, tools=[TOOL]).input_tokens
        )


def journey(*path: RunningGateway) -> list[Any]:
    """Two calls and their results, each turn at another gateway."""
    history: list[Any] = [{"role": "user", "content": "begin"}]
    for gateway, result in zip(path, ("first result", "second result"), strict=True):
        output = turn(gateway, history)
        assert [item["type"] for item in output] == ["reasoning", "function_call"]
        history += sealed(output)
        answer = {"type": "function_call_output", "call_id": output[1]["call_id"], "output": result}
        history.append(answer)
    return history


def test_thoughts_are_carried_through_calls_by_a_client_that_stores_nothing(
    gateways: dict[str, RunningGateway],
) -> None:
    history = journey(gateways["old"], gateways["old"])
    (message,) = turn(gateways["old"], history)
    assert message["content"][0]["text"] == "two results"
    # The model reads them: the prompt is as long as with the open text, and longer than without.
    texts = iter(("my plan is a bridge", "and then a tunnel"))
    open_ = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": next(texts)}]}
        if item.get("type") == "reasoning"
        else item
        for item in history
    ]  # fmt: skip
    without = [item for item in history if item.get("type") != "reasoning"]
    assert counted(gateways["old"], history) == counted(gateways["old"], open_)
    assert counted(gateways["old"], history) > counted(gateways["old"], without)


def test_keys_are_rotated_without_a_thought_lost(gateways: dict[str, RunningGateway]) -> None:
    """First every gateway learns to open with the new key, then one after the other seals with it, then the old one goes."""
    history = journey(gateways["preparing"], gateways["rotated"])
    for name in ("preparing", "rotated"):
        assert turn(gateways[name], history)[0]["type"] == "message"
    thoughts = [i for i, item in enumerate(history) if item.get("type") == "reasoning"]
    for name, unknown in (("old", thoughts[1]), ("retired", thoughts[0])):
        with pytest.raises(BadRequestError) as refused:
            turn(gateways[name], history)
        assert refused.value.code == "invalid_encrypted_content"
        assert refused.value.param == f"input[{unknown}].encrypted_content"


@pytest.mark.parametrize("where", [0, 10, 60, -20, -1])
def test_tampering_is_a_400(gateways: dict[str, RunningGateway], where: int) -> None:
    history = journey(gateways["old"], gateways["old"])
    text = history[1]["encrypted_content"]
    changed = list(text)
    changed[where] = "A" if changed[where] != "A" else "B"
    history[1] = {**history[1], "encrypted_content": "".join(changed)}
    with pytest.raises(BadRequestError) as refused:
        turn(gateways["old"], history)
    assert refused.value.param == "input[1].encrypted_content"


def test_what_is_sealed_shows_nothing(gateways: dict[str, RunningGateway]) -> None:
    history = journey(gateways["old"], gateways["old"])
    assert "bridge" not in str(history)
