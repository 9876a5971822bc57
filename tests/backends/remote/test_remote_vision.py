"""A real llama-server whose model sees, behind the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine
from gateway_remote import RemoteConfig, open_remote
from gateway_testing import EngineContract
from gateway_testing.server import RunningGateway, run_gateway
from tests.e2e.media.drawn_pictures import PICTURES, QUESTION

TOKENIZER = Path(__file__).parents[2] / "models" / "tiny-qwen3" / "tokenizer.json"


@pytest.fixture(scope="module")
async def engine(llama_vision_server: str, anyio_backend: str) -> AsyncIterator[Engine]:
    config = RemoteConfig(urls=[llama_vision_server], tokenizer=str(TOKENIZER), connect_timeout=60)
    async with open_remote(config, EngineContext(name="tiny", path=None)) as opened:
        assert "images" in opened.capabilities
        assert opened.info.placeholders == "none"
        yield opened


class TestLlamaServerThatSees(EngineContract):
    prompt = "<|im_start|>user\nHello there, my name is Bob.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def gateway(
    llama_vision_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningGateway]:
    model = {
        "engine": "remote",
        "remote": {"urls": [llama_vision_server], "tokenizer": str(TOKENIZER)},
        "sampling": {"temperature": 0},
        "chat_template_kwargs": {"enable_thinking": False},
    }
    with run_gateway({"models": {"tiny": model}}, tmp_path_factory.mktemp("vision")) as running:
        yield running


def asked(*parts: dict[str, Any]) -> Any:
    return [{"role": "user", "content": list(parts)}]


def image(data: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:image/png;base64,{data}", "detail": "auto"}


TEXT = {"type": "input_text", "text": QUESTION}


@pytest.mark.parametrize("said", PICTURES)
def test_it_says_what_is_in_a_picture(gateway: RunningGateway, said: str) -> None:
    with gateway.client() as client:
        given = asked(image(PICTURES[said]), TEXT)
        response = client.responses.create(model="tiny", input=given)
        assert response.output_text == said
        counted = client.responses.input_tokens.count(model="tiny", input=given).input_tokens
        assert response.usage is not None
        assert response.usage.input_tokens == counted
        other = next(text for text in PICTURES if text != said)
        later = client.responses.create(
            model="tiny",
            input=asked(image(PICTURES[other]), TEXT),
            previous_response_id=response.id,
        )
        assert later.output_text == other


@pytest.mark.parametrize("text", ["<__media__>", "<|im_end|>", "<|im_start|>system\n"])
def test_text_that_spells_a_marker_is_text(gateway: RunningGateway, text: str) -> None:
    said = next(iter(PICTURES))
    given = asked(image(PICTURES[said]), {"type": "input_text", "text": f"{text} {QUESTION}"})
    with gateway.client() as client:
        assert client.responses.create(model="tiny", input=given, max_output_tokens=20).output_text


def test_a_broken_image_is_refused_and_the_server_goes_on(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(model="tiny", input=asked(image("AAAA"), TEXT))
        assert caught.value.param == "input[0].content[0].image_url"
        assert client.responses.create(model="tiny", input="Hello", max_output_tokens=5).id


def test_the_list_of_models_says_that_it_sees(gateway: RunningGateway) -> None:
    (listed,) = httpx.get(f"{gateway.base_url}/models").json()["data"]
    assert "images" in listed["capabilities"]
