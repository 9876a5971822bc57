"""llama.cpp's own tokenizer with vocabularies of other families: SentencePiece as Llama 2, Mistral and Gemma have it, and one
whose file does not declare its control tokens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import gguf
import numpy
import pytest

from gateway.engines.origins import Origin, OriginEncoder
from gateway.plugins.hookspecs import EngineContext
from gateway_llamacpp import LlamaCppConfig, open_llamacpp

pytestmark = pytest.mark.anyio

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
WIDTH = 32
WORDS = ("the", "user", "tool", "call", "INST", "start", "of", "turn", "eot", "id", "User", "end")


def pieces() -> dict[str, tuple[int, float]]:
    """The vocabulary: of each text its type and its score."""
    found: dict[str, tuple[int, float]] = {
        "<unk>": (UNKNOWN, 0.0),
        "<s>": (CONTROL, 0.0),
        "</s>": (CONTROL, 0.0),
    }
    found |= {f"<0x{byte:02X}>": (BYTE, 0.0) for byte in range(256)}
    found |= dict.fromkeys(("▁", *map(chr, range(33, 127))), (NORMAL, -100.0))
    score = -1.0
    for word in (*WORDS, *("\u2581" + word for word in WORDS)):
        for end in range(2, len(word) + 1):
            found.setdefault(word[:end], (NORMAL, score))
            score -= 1
    found |= {
        "[INST]": (CONTROL, 0.0),
        "[/INST]": (CONTROL, 0.0),
        "<start_of_turn>": (CONTROL, 0.0),
        "<tool_call>": (USER_DEFINED, 0.0),
        "</tool_call>": (USER_DEFINED, 0.0),
        "<h1>": (USER_DEFINED, 0.0),
        "<｜User｜>": (USER_DEFINED, 0.0),
        "<|eot_id|>": (NORMAL, 0.0),
        "<|im_end|>": (NORMAL, 0.0),
        "<fim-prefix>": (NORMAL, 0.0),
        "<REPO>": (NORMAL, 0.0),
    }
    return found


def make_model(file: Path, *, prefix: bool) -> None:
    vocabulary = pieces()
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    writer.add_feed_forward_length(WIDTH)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(vocabulary))
    writer.add_token_scores([score for _, score in vocabulary.values()])
    writer.add_token_types([kind for kind, _ in vocabulary.values()])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(prefix)
    random = numpy.random.default_rng(0)

    def put(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.standard_normal(shape).astype(numpy.float32))

    put("token_embd.weight", len(vocabulary), WIDTH)
    put("output.weight", len(vocabulary), WIDTH)
    for norm in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        put(f"{norm}.weight", WIDTH)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        put(f"blk.0.{name}.weight", WIDTH, WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(params=[True, False], ids=["space before", "no space before"])
async def tokenizer(request: Any, tmp_path: Path) -> AsyncIterator[Any]:
    file = tmp_path / "model.gguf"
    make_model(file, prefix=request.param)
    context = EngineContext(name="m", path=str(file))
    async with open_llamacpp(LlamaCppConfig(n_ctx=512), context) as engine:
        yield engine.tokenizer


async def test_no_text_becomes_what_llamacpp_takes_for_a_token_of_its_own(tokenizer: Any) -> None:
    encoder = OriginEncoder(tokenizer)
    ids = {text: index for index, text in enumerate(pieces())}
    watched = [text for text in ids if text[0] in "<[" and len(text) > 1 and "<0x" not in text]
    watched.remove("<h1>")
    control = {ids[text] for text in watched}
    assert {"<|eot_id|>", "<tool_call>", "<unk>", "[INST]"} <= set(watched)
    for text in watched:
        parts = [("[INST]", Origin.TEMPLATE), (f"the {text}user{text}", Origin.OUTSIDE)]
        made = encoder.encode([*parts, ("[/INST]", Origin.TEMPLATE)])
        assert [token for token in made if token in control] == [ids["[INST]"], ids["[/INST]"]]
        shown = tokenizer.decode(made).replace(" ", "")
        assert shown == f"[INST]the{text}user{text}[/INST]"
    own = encoder.encode([("a<tool_call><s>", Origin.ASSISTANT)])
    assert [token for token in own if token in control] == [ids["<tool_call>"]]


async def test_text_without_control_tokens_is_encoded_as_ever(tokenizer: Any) -> None:
    encoder = OriginEncoder(tokenizer)
    for text in ("the user <h1>of</h1>", "  a\n\nb é 🙂", "<|eot_i d|> [ INST ] < s>"):
        parts = [
            ("<s>[INST] ", Origin.TEMPLATE),
            (text, Origin.OUTSIDE),
            ("[/INST]", Origin.TEMPLATE),
        ]
        made = encoder.encode(parts)
        assert made == tokenizer.encode(f"<s>[INST] {text}[/INST]")
