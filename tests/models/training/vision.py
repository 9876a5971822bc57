"""The vision tower and projector in front of the tiny model, in the form of LLaVA.

A picture of 64 x 64 pixels is cut into 16 patches. A SigLIP tower reads them, and a projector of two layers turns each
into one embedding that the language model reads in the place of a token. The language model starts as the one of
`tests/models/tiny-qwen3`.
"""

from pathlib import Path

import torch
from transformers import (
    LlavaConfig,
    LlavaForConditionalGeneration,
    Qwen3Config,
    Qwen3ForCausalLM,
    SiglipVisionConfig,
)

SIZE = 64
"""Pixels on each side of what the tower sees."""
PATCH = 16
TOKENS = (SIZE // PATCH) ** 2
"""Tokens of one picture in a prompt."""
LAYERS = 4


def make_model(language_model: Path) -> LlavaForConditionalGeneration:
    """The language model with a new tower and projector."""
    text = Qwen3Config.from_pretrained(language_model)
    config = LlavaConfig(
        vision_config=SiglipVisionConfig(
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=LAYERS,
            num_attention_heads=3,
            image_size=SIZE,
            patch_size=PATCH,
            hidden_act="gelu_pytorch_tanh",
            vision_use_head=False,
        ),
        text_config=text,
        image_token_index=text.vocab_size,
        image_seq_length=TOKENS,
        vision_feature_layer=-1,
        vision_feature_select_strategy="full",
        projector_hidden_act="gelu_pytorch_tanh",
        tie_word_embeddings=True,
    )
    model = LlavaForConditionalGeneration(config)
    trained = Qwen3ForCausalLM.from_pretrained(language_model, dtype=torch.float32)
    model.model.language_model.load_state_dict(trained.model.state_dict())
    model.tie_weights()
    return model.float()
