"""Model information from a loaded TensorRT-LLM."""

from __future__ import annotations

from typing import Any

from gateway.sdk import ConfigurationError, EngineContext, ModelInfo
from gateway.sdk.engines import (
    chat_templates_of,
    ending_tokens,
    recommended_sampling,
    special_token,
)
from gateway_trtllm.config import TrtllmConfig


def model_info(llm: Any, config: TrtllmConfig, context: EngineContext) -> ModelInfo:
    """Model information from the configuration, generation configuration and tokenizer."""
    model = llm._hf_model_config
    tokenizer = hf_tokenizer(llm, context)
    generation = llm._generation_config
    architectures = getattr(model, "architectures", None) or [None]
    templates = chat_templates_of(tokenizer)
    return ModelInfo(
        name=context.name,
        engine="trtllm",
        architecture=architectures[0],
        model_type=getattr(model, "model_type", None),
        path=context.path,
        max_model_len=max_length(llm, config, context),
        chat_template=templates.default,
        tool_chat_template=templates.tool_use,
        bos_token=special_token(tokenizer, "bos_token"),
        eos_token=special_token(tokenizer, "eos_token"),
        eos_token_ids=ending_tokens_of(llm, tokenizer),
        sampling=None if generation is None else recommended_sampling(generation.to_diff_dict()),
        adapters=tuple(config.lora_modules),
    )


def hf_tokenizer(llm: Any, context: EngineContext) -> Any:
    """The Hugging Face tokenizer wrapped by TensorRT-LLM's."""
    tokenizer = llm.tokenizer
    if tokenizer is None:
        raise ConfigurationError(f"The model '{context.name}' has no tokenizer.")
    return getattr(tokenizer, "tokenizer", tokenizer)


def max_length(llm: Any, config: TrtllmConfig, context: EngineContext) -> int:
    """Context length in tokens: as configured, as TensorRT-LLM reports it, or as in the model's configuration."""
    length = context.max_model_len or config.max_seq_len or getattr(llm.args, "max_seq_len", None)
    if length is None:
        length = getattr(_text_config(llm), "max_position_embeddings", None)
    if length is None:
        raise ConfigurationError(
            f"The context length of the model '{context.name}' is unknown; set max_seq_len."
        )
    return int(length)


def vocabulary_size(llm: Any, tokenizer_size: int) -> int:
    """Number of the model's logits, which may exceed the tokenizer's size."""
    return int(getattr(_text_config(llm), "vocab_size", None) or tokenizer_size)


def ending_tokens_of(llm: Any, tokenizer: Any) -> tuple[int, ...]:
    """Token ids that end an output."""
    first = getattr(tokenizer, "eos_token_id", None)
    return ending_tokens(first, getattr(llm._generation_config, "eos_token_id", None))


def _text_config(llm: Any) -> Any:
    """The language model's section of the configuration."""
    model = llm._hf_model_config
    return getattr(model, "text_config", None) or model
