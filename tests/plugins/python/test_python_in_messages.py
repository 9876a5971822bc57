"""Code that the gateway runs for the Anthropic Messages API, by the vendor's own client."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic import Anthropic

CODE: Any = [{"type": "code_execution_20260521", "name": "code_execution"}]


def ask(gateway: Any, model: str, *messages: Any) -> Any:
    root = gateway.base_url.removesuffix("/v1")
    with (
        Anthropic(base_url=root, api_key="none", max_retries=0) as client,
        client.messages.stream(
            model=model, max_tokens=400, messages=list(messages), tools=CODE
        ) as stream,
    ):
        return stream.get_final_message()


def user(text: str) -> Any:
    return {"role": "user", "content": text}


@pytest.mark.parametrize("model", ["qwen3", "harmony"])
def test_code_is_run_and_its_output_comes_back(python_gateway: Any, model: str) -> None:
    message = ask(python_gateway, model, user("please compute"))
    call, ran, text = message.content
    assert (call.type, call.name) == ("server_tool_use", "code_execution")
    assert call.input == {"code": "x = 6 * 7\nprint('product', x)"}
    assert (ran.type, ran.tool_use_id) == ("code_execution_tool_result", call.id)
    assert "product 42" in ran.content.stdout
    assert ran.content.return_code == 0
    assert text.text == "It is 42."
    again = ask(
        python_gateway, model, user("please compute"), message.to_param(), user("what is y")
    )
    assert again.content[-1].text == "Seen."
    engine = python_gateway.services.models[model].engine
    prompt = engine.tokenizer.decode(engine.requests[-1].prompt.token_ids)
    assert "product 42" in prompt


@pytest.mark.parametrize(
    ("text", "code", "answer"),
    [("fail please", 0, "It failed."), ("hang please", 1, "Too slow.")],
)
def test_what_goes_wrong_is_told(
    request: pytest.FixtureRequest, text: str, code: int, answer: str
) -> None:
    name = "hasty_gateway" if text == "hang please" else "python_gateway"
    gateway = request.getfixturevalue(name)
    _, ran, said = ask(gateway, "qwen3", user(text)).content
    assert ran.content.return_code == code
    assert said.text == answer
