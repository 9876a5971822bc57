"""Writes the folder with which vLLM and transformers load the tiny model that sees, from its GGUF files.

usage: python to_llava.py MODELDIR MODEL.gguf MMPROJ.gguf OUTDIR

MODELDIR (`tests/models/tiny-qwen3`) gives the configuration, the tokenizer and the chat template. All weights are those
that llama.cpp loads.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import to_gguf
from gguf import GGUFReader

IMAGE = "<image>"
"""The token in the place of a picture. Its id follows the vocabulary; no text of a prompt has it."""
LAYER = {
    "ln1": "layer_norm1",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ln2": "layer_norm2",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
"""A layer's names: GGUF, safetensors."""
TEXT_LAYER = {target: source for source, target in to_gguf.LAYER}
TENSORS = {
    "token_embd": "model.language_model.embed_tokens",
    "output_norm": "model.language_model.norm",
    "v.patch_embd": "model.vision_tower.vision_model.embeddings.patch_embedding",
    "v.position_embd": "model.vision_tower.vision_model.embeddings.position_embedding",
    "mm.0": "model.multi_modal_projector.linear_1",
    "mm.2": "model.multi_modal_projector.linear_2",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("gguf", type=Path)
    parser.add_argument("mmproj", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    write(arguments.model, arguments.gguf, arguments.mmproj, arguments.out)


def write(model: Path, gguf: Path, mmproj: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    file = GGUFReader(mmproj)
    text = json.loads((model / "config.json").read_text())
    config = llava_config(file, text)
    tensors = {
        checkpoint_name(tensor.name): bf16(tensor.data.astype(np.float32))
        for tensor in (*GGUFReader(gguf).tensors, *file.tensors)
    }
    write_tensors(tensors, out / "model.safetensors")
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    processor = processor_config(file, config)
    (out / "processor_config.json").write_text(json.dumps(processor, indent=2) + "\n")
    write_tokenizer(model, out, config["image_token_index"])
    shutil.copy(model / "generation_config.json", out)
    template = (model / "chat_template.jinja").read_text()
    (out / "chat_template.jinja").write_text(with_images(template))


def llava_config(file: GGUFReader, text: dict[str, Any]) -> dict[str, Any]:
    def said(key: str) -> Any:
        return file.fields[f"clip.vision.{key}"].contents()

    return {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "dtype": "bfloat16",
        "image_token_index": text["vocab_size"],
        "image_seq_length": (said("image_size") // said("patch_size")) ** 2,
        "projector_hidden_act": "gelu_pytorch_tanh",
        "multimodal_projector_bias": True,
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "tie_word_embeddings": True,
        "text_config": text,
        "vision_config": {
            "model_type": "siglip_vision_model",
            "hidden_size": said("embedding_length"),
            "intermediate_size": said("feed_forward_length"),
            "num_hidden_layers": said("block_count"),
            "num_attention_heads": said("attention.head_count"),
            "layer_norm_eps": said("attention.layer_norm_epsilon"),
            "image_size": said("image_size"),
            "patch_size": said("patch_size"),
            "hidden_act": "gelu_pytorch_tanh",
            "vision_use_head": False,
        },
    }


def processor_config(file: GGUFReader, config: dict[str, Any]) -> dict[str, Any]:
    """What llama.cpp does to a picture for this form of model: pad it to a square in the mean colour, resize it."""
    size = config["vision_config"]["image_size"]
    square = {"height": size, "width": size}
    return {
        "processor_class": "LlavaProcessor",
        "image_token": IMAGE,
        "patch_size": config["vision_config"]["patch_size"],
        "num_additional_image_tokens": 0,
        "vision_feature_select_strategy": "full",
        "image_processor": {
            "image_processor_type": "LlavaImageProcessor",
            "do_pad": True,
            "do_resize": True,
            "size": square,
            "resample": 3,
            "do_center_crop": False,
            "crop_size": square,
            "do_convert_rgb": True,
            "do_rescale": True,
            "do_normalize": True,
            "image_mean": [float(x) for x in file.fields["clip.vision.image_mean"].contents()],
            "image_std": [float(x) for x in file.fields["clip.vision.image_std"].contents()],
        },
    }


def checkpoint_name(tensor: str) -> str:
    """The name of a tensor of the GGUF files in a checkpoint of transformers."""
    place, kind = tensor.rsplit(".", 1)
    if place in TENSORS:
        return f"{TENSORS[place]}.{kind}"
    if place.startswith("blk."):
        _, layer, part = place.split(".")
        return f"model.language_model.layers.{layer}.{TEXT_LAYER[part]}.{kind}"
    _, _, layer, part = place.split(".")
    return f"model.vision_tower.vision_model.encoder.layers.{layer}.{LAYER[part]}.{kind}"


def write_tokenizer(model: Path, out: Path, image: int) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    like = next(added for added in tokenizer["added_tokens"] if added["special"])
    tokenizer["added_tokens"].append(like | {"id": image, "content": IMAGE})
    (out / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")
    shutil.copy(model / "tokenizer_config.json", out)


def with_images(template: str) -> str:
    """The chat template, with the token in the place of each picture."""
    given = "{{- part.text or '' -}}"
    if given not in template:
        raise ValueError("the chat template has changed: it has no place for pictures")
    return template.replace(
        given, "{{- '" + IMAGE + "' if part.type == 'image' else part.text or '' -}}"
    )


def bf16(weight: np.ndarray) -> tuple[tuple[int, ...], bytes]:
    """Shape and bytes, rounded to nearest, ties to even."""
    bits = np.ascontiguousarray(weight).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return weight.shape, rounded.astype(np.uint16).tobytes()


def write_tensors(tensors: dict[str, tuple[tuple[int, ...], bytes]], path: Path) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as out:
        out.write(len(head).to_bytes(8, "little") + head)
        out.writelines(data for _, data in tensors.values())


if __name__ == "__main__":
    main()
