"""Embeddings by vLLM on the CPU: the tiny model as one that embeds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.base.errors import ConfigurationError, EngineError, InvalidRequest, Unsupported
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import EmbeddingRequest, EngineRequest, TokensPrompt
from gateway_doctor.checks import embedding_checks as checks
from gateway_doctor.checks.engine_probe import NotClaimed, Probe
from gateway_vllm import VllmConfig
from gateway_vllm.config import engine_arguments

CONTEXT = EngineContext(name="tiny", path="/models/tiny")


def ask(inputs: Sequence[list[int]], **settings: Any) -> EmbeddingRequest:
    return EmbeddingRequest(request_id="test", inputs=inputs, **settings)


@pytest.mark.parametrize(
    "check",
    [
        checks.embedding_info_is_complete,
        checks.each_input_gets_its_vector,
        checks.a_text_has_one_vector,
        checks.requests_do_not_mix,
        checks.shorter_vectors_are_the_beginnings,
        checks.what_cannot_be_embedded_is_refused,
        checks.cancelling_aborts_embedding,
        checks.adapters_embed,
    ],
    ids=lambda check: check.__name__,
)
def test_it_keeps_the_promises_of_an_engine_that_embeds(embedder: Any, check: Any) -> None:
    try:
        embedder.run(check(Probe(embedder.engine)), timeout=120)
    except NotClaimed as error:
        pytest.fail(f"vLLM offers it: {error}")


def test_it_only_embeds(embedder: Any) -> None:
    engine = embedder.engine
    assert engine.capabilities == {"embeddings", "adapters"}
    assert (engine.embedding.dimensions, engine.embedding.shorter) == (160, True)
    assert engine.info.adapters == ("noise",)
    request = EngineRequest(request_id="1", prompt=TokensPrompt(token_ids=[1]))
    with pytest.raises(Unsupported, match="only embeds"):
        embedder.check(request)
    with pytest.raises(Unsupported, match="only embeds"):
        embedder.generate(request)


def test_an_adapter_has_vectors_of_its_own(embedder: Any) -> None:
    inputs = [embedder.engine.tokenizer.encode("What is the capital of France?")]
    [plain] = embedder.run(embedder.engine.embed(ask(inputs))).vectors
    [noise] = embedder.run(embedder.engine.embed(ask(inputs, adapter="noise"))).vectors
    assert checks.cosine(plain, noise) < 0.9
    assert math.hypot(*plain) == pytest.approx(1, abs=1e-3)


def test_the_longest_input_is_as_long_as_it_says(embedder: Any) -> None:
    most = embedder.engine.embedding.max_input_tokens
    assert embedder.run(embedder.engine.embed(ask([[5] * most]))).prompt_tokens == most


def test_more_inputs_than_run_at_once_are_all_embedded(embedder: Any) -> None:
    inputs = [[5 + number % 7, 9] for number in range(600)]
    result = embedder.run(embedder.engine.embed(ask(inputs)), timeout=120)
    assert len(result.vectors) == 600
    for one, other in zip(result.vectors, result.vectors[7:], strict=False):
        assert checks.cosine(one, other) > 0.99


def test_cancelling_leaves_nothing_in_vllm(embedder: Any) -> None:
    async def cancelled() -> int:
        task = asyncio.create_task(embedder.engine.embed(ask([[5] * 1000] * 40)))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        return len(embedder.engine._host.llm.output_processor.request_states)

    assert embedder.run(cancelled()) == 0


def test_a_priority_needs_a_schedule_by_priority(embedder: Any, start_engine: Any) -> None:
    for priority in (1, embedder.engine.last_priority):
        assert embedder.run(embedder.engine.embed(ask([[5]], priority=priority))).vectors
    config = VllmConfig(enforce_eager=True, dtype="bfloat16", task="embed", max_num_seqs=4)
    plain = start_engine(config)
    assert plain.engine.embedding.shorter is False
    assert plain.engine.last_priority is None
    with pytest.raises(InvalidRequest) as refused:
        plain.run(plain.engine.embed(ask([[5]], priority=1)))
    assert refused.value.param == "priority"


def test_an_adapter_is_loaded_when_it_is_first_asked_for(
    start_engine: Callable[..., Any], noise: Path, tmp_path: Path
) -> None:
    config = VllmConfig(
        dtype="bfloat16",
        enforce_eager=True,
        max_num_seqs=4,
        max_loras=1,
        lora_modules={"noise": str(noise), "late": str(tmp_path / "late")},
        lora_loading="first_use",
    )
    served = start_engine(config)
    plain = served.generate(served.ask(max_tokens=8))
    request = served.ask(max_tokens=8, adapter="late")
    with pytest.raises(EngineError, match="cannot load the adapter 'late'"):
        served.generate(request)
    (tmp_path / "late").symlink_to(noise)
    late = served.generate(request)
    noisy = served.generate(served.ask(max_tokens=8, adapter="noise"))
    words = ["".join(output.text for output in each) for each in (plain, late, noisy)]
    assert words[0] != words[1] == words[2]
    assert served.generate(served.ask(max_tokens=8)) == plain


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (VllmConfig(), {}),
        (VllmConfig(task="generate"), {"runner": "generate"}),
        (VllmConfig(task="embed"), {"runner": "pooling", "convert": "embed"}),
        (
            VllmConfig(task="embed", pooling="cls", matryoshka=True),
            {
                "runner": "pooling",
                "convert": "embed",
                "pooler_config": {"seq_pooling_type": "CLS"},
                "hf_overrides": {"is_matryoshka": True},
            },
        ),
        (VllmConfig(lora_modules={"a": "/a", "b": "/b"}, max_loras=1), {"max_loras": 1}),
    ],
)
def test_the_task_becomes_vllm_s_arguments(config: VllmConfig, expected: dict[str, Any]) -> None:
    arguments = engine_arguments(config, CONTEXT, ())
    names = ("runner", "convert", "pooler_config", "hf_overrides", "max_loras")
    assert {name: arguments[name] for name in names if name in arguments} == expected
    own = {"task", "pooling", "matryoshka", "lora_modules", "lora_loading"}
    assert not own & arguments.keys()


@pytest.mark.parametrize("name", ["runner", "convert", "pooler_config"])
def test_what_the_task_says_is_not_said_twice(name: str) -> None:
    with pytest.raises(ConfigurationError, match="instead"):
        engine_arguments(VllmConfig(args={name: "x"}), CONTEXT, {name})
    both = msgspec.structs.replace(VllmConfig(matryoshka=True), args={"hf_overrides": {}})
    with pytest.raises(ConfigurationError, match="is_matryoshka"):
        engine_arguments(both, CONTEXT, {"hf_overrides"})
