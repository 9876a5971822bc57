"""The same journey on each real engine, with the tiny model's own words."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI
from pydantic import BaseModel

from gateway_testing.grammar import fold, parse_sse
from tests.waiting import wait_until

SAFETENSORS = Path(__file__).parents[1] / "models" / "tiny-qwen3"
LLAMACPP = """
[server]
port = {port}
[models.tiny]
engine = "llamacpp"
[models.tiny.sampling]
temperature = 0
"""
VLLM = f"""
[server]
port = {{port}}
[models.tiny]
engine = "vllm"
path = "{SAFETENSORS}"
max_model_len = 1024
[models.tiny.sampling]
temperature = 0
[models.tiny.vllm]
enforce_eager = true
max_num_seqs = 8
[models.tiny.vllm.args]
kv_cache_memory_bytes = 1073741824
"""
NO_VLLM = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None,
    reason="vLLM is not installed here; .ci/run installs its CPU build",
)
ENGINES = [
    pytest.param(LLAMACPP, id="llamacpp"),
    pytest.param(VLLM, id="vllm", marks=[pytest.mark.vllm, NO_VLLM]),
]
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, start_server: Any) -> Any:
    return start_server(request.param)


@pytest.fixture
def sdk(engine: Any) -> Any:
    with engine.client() as client:
        yield client


def test_it_streams_what_it_knows(sdk: OpenAI) -> None:
    with sdk.responses.stream(model="tiny", input="What is the capital of France?") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert (
        deltas
    )  # tokens that are ready together are one delta, on a slow machine perhaps all of them
    assert "".join(deltas) == final.output_text
    assert "Paris" in final.output_text


def test_it_thinks_when_asked_to(sdk: OpenAI) -> None:
    response = sdk.responses.create(
        model="tiny",
        input="What is the capital of France?",
        extra_body={"chat_template_kwargs": {"enable_thinking": True}},
    )
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0


def test_it_calls_a_function_and_answers_from_the_result(sdk: OpenAI) -> None:
    first = sdk.responses.create(
        model="tiny", input="What is the weather in Paris?", tools=[WEATHER]
    )
    call = first.output[-1]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"city": "Paris"}
    second = sdk.responses.create(
        model="tiny",
        previous_response_id=first.id,
        input=[
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": '{"temperature": 18}',
            }
        ],
        tools=[WEATHER],
    )
    assert "18" in second.output_text


def test_a_schema_is_kept_even_by_a_toy(sdk: OpenAI) -> None:
    class Choice(BaseModel):
        colour: Literal["red", "blue"]
        sure: bool

    response = sdk.responses.parse(model="tiny", input="Choose a colour.", text_format=Choice)
    assert response.output_parsed is not None
    assert response.output_parsed.colour in ("red", "blue")


def test_a_forced_call_is_made(sdk: OpenAI) -> None:
    response = sdk.responses.create(
        model="tiny", input="Hello!", tools=[WEATHER], tool_choice="required",
        max_output_tokens=100,
    )  # fmt: skip
    assert response.output[-1].type == "function_call"
    if response.status == "completed":
        assert set(json.loads(response.output[-1].arguments)) == {"city"}


def test_log_probabilities_add_up_to_the_text(sdk: OpenAI) -> None:
    response = sdk.responses.create(
        model="tiny", input="Hello!", top_logprobs=3, include=["message.output_text.logprobs"]
    )
    part = response.output[-1].content[0]  # type: ignore[union-attr, index]
    assert part.type == "output_text"
    assert b"".join(bytes(p.bytes) for p in part.logprobs or []).decode() == part.text
    assert all(len(p.top_logprobs) == 3 for p in part.logprobs or [])


def test_many_at_once(engine: Any) -> None:
    async def main() -> list[str]:
        async with AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none") as client:

            async def one() -> str:
                async with client.responses.stream(model="tiny", input="Who are you?") as stream:
                    return (await stream.get_final_response()).output_text

            return await asyncio.gather(*(one() for _ in range(12)))

    answers = asyncio.run(main())
    assert all(answers)


def running(url: str) -> float:
    metrics = httpx.get(f"{url}/metrics").text
    line = next(x for x in metrics.splitlines() if x.startswith("gateway_running_requests{"))
    return float(line.split()[-1])


def test_a_client_that_leaves_frees_the_engine(engine: Any) -> None:
    body = {
        "model": "tiny",
        "input": "Hello!",
        "stream": True,
        "ignore_eos": True,
        "max_output_tokens": 800,
    }
    with (
        httpx.Client(base_url=engine.url, timeout=60) as leaving,
        leaving.stream("POST", "/v1/responses", json=body) as answer,
    ):
        chunks = answer.iter_bytes()
        while b"output_text.delta" not in next(chunks):
            pass
    wait_until(lambda: running(engine.url) == 0)
    done = httpx.post(
        f"{engine.url}/v1/responses", json={"model": "tiny", "input": "Hello!"}, timeout=60
    )
    assert done.status_code == 200


def test_a_prompt_that_is_too_long_is_told_before_anything_is_sent(sdk: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        sdk.responses.create(model="tiny", input="word " * 30_000)
    assert caught.value.code == "context_length_exceeded"


def test_a_cut_answer_is_incomplete(engine: Any) -> None:
    body = {"model": "tiny", "input": "Who are you?", "stream": True, "max_output_tokens": 3}
    answer = httpx.post(f"{engine.url}/v1/responses", json=body, timeout=60)
    final = fold(parse_sse(answer.content))
    assert final["status"] == "incomplete"
    assert final["usage"]["output_tokens"] == 3
