"""The engine's promises on a real llama-server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gateway.base.constraints import Grammar
from gateway.base.errors import ConfigurationError, InvalidRequest, Unsupported
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine, EngineOutput, EngineRequest, Sampling, TokensPrompt
from gateway_remote import RemoteConfig, open_remote
from gateway_testing import EngineContract

TOKENIZER = Path(__file__).parents[2] / "models" / "tiny-qwen3"


@pytest.fixture(scope="module")
async def engine(llama_server: str, anyio_backend: str) -> AsyncIterator[Engine]:
    config = RemoteConfig(urls=[llama_server], tokenizer=str(TOKENIZER), connect_timeout=60)
    async with open_remote(config, EngineContext(name="tiny", path=None)) as opened:
        yield opened


class TestLlamaServer(EngineContract):
    prompt = "<|im_start|>user\nHello there, my name is Bob.<|im_end|>\n<|im_start|>assistant\n"


async def answer(engine: Engine, text: str, **sampling: Any) -> list[EngineOutput]:
    assert engine.tokenizer is not None
    request = EngineRequest(
        request_id="r",
        prompt=TokensPrompt(token_ids=engine.tokenizer.encode(text)),
        sampling=Sampling(**{"temperature": 0.0, "max_tokens": 64} | sampling),
    )
    return [output async for output in engine.generate(request)]


GREETING = "<|im_start|>user\nHello there, my name is Bob.<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.anyio
async def test_the_server_is_asked_what_it_is(engine: Engine) -> None:
    info = engine.info
    assert info.engine == "remote"
    assert info.max_model_len == 1024
    assert info.architecture == "Qwen3ForCausalLM"
    assert info.chat_template
    assert info.description is not None
    assert info.description.startswith("llama-server")


@pytest.mark.anyio
async def test_without_its_tokenizer_here_its_own_api_is_named(llama_server: str) -> None:
    with pytest.raises(ConfigurationError, match=r"`gateway serve http://host:port/v1#NAME`"):
        async with open_remote(
            RemoteConfig(urls=[llama_server]), EngineContext(name="tiny", path=None)
        ):
            pass


@pytest.mark.anyio
async def test_the_end_token_is_text_only_where_it_is_wanted(engine: Engine) -> None:
    plain = await answer(engine, GREETING)
    shown = await answer(engine, GREETING, skip_special_tokens=False)
    kept = await answer(
        engine, GREETING, skip_special_tokens=False, include_stop_str_in_output=True
    )
    text = "".join(output.text for output in plain)
    assert text.endswith((".", "!", "?"))
    assert "".join(output.text for output in shown) == text
    assert "".join(output.text for output in kept) == text + "<|im_end|>"


@pytest.mark.anyio
async def test_cached_tokens_are_told(engine: Engine) -> None:
    await answer(engine, GREETING)
    outputs = await answer(engine, GREETING)
    assert outputs[-1].cached_tokens
    assert outputs[0].prompt_tokens == outputs[-1].cached_tokens + 1


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("name", "value"),
    [("min_tokens", 3), ("bad_words", ("x",)), ("prompt_logprobs", 0)],
)
async def test_what_llama_server_cannot_do_is_refused_by_name(
    engine: Engine, name: str, value: Any
) -> None:
    with pytest.raises(Unsupported) as caught:
        await answer(engine, GREETING, **{name: value})
    assert caught.value.param == name


@pytest.mark.anyio
async def test_the_servers_own_refusal_reaches_the_client(engine: Engine) -> None:
    assert engine.tokenizer is not None
    request = EngineRequest(
        request_id="r",
        prompt=TokensPrompt(token_ids=engine.tokenizer.encode(GREETING)),
        constraint=Grammar("gbnf", "root ::= nowhere"),
    )
    with pytest.raises(InvalidRequest, match="grammar"):
        _ = [output async for output in engine.generate(request)]
    await engine.health()


@pytest.mark.anyio
async def test_without_a_tokenizer_the_sentence_says_what_to_set(llama_server: str) -> None:
    with pytest.raises(ConfigurationError, match="set `tokenizer`"):
        async with open_remote(
            RemoteConfig(urls=[llama_server]), EngineContext(name="tiny", path=None)
        ):
            pass
