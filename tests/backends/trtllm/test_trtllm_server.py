"""A whole server over the stand-in: the official SDK in front, TensorRT-LLM's interface behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway_testing.server import RunningGateway, run_gateway

MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"


@pytest.fixture
def gateway(tensorrt_llm: Any, config: Any, tmp_path: Path) -> Iterator[RunningGateway]:
    settings = {"guided_decoding": config().guided_decoding, "health_interval": 0.05}
    model = {"engine": "trtllm", "path": str(MODEL), "max_model_len": 1024, "trtllm": settings}
    with run_gateway({"models": {"tiny": model}}, tmp_path) as running:
        yield running


def test_answers_streams_and_log_probabilities(gateway: RunningGateway) -> None:
    wanted: Any = {"model": "tiny", "input": "Hello", "temperature": 0, "max_output_tokens": 30}
    with gateway.client() as client:
        plain = client.responses.create(**wanted)
        events = list(client.responses.create(**wanted, stream=True))
        assert events[-1].response.output_text == plain.output_text
        assert plain.usage.output_tokens > 0
        chat = client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "Hello"}],
            temperature=0,
            max_tokens=8,
            logprobs=True,
            top_logprobs=2,
        )
        [choice] = chat.choices
        assert choice.logprobs is not None
        made = choice.logprobs.content or []
        assert (
            b"".join(bytes(token.bytes or ()) for token in made).decode() == choice.message.content
        )
        assert all(len(token.top_logprobs) == 2 for token in made)
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(model="tiny", prompt="a", extra_body={"top_k": -5})
        assert caught.value.param == "top_k"


def test_a_client_that_goes_away_frees_the_engine(
    gateway: RunningGateway, tensorrt_llm: Any
) -> None:
    [llm] = tensorrt_llm.LLM.opened
    body = {"model": "tiny", "input": "Hello", "max_output_tokens": 900, "stream": True}
    body["temperature"] = 0
    for _ in range(12):
        with httpx.stream("POST", f"{gateway.base_url}/responses", json=body, timeout=60) as answer:
            next(answer.iter_lines())
    assert llm.executor.idle(10)


def test_death_is_a_503_and_the_server_is_not_ready(
    gateway: RunningGateway, tensorrt_llm: Any
) -> None:
    root = gateway.base_url.removesuffix("/v1")
    assert httpx.get(f"{root}/ready").status_code == 200
    [llm] = tensorrt_llm.LLM.opened
    llm.executor.die(RuntimeError("a GPU fell off the bus"), tell=False)
    assert httpx.get(f"{root}/ready").status_code == 503
    with gateway.client() as client, pytest.raises(openai.InternalServerError) as caught:
        client.responses.create(model="tiny", input="Hello")
    assert caught.value.status_code == 503
    assert caught.value.code == "engine_unavailable"
