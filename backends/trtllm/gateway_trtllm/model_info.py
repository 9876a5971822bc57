"""What TensorRT-LLM knows of the model that it has loaded."""

from __future__ import annotations

from typing import Any

from gateway.errors import ConfigurationError
from gateway.hookspecs import EngineContext
from gateway.protocols import ModelInfo, Sampling
from gateway_trtllm.config import Config

_RECOMMENDED = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def model_info(llm: Any, config: Config, context: EngineContext) -> ModelInfo:
    """From the model's configuration, generation configuration and tokenizer."""
    model = llm._hf_model_config
    tokenizer = hf_tokenizer(llm, context)
    architectures = getattr(model, "architectures", None) or [None]
    return ModelInfo(
        name=context.name,
        engine="trtllm",
        architecture=architectures[0],
        model_type=getattr(model, "model_type", None),
        path=context.path,
        max_model_len=max_length(llm, config, context),
        chat_template=_chat_template(tokenizer),
        bos_token=_text(getattr(tokenizer, "bos_token", None)),
        eos_token=_text(getattr(tokenizer, "eos_token", None)),
        eos_token_ids=ending_tokens(llm, tokenizer),
        sampling=_recommended(llm._generation_config),
        adapters=tuple(config.lora_modules),
    )


def hf_tokenizer(llm: Any, context: EngineContext) -> Any:
    """The Hugging Face tokenizer inside TensorRT-LLM's own."""
    tokenizer = llm.tokenizer
    if tokenizer is None:
        raise ConfigurationError(f"The model '{context.name}' has no tokenizer.")
    return getattr(tokenizer, "tokenizer", tokenizer)


def max_length(llm: Any, config: Config, context: EngineContext) -> int:
    """Tokens of prompt and output: as configured, as TensorRT-LLM says, or as the model was trained for."""
    told = context.max_model_len or config.max_seq_len or getattr(llm.args, "max_seq_len", None)
    if told is None:
        told = getattr(_text_config(llm), "max_position_embeddings", None)
    if told is None:
        raise ConfigurationError(
            f"How long the context of the model '{context.name}' is cannot be seen; set max_seq_len."
        )
    return int(told)


def vocabulary_size(llm: Any, tokenizer_size: int) -> int:
    """How many logits the model has, which may be more than the tokenizer has tokens."""
    return int(getattr(_text_config(llm), "vocab_size", None) or tokenizer_size)


def ending_tokens(llm: Any, tokenizer: Any) -> tuple[int, ...]:
    """The ids that end an output: the tokenizer's, then those of generation_config.json."""
    found: list[int] = []
    first = getattr(tokenizer, "eos_token_id", None)
    if first is not None:
        found.append(int(first))
    more = getattr(llm._generation_config, "eos_token_id", None)
    if isinstance(more, int):
        more = [more]
    found += [token_id for token_id in more or () if token_id not in found]
    return tuple(found)


def _text_config(llm: Any) -> Any:
    """The language model's part of the configuration."""
    model = llm._hf_model_config
    return getattr(model, "text_config", None) or model


def _recommended(generation_config: Any) -> Sampling | None:
    """What generation_config.json recommends, where it differs from saying nothing."""
    if generation_config is None:
        return None
    told = generation_config.to_diff_dict()
    found = {name: told[name] for name in _RECOMMENDED if told.get(name) is not None}
    return Sampling(**found) if found else None


def _chat_template(tokenizer: Any) -> str | None:
    """The tokenizer's template; of several by name, the one called `default`."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _text(token: Any) -> str | None:
    return None if token is None else str(token)
