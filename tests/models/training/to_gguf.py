"""Writes the trained model as one GGUF file: weights (f16), tokenizer and chat template.

usage: python to_gguf.py MODELDIR OUT.gguf
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType

# Qwen3's names in a layer: safetensors, GGUF.
LAYER = [
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    config = json.loads((arguments.model / "config.json").read_text())
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    writer = GGUFWriter(str(arguments.out), "qwen3")
    add_architecture(writer, config)
    add_tokenizer(writer, arguments.model, config["vocab_size"])
    add_weights(writer, arguments.model / "model.safetensors", config["num_hidden_layers"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_architecture(writer: GGUFWriter, config: dict[str, Any]) -> None:
    writer.add_name("tiny-qwen3")
    writer.add_description(
        "A toy that shows Litegate's machinery; trained from scratch on synthetic dialogues"
    )
    writer.add_size_label("2M")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float((config.get("rope_parameters") or config)["rope_theta"]))


def add_tokenizer(writer: GGUFWriter, model: Path, size: int) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    tokens = [f"[PAD{index}]" for index in range(size)]
    types = [TokenType.UNUSED] * size
    for text, index in tokenizer["model"]["vocab"].items():
        tokens[index], types[index] = text, TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        kind = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
        tokens[added["id"]], types[added["id"]] = added["content"], kind
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template((model / "chat_template.jinja").read_text())


def add_weights(writer: GGUFWriter, path: Path, layers: int) -> None:
    """Matrices as f16, norms as f32; the embedding serves as the output matrix too."""
    weights = read_bf16(path)

    def put(target: str, source: str) -> None:
        weight = weights[source + ".weight"]
        writer.add_tensor(
            target + ".weight",
            weight if weight.ndim == 1 else weight.astype(np.float16),
            raw_dtype=GGMLQuantizationType.F32 if weight.ndim == 1 else GGMLQuantizationType.F16,
        )

    put("token_embd", "model.embed_tokens")
    put("output_norm", "model.norm")
    for layer in range(layers):
        for source, target in LAYER:
            put(f"blk.{layer}.{target}", f"model.layers.{layer}.{source}")


def read_bf16(path: Path) -> dict[str, np.ndarray]:
    """A safetensors file of bf16 tensors, as float32."""
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] != "BF16":
            raise ValueError(f"{name} is {entry['dtype']}, not BF16")
        begin, end = entry["data_offsets"]
        halves = np.frombuffer(raw[start + begin : start + end], np.uint16)
        floats = (halves.astype(np.uint32) << 16).view(np.float32)
        tensors[name] = floats.reshape(entry["shape"])
    return tensors


if __name__ == "__main__":
    main()
