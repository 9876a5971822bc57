"""A model that ends its turn after nothing but reasoning: the reasoning is shown as such, and the run is complete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway_testing.grammar import fold
from gateway_testing.server import RunningGateway, run_gateway
from tests.plugins.messages.messages_grammar import fold_events, parse_events

RULES = [{"when": "think", "pieces": [{"reasoning": "It may be so."}]}]
ASKED: list[Any] = [{"role": "user", "content": "think"}]


@pytest.fixture(scope="module", params=["harmony", "qwen3", "deepseek_r1"])
def gateway(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    model = {"engine": "scripted", "parser": request.param, "scripted": {"rules": RULES}}
    config = {"models": {"m": model}, "apis": {"messages": {}}}
    with run_gateway(config, tmp_path_factory.mktemp("thinks")) as running:
        yield running


def test_a_response_is_completed_with_the_reasoning(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(model="m", input="think")
        events = list(client.responses.create(model="m", input="think", stream=True))
        stored = client.responses.retrieve(made.id)
        chained = client.responses.create(model="m", input="think", previous_response_id=made.id)
    fold([event.to_dict() for event in events])
    for response in (made, stored, chained, events[-1].response):  # type: ignore[union-attr]
        assert (response.status, response.output_text) == ("completed", "")
        [item] = response.output
        assert item.type == "reasoning"
        assert [part.text for part in item.content or ()] == ["It may be so."]


@pytest.mark.parametrize("stream", [False, True])
def test_a_chat_completion_stops_without_content(gateway: RunningGateway, stream: bool) -> None:
    with gateway.client() as client:
        if stream:
            with client.chat.completions.stream(model="m", messages=ASKED) as events:
                choice: Any = events.get_final_completion().choices[0]
        else:
            choice = client.chat.completions.create(model="m", messages=ASKED).choices[0]
    assert (choice.finish_reason, choice.message.content or None) == ("stop", None)
    assert choice.message.reasoning_content == "It may be so."


@pytest.mark.parametrize("stream", [False, True])
def test_a_message_ends_its_turn_after_thinking(gateway: RunningGateway, stream: bool) -> None:
    sent = {"model": "m", "max_tokens": 200, "messages": ASKED, "stream": stream}
    answer = httpx.post(f"{gateway.base_url}/messages", json=sent, timeout=60)
    assert answer.status_code == 200, answer.text
    message = fold_events(parse_events(answer.content)) if stream else answer.json()
    assert [block["type"] for block in message["content"]] == ["thinking"]
    assert message["content"][0]["thinking"] == "It may be so."
    assert message["stop_reason"] == "end_turn"
