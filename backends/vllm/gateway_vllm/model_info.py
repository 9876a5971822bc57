"""What vLLM knows of the model that it has loaded."""

from __future__ import annotations

from typing import Any

from gateway.hookspecs import EngineContext
from gateway.protocols import Capability, ModelInfo, Sampling
from gateway_vllm.config import Config

_EVERYWHERE: frozenset[Capability] = frozenset(
    {
        "tokens",
        "logprobs",
        "prompt_logprobs",
        "json_schema",
        "json_object",
        "regex",
        "lark",
        "gbnf",
    }
)


def capabilities(config: Config) -> frozenset[Capability]:
    """What the engine can do: whole trees only with xgrammar, adapters only where there are some."""
    found = set(_EVERYWHERE)
    if config.structured_outputs == "xgrammar":
        found |= {"structure", "triggered"}
    if config.lora_modules:
        found.add("adapters")
    return frozenset(found)


def model_info(llm: Any, config: Config, context: EngineContext) -> ModelInfo:
    """From the model's configuration and tokenizer, as vLLM has them after its start."""
    model = llm.model_config
    tokenizer = llm.get_tokenizer()
    return ModelInfo(
        name=context.name,
        engine="vllm",
        architecture=model.architecture,
        model_type=getattr(model.hf_config, "model_type", None),
        path=context.path,
        max_model_len=model.max_model_len,
        chat_template=_chat_template(tokenizer),
        bos_token=_text(getattr(tokenizer, "bos_token", None)),
        eos_token=_text(getattr(tokenizer, "eos_token", None)),
        eos_token_ids=ending_tokens(llm),
        sampling=_recommended(model),
        adapters=tuple(config.lora_modules),
    )


def _recommended(model: Any) -> Sampling | None:
    """What the model's generation_config.json recommends."""
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    told = model.get_diff_sampling_param()
    found = {name: told[name] for name in names if told.get(name) is not None}
    return Sampling(**found) if found else None


def ending_tokens(llm: Any) -> tuple[int, ...]:
    """The ids at which vLLM ends an output: the tokenizer's, then those of generation_config.json."""
    found: list[int] = []
    first = llm.renderer.get_eos_token_id()
    if first is not None:
        found.append(first)
    more = llm.input_processor.generation_config_fields.get("eos_token_id")
    if isinstance(more, int):
        more = [more]
    found += [token_id for token_id in more or () if token_id not in found]
    return tuple(found)


def _chat_template(tokenizer: Any) -> str | None:
    """The tokenizer's template; of several by name, the one called `default`."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _text(token: Any) -> str | None:
    return None if token is None else str(token)
