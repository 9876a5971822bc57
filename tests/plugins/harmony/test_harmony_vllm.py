"""A gpt-oss with random weights on vLLM: prompts, constraints and outputs meet a real engine."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import Unsupported
from gateway.plugins.hookspecs import EngineContext, ModelContext
from gateway.plugins.protocols import (
    Engine,
    EngineOutput,
    EngineRequest,
    NamedTool,
    ParserContext,
    Sampling,
    TextFormat,
    ToolDefinition,
    Turn,
)
from gateway.wire.item_decoding import decode_items
from gateway_harmony import HarmonyFormat, HarmonyRenderer, RendererConfig, gateway_model_profile
from gateway_harmony.markers import MARKERS
from gateway_testing.reading import Block, blocks

SCHEMA = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}},
    "required": ["on"],
    "additionalProperties": False,
}
F = ToolDefinition(name="f", parameters=SCHEMA)
G = ToolDefinition(name="g", parameters={**SCHEMA, "title": "G"})
JSON = TextFormat(kind="json_schema", name="x", schema=SCHEMA)
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


def make_model(folder: Path) -> None:
    """A gpt-oss of 2 layers whose vocabulary is the bytes and Harmony's special tokens."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [*MARKERS, "<|endoftext|>"]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    ids = {text: tokenizer.token_to_id(text) for text in special}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|return|>", pad_token="<|endoftext|>"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    model = GptOssForCausalLM(
        GptOssConfig(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=64,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=128,
            max_position_embeddings=4096,
            rope_parameters={
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 1.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": False,
                "original_max_position_embeddings": 4096,
            },
            layer_types=["sliding_attention", "full_attention"],
            eos_token_id=ids["<|return|>"],
            pad_token_id=ids["<|endoftext|>"],
            bos_token_id=None,
            tie_word_embeddings=False,
            dtype="bfloat16",
        )
    ).to(torch.bfloat16)
    model.generation_config.eos_token_id = [
        ids[t] for t in ("<|return|>", "<|endoftext|>", "<|call|>")
    ]
    model.save_pretrained(folder)


GenerationRequest = Callable[..., tuple[list[Block], list[EngineOutput]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GenerationRequest]:
    """Renders a turn, has vLLM answer it, and reads the answer as it came and at once."""
    pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)
    from gateway_vllm import VllmConfig, open_engine

    os.environ.update(ENVIRONMENT)
    folder = tmp_path_factory.mktemp("gpt_oss")
    config = VllmConfig(
        dtype="bfloat16", max_num_seqs=4, enforce_eager=True, seed=0, max_json_whitespace=2
    )
    context = EngineContext(name="tiny", path=str(folder), max_model_len=2048)
    with asyncio.Runner() as runner:
        with warnings.catch_warnings():
            # While they are imported and started, vLLM, torch and transformers warn about each other.
            warnings.simplefilter("ignore")
            make_model(folder)
            manager = open_engine(config, context)
            engine = runner.run(manager.__aenter__())
        yield lambda turn, **settings: runner.run(_ask(engine, turn, settings))
        with warnings.catch_warnings():
            # vLLM leaves a context of ZeroMQ's to the garbage collector.
            warnings.filterwarnings("ignore", "Unclosed context", ResourceWarning)
            runner.run(manager.__aexit__(None, None, None))
            gc.collect()


async def _ask(
    engine: Engine, turn: Turn, settings: dict[str, Any]
) -> tuple[list[Block], list[EngineOutput]]:
    profile = gateway_model_profile(engine.info)
    assert profile is not None
    model = ModelContext(info=engine.info, tokenizer=engine.tokenizer)
    rendered = HarmonyRenderer(RendererConfig(), model).render(turn)
    speech = HarmonyFormat(engine.tokenizer)
    request = EngineRequest(
        request_id="test",
        prompt=rendered.prompt,
        sampling=Sampling(
            **{"max_tokens": 400, "temperature": 1.0, "seed": 1, **settings},
            stop_token_ids=rendered.stop_token_ids,
            skip_special_tokens=False,
        ),
        constraint=speech.constraint(turn, tail=rendered.tail),
        tail=rendered.tail,
    )
    await engine.check(request)
    async with aclosing(engine.generate(request)) as stream:
        outputs = [output async for output in stream]
    finish = outputs[-1].finish_reason
    assert finish is not None
    whole = EngineOutput(
        text="".join(output.text for output in outputs),
        token_ids=[token for output in outputs for token in output.token_ids],
    )
    read = []
    for parts in (outputs, [whole]):
        parser = speech.parser(
            ParserContext(
                tail=rendered.tail,
                tools={tool.name: tool for tool in turn.tools},
                tokenizer=engine.tokenizer,
            )
        )
        deltas = [*parser.feed(EngineOutput(text=rendered.prefill))] if rendered.prefill else []
        for part in parts:
            deltas += parser.feed(part)
        deltas += parser.finish(finish)
        read.append((blocks(deltas), parser.recoveries))
    assert read[0] == read[1]
    return read[0][0], outputs


def turn(*tools: ToolDefinition, **more: Any) -> Turn:
    return Turn(items=decode_items("Hi"), tools=tools, **more)


def test_noise_is_read_as_something(ask: GenerationRequest) -> None:
    found, outputs = ask(turn(F), max_tokens=200)
    assert "".join(block.text for block in found)
    assert outputs[-1].finish_reason in ("length", "stop")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "asked",
    [
        turn(F, G, tool_choice="required"),
        turn(F, G, tool_choice=NamedTool("g")),
        turn(text_format=JSON),
    ],
    ids=["required", "named", "json"],
)
def test_what_is_forced_comes_unless_thinking_takes_all_tokens(
    ask: GenerationRequest, asked: Turn, seed: int
) -> None:
    found, outputs = ask(asked, seed=seed)
    last = found[-1]
    if outputs[-1].finish_reason == "length":
        assert last.kind == "reasoning"
        return
    assert last.kind == ("text" if asked.text_format is JSON else "call")
    assert {"true", "false"} & {last.text.strip("{} \n\r\t").split(":")[-1].strip()}
    assert last.whole


def test_a_call_that_the_prompt_begins_comes_at_once(ask: GenerationRequest) -> None:
    asked = turn(F, G, tool_choice=NamedTool("g"), reasoning_effort="none")
    found, outputs = ask(asked, max_tokens=60)
    assert outputs[-1].finish_reason == "stop"
    assert [(block.kind, block.name, block.whole) for block in found] == [("call", "g", True)]


def test_a_strict_tool_does_not_disturb_other_text(ask: GenerationRequest) -> None:
    strict = ToolDefinition(name="s", parameters=SCHEMA, strict=True)
    try:
        found, _ = ask(turn(strict), max_tokens=60)
    except Unsupported as refused:
        pytest.skip(f"this engine cannot enforce it: {refused}")
    assert found
