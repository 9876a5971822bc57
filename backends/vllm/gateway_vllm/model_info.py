"""Model information from a loaded vLLM."""

from __future__ import annotations

from typing import Any

from gateway.sdk import Capability, EngineContext, ModelInfo
from gateway.sdk.engines import (
    chat_templates_of,
    ending_tokens,
    recommended_sampling,
    special_token,
)
from gateway_vllm.config import VllmConfig

_EVERYWHERE: frozenset[Capability] = frozenset(
    {
        "tokens",
        "logprobs",
        "prompt_logprobs",
        "beam_search",
        "json_schema",
        "json_object",
        "regex",
        "lark",
        "gbnf",
        "allowed_token_ids",
        "vllm_xargs",
        "data_parallel_rank",
    }
)


def capabilities(config: VllmConfig, llm: Any) -> frozenset[Capability]:
    """The engine's capabilities: constraint trees only with xgrammar, adapters only if there are any, transfers of the
    cache only with a connector."""
    found = set(_EVERYWHERE)
    if config.structured_outputs == "xgrammar":
        found |= {"structure", "triggered"}
    if config.lora_modules:
        found.add("adapters")
    if llm.vllm_config.kv_transfer_config is not None:
        found.add("kv_transfer_params")
    return frozenset(found)


def model_info(llm: Any, config: VllmConfig, context: EngineContext) -> ModelInfo:
    """Model information from the configuration and tokenizer that vLLM has loaded."""
    model = llm.model_config
    tokenizer = llm.get_tokenizer()
    templates = chat_templates_of(tokenizer)
    return ModelInfo(
        name=context.name,
        engine="vllm",
        architecture=model.architecture,
        model_type=getattr(model.hf_config, "model_type", None),
        path=context.path,
        max_model_len=model.max_model_len,
        chat_template=templates.default,
        tool_chat_template=templates.tool_use,
        bos_token=special_token(tokenizer, "bos_token"),
        eos_token=special_token(tokenizer, "eos_token"),
        eos_token_ids=ending_tokens_of(llm),
        sampling=recommended_sampling(model.get_diff_sampling_param()),
        adapters=tuple(config.lora_modules),
    )


def ending_tokens_of(llm: Any) -> tuple[int, ...]:
    """Token ids at which vLLM ends an output."""
    fields = llm.input_processor.generation_config_fields
    return ending_tokens(llm.renderer.get_eos_token_id(), fields.get("eos_token_id"))
