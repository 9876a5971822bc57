"""A gpt-oss with random weights on llama.cpp, behind a real gateway: it is chosen by itself, and what is forced comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from gateway_harmony.markers import MARKERS
from gateway_testing.server import RunningGateway, run_gateway

pytest.importorskip("gateway_llamacpp", reason="the engine is not installed")
gguf = pytest.importorskip("gguf", reason="gguf writes the model, and is not installed")
numpy = pytest.importorskip("numpy")

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, EXPERTS, INNER = 2, 64, 4, 2, 32, 4, 64
SPECIAL = (*MARKERS, "<|endoftext|>")
SCHEMA = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}},
    "required": ["on"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "switch", "parameters": SCHEMA}


def letters() -> list[str]:
    """The bytes, as byte-level BPE spells them."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    spelt = {byte: chr(byte) for byte in plain}
    spelt |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [spelt[byte] for byte in range(256)]


def make_model(path: Path) -> None:
    """Its vocabulary is the bytes and Harmony's special tokens."""
    random = numpy.random.default_rng(0)
    pair = "Ġt"  # llama.cpp wants at least one merge
    tokens = [*letters(), pair, *SPECIAL]
    kinds = [gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL] * len(SPECIAL)
    writer = gguf.GGUFWriter(path, "gpt-oss")
    writer.add_block_count(LAYERS)
    writer.add_context_length(2048)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_sliding_window(128)
    writer.add_expert_count(EXPERTS)
    writer.add_expert_used_count(2)
    writer.add_expert_feed_forward_length(INNER)
    writer.add_rope_freq_base(150000.0)
    writer.add_rope_dimension_count(HEAD)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-4o")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair)])
    writer.add_eos_token_id(tokens.index("<|return|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)

    def put(name: str, *shape: int, like: float | None = None) -> None:
        values = random.standard_normal(shape) * 0.2 if like is None else numpy.full(shape, like)
        writer.add_tensor(name, values.astype(numpy.float32))

    put("token_embd.weight", len(tokens), WIDTH)
    put("output.weight", len(tokens), WIDTH)
    put("output_norm.weight", WIDTH, like=1)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        put(block + "attn_norm.weight", WIDTH, like=1)
        put(block + "post_attention_norm.weight", WIDTH, like=1)
        put(block + "attn_sinks.weight", HEADS)
        for name, rows, columns in (
            ("attn_q", HEADS * HEAD, WIDTH),
            ("attn_k", KV_HEADS * HEAD, WIDTH),
            ("attn_v", KV_HEADS * HEAD, WIDTH),
            ("attn_output", WIDTH, HEADS * HEAD),
            ("ffn_gate_inp", EXPERTS, WIDTH),
        ):
            put(f"{block}{name}.weight", rows, columns)
            put(f"{block}{name}.bias", rows)
        for name, rows, columns in (
            ("ffn_gate_exps", INNER, WIDTH),
            ("ffn_up_exps", INNER, WIDTH),
            ("ffn_down_exps", WIDTH, INNER),
        ):
            put(f"{block}{name}.weight", EXPERTS, rows, columns)
            put(f"{block}{name}.bias", EXPERTS, rows)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("gpt_oss")
    make_model(folder / "tiny.gguf")
    model = {"engine": "llamacpp", "path": "tiny.gguf", "llamacpp": {"n_ctx": 2048}}
    with run_gateway({"models": {"oss": model}}, folder) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[Any]:
    with gateway.client() as opened:
        yield opened


def test_the_model_is_known_by_its_architecture(gateway: RunningGateway) -> None:
    info = gateway.services.models["oss"].engine.info
    assert info.architecture == "gpt-oss"
    assert info.chat_template is None


@pytest.mark.parametrize("seed", range(4))
def test_noise_is_read_as_something_and_streams_as_it_is(client: Any, seed: int) -> None:
    ask = {"model": "oss", "input": "Hi", "max_output_tokens": 80, "extra_body": {"seed": seed}}
    with client.responses.stream(**ask) as stream:
        events = list(stream)
    final = events[-1].response
    assert final.status in ("completed", "incomplete")
    assert not any(marker in final.output_text for marker in MARKERS)
    said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert said == final.output_text
    assert final.usage.output_tokens >= final.usage.output_tokens_details.reasoning_tokens


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "switch"}])
def test_a_forced_call_is_made(client: Any, choice: Any, seed: int) -> None:
    response = client.responses.create(
        model="oss", input="Hi", tools=[TOOL], tool_choice=choice, reasoning={"effort": "none"},
        max_output_tokens=400, extra_body={"seed": seed},
    )  # fmt: skip
    if response.status == "incomplete":
        return  # noise may think until there is no room left
    call = response.output[-1]
    assert (call.type, call.name, call.status) == ("function_call", "switch", "completed")
    assert isinstance(json.loads(call.arguments)["on"], bool)
    answer = client.responses.create(
        model="oss", previous_response_id=response.id, tools=[TOOL], max_output_tokens=20,
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "done"}],
    )  # fmt: skip
    assert answer.status in ("completed", "incomplete")


def test_chat_forces_a_call_too(client: Any) -> None:
    function = {"type": "function", "function": {"name": "switch", "parameters": SCHEMA}}
    completion = client.chat.completions.create(
        model="oss", messages=[{"role": "user", "content": "Hi"}], tools=[function], seed=1,
        tool_choice={"type": "function", "function": {"name": "switch"}}, reasoning_effort="none",
        max_completion_tokens=200,
    )  # fmt: skip
    (call,) = completion.choices[0].message.tool_calls
    assert isinstance(json.loads(call.function.arguments)["on"], bool)


def test_log_probabilities_are_those_of_the_final_message(client: Any) -> None:
    response = client.responses.create(
        model="oss", input="Hi", max_output_tokens=400, extra_body={"seed": 2},
        text={"format": {"type": "json_schema", "name": "switch", "schema": SCHEMA}},
        include=["message.output_text.logprobs"], top_logprobs=1, reasoning={"effort": "low"},
    )  # fmt: skip
    messages = [item for item in response.output if item.type == "message"]
    for message in messages:
        part = message.content[0]
        said = bytes(chain.from_iterable(entry.bytes for entry in part.logprobs))
        # What is not UTF-8 is shown as one character or several.
        assert said.decode("utf-8", "ignore") == part.text.replace("\N{REPLACEMENT CHARACTER}", "")
    if response.status == "completed":
        assert isinstance(json.loads(messages[-1].content[0].text)["on"], bool)
