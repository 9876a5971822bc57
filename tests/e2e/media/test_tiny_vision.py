"""A real model that sees, over HTTP: it says what is in a picture that the test draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic

from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.media.drawn_pictures import PICTURES, QUESTION

SEEING = Path(__file__).parents[2] / "models" / "tiny-qwen3-vision"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = {
        "engine": "llamacpp",
        "path": str(SEEING),
        "sampling": {"temperature": 0},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    config = {"models": {"tiny": model}}
    with run_gateway(config, tmp_path_factory.mktemp("tiny_vision")) as running:
        yield running


@pytest.mark.parametrize("said", PICTURES)
def test_it_says_what_is_in_a_picture_in_each_api(gateway: RunningGateway, said: str) -> None:
    data = PICTURES[said]
    url = f"data:image/png;base64,{data}"
    parts = [
        {"type": "input_image", "image_url": url, "detail": "auto"},
        {"type": "input_text", "text": QUESTION},
    ]
    given: Any = [{"role": "user", "content": parts}]
    with gateway.client() as client:
        response = client.responses.create(model="tiny", input=given)
        assert response.output_text == said
        counted = client.responses.input_tokens.count(model="tiny", input=given).input_tokens
        assert response.usage is not None
        assert response.usage.input_tokens == counted

        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]  # fmt: skip
        messages: Any = [{"role": "user", "content": content}]
        answer = client.chat.completions.create(model="tiny", messages=messages)
        assert answer.choices[0].message.content == said
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == counted

        # Of two pictures in a chain, the one that is asked about.
        other = next(text for text in PICTURES if text != said)
        parts[0] = {**parts[0], "image_url": f"data:image/png;base64,{PICTURES[other]}"}
        later = client.responses.create(model="tiny", input=given, previous_response_id=response.id)
        assert later.output_text == other

    source = {"type": "base64", "media_type": "image/png", "data": data}
    blocks: Any = [{"type": "image", "source": source}, {"type": "text", "text": QUESTION}]
    with Anthropic(
        base_url=gateway.base_url.removesuffix("/v1"), api_key="none", max_retries=0
    ) as claude:
        message = claude.messages.create(
            model="tiny", max_tokens=60, messages=[{"role": "user", "content": blocks}]
        )
    assert message.content[-1].type == "text"
    assert message.content[-1].text == said
    cached = message.usage.cache_read_input_tokens or 0
    assert message.usage.input_tokens + cached == counted
