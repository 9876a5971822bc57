"""Writes and reads the trained tower and projector as the GGUF file that llama.cpp calls an mmproj.

`train_vision.py` calls `write`. Matrices are f16, norms and biases f32.
"""

from pathlib import Path

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType
from transformers import LlavaConfig

MEAN = [0.48145466, 0.4578275, 0.40821073]
"""CLIP's, as LLaVA's: llama.cpp pads a picture to a square in this colour, and LLaVA's image processor does too."""
STD = [0.26862954, 0.26130258, 0.27577711]
LAYER = [
    ("layer_norm1", "ln1"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.out_proj", "attn_out"),
    ("layer_norm2", "ln2"),
    ("mlp.fc1", "ffn_up"),
    ("mlp.fc2", "ffn_down"),
]
"""A layer's names: safetensors, GGUF."""


def names(layers: int) -> dict[str, str]:
    """Maps each tensor of the file to its name in the checkpoint of transformers."""
    tower = "model.vision_tower."
    found = {
        "v.patch_embd.weight": tower + "embeddings.patch_embedding.weight",
        "v.patch_embd.bias": tower + "embeddings.patch_embedding.bias",
        "v.position_embd.weight": tower + "embeddings.position_embedding.weight",
    }
    for layer in range(layers):
        for source, target in LAYER:
            for kind in ("weight", "bias"):
                found[f"v.blk.{layer}.{target}.{kind}"] = (
                    f"{tower}encoder.layers.{layer}.{source}.{kind}"
                )
    for index, source in ((0, "linear_1"), (2, "linear_2")):
        for kind in ("weight", "bias"):
            found[f"mm.{index}.{kind}"] = f"model.multi_modal_projector.{source}.{kind}"
    return found


def write(config: LlavaConfig, weights: dict[str, torch.Tensor], out: Path) -> None:
    vision = config.vision_config
    writer = GGUFWriter(str(out), "clip")
    writer.add_name("tiny-qwen3")
    writer.add_description("The tower and projector with which tiny-qwen3 reads pictures")
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_bool("clip.use_gelu", True)  # the approximation by tanh
    writer.add_uint32("clip.vision.image_size", vision.image_size)
    writer.add_uint32("clip.vision.patch_size", vision.patch_size)
    writer.add_uint32("clip.vision.embedding_length", vision.hidden_size)
    writer.add_uint32("clip.vision.feed_forward_length", vision.intermediate_size)
    writer.add_uint32("clip.vision.block_count", vision.num_hidden_layers)
    # Without it, llama.cpp leaves out the last layer, as LLaVA 1.5 does.
    writer.add_array("clip.vision.feature_layer", [vision.num_hidden_layers])
    writer.add_uint32("clip.vision.attention.head_count", vision.num_attention_heads)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", vision.layer_norm_eps)
    writer.add_uint32("clip.vision.projection_dim", config.text_config.hidden_size)
    writer.add_array("clip.vision.image_mean", MEAN)
    writer.add_array("clip.vision.image_std", STD)
    for target, source in names(vision.num_hidden_layers).items():
        weight = weights[source].float().numpy()
        half = weight.ndim > 1 and target != "v.position_embd.weight"
        writer.add_tensor(
            target,
            weight.astype(np.float16) if half else weight,
            raw_dtype=GGMLQuantizationType.F16 if half else GGMLQuantizationType.F32,
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read(config: LlavaConfig, path: Path) -> dict[str, torch.Tensor]:
    """The weights of such a file, by their names in the checkpoint."""
    sources = names(config.vision_config.num_hidden_layers)
    return {
        sources[tensor.name]: torch.from_numpy(tensor.data.astype(np.float32))
        for tensor in GGUFReader(path).tensors
    }


def parameters(config: LlavaConfig, weights: dict[str, torch.Tensor]) -> int:
    """How many numbers the file has."""
    sources = names(config.vision_config.num_hidden_layers).values()
    return sum(weights[source].numel() for source in sources)
