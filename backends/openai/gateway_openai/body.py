"""Builds request bodies from the rendered prompt and the sampling parameters."""

from __future__ import annotations

from typing import Any

from gateway.sdk import (
    BeamSearch,
    ChatPrompt,
    EngineRequest,
    InvalidRequest,
    ParamPath,
    Sampling,
    TextFormat,
    Unsupported,
)
from gateway.sdk.constraints import Const, Constraint, Grammar, JsonObject, JsonSchema, OneOf, Regex
from gateway_openai.config import OpenAIConfig
from gateway_openai.tools import format_fields, with_strict

_OF_BOTH = ("temperature", "top_p")
_BEYOND: dict[str, tuple[object, ...]] = {
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "seed": (),
    "stop": ((),),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "min_tokens": (0,),
    "stop_token_ids": ((),),
    "bad_words": ((),),
    "allowed_token_ids": ((),),
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
}
"""Parameters that not every upstream supports, each with the values that have no effect."""


def body_of(request: EngineRequest, config: OpenAIConfig, model: str) -> dict[str, Any]:
    """The JSON body of `request`. Raises `Unsupported` for parameters that the upstream lacks, and `InvalidRequest` for
    invalid ones. Both name the parameter."""
    prompt = request.prompt
    if not isinstance(prompt, ChatPrompt):
        raise Unsupported("This model accepts messages, not tokens.", param="prompt")
    if request.adapter is not None:
        raise Unsupported("The upstream of this model has no adapters.", param="model")
    chat = config.api == "chat"
    body: dict[str, Any] = {
        "model": model,
        "messages" if chat else "input": prompt.messages,
        "stream": True,
        # The turn's text format is more precise than the constraint derived from it.
        **_engines(request, config),
        **prompt.extra,
    }
    if prompt.tools:
        body["tools"] = prompt.tools
    if prompt.tool_choice is not None:
        body["tool_choice"] = prompt.tool_choice
    if not chat:
        body["store"] = False
        if config.takes.encrypted_reasoning:
            body["include"] = ["reasoning.encrypted_content"]
    elif config.stream_usage:
        body["stream_options"] = {"include_usage": True}
    if not chat and "tools" in body and config.strict_default is not False:
        body["tools"] = with_strict(body["tools"])
    body.update(_sampling(request.sampling, config))
    _forward(request, body, config)
    body.update(config.extra_body)
    return body


def _sampling(sampling: Sampling, config: OpenAIConfig) -> dict[str, Any]:
    chat = config.api == "chat"
    fields: dict[str, Any] = {}
    if sampling.max_tokens is not None:
        if sampling.max_tokens < 1:
            raise InvalidRequest("max_tokens must be at least 1.", param="max_output_tokens")
        fields[config.max_tokens_field if chat else "max_output_tokens"] = sampling.max_tokens
    for name in _OF_BOTH:
        if (value := getattr(sampling, name)) is not None:
            fields[name] = value
    for name, nothing in _BEYOND.items():
        value = getattr(sampling, name)
        if value is None or value in nothing:
            continue
        _require_extension(name, config)
        fields[name] = {str(k): v for k, v in value.items()} if name == "logit_bias" else value
    if sampling.prompt_logprobs is not None:
        raise Unsupported(
            "The upstream of this model gives no log probabilities of the prompt.",
            param="prompt_logprobs",
        )
    if (top := sampling.logprobs) is not None:
        if not config.takes.logprobs:
            raise Unsupported(
                "The upstream of this model gives no log probabilities. Leave the parameter out.",
                param="logprobs",
            )
        if chat:
            fields["logprobs"] = True
        else:
            fields["include"] = ["message.output_text.logprobs"]
            if config.takes.encrypted_reasoning:
                fields["include"].append("reasoning.encrypted_content")
        if top:
            fields["top_logprobs"] = top
    return fields


def _engines(request: EngineRequest, config: OpenAIConfig) -> dict[str, Any]:
    """Sampling parameters that only self-hosted engines support."""
    fields: dict[str, Any] = {}
    if request.cache_salt is not None:
        _require_extension("cache_salt", config)
    if request.prefix_salt is not None and "cache_salt" in config.extensions:
        fields["cache_salt"] = request.prefix_salt
    if request.priority:
        _require_extension("priority", config)
        fields["priority"] = request.priority
    if request.vllm_xargs:
        _require_extension("vllm_xargs", config)
        fields["vllm_xargs"] = request.vllm_xargs
    if request.thinking_budget is not None:
        of_vllm = config.extends("thinking_token_budget")
        name = "thinking_token_budget" if of_vllm else "thinking_budget_tokens"
        fields[name] = request.thinking_budget
    if request.beams is not None:
        fields.update(_beams(request.beams, config))
    constraint = request.constraint
    match constraint:
        case None:
            pass
        case JsonSchema(schema):
            wanted = TextFormat(kind="json_schema", schema=schema, strict=True)
            fields.update(format_fields(wanted, config))
        case JsonObject():
            fields.update(format_fields(TextFormat(kind="json_object"), config))
        case _:
            outputs = _structured_outputs(constraint)
            _require_extension("structured_outputs", config, ("text", "format"))
            fields["structured_outputs"] = outputs
    return fields


def _beams(search: BeamSearch, config: OpenAIConfig) -> dict[str, Any]:
    """The search by vLLM's names. Its server has as many beams as choices, of which the first is the best."""
    if search.early:
        raise Unsupported(
            "The upstream of this model does not end a beam search early. Leave it out.",
            param="early_stopping",
        )
    fields: dict[str, Any] = {"use_beam_search": True, "length_penalty": search.length_penalty}
    fields["n" if config.api == "chat" else "best_of"] = search.width
    return fields


def _structured_outputs(constraint: Constraint) -> dict[str, Any]:
    """`structured_outputs` as vLLM defines it, for constraints that are not text formats."""
    match constraint:
        case Regex(pattern):
            return {"regex": pattern}
        case Grammar(definition=definition):
            return {"grammar": definition}
        case OneOf(options) if all(isinstance(option, Const) for option in options):
            return {"choice": [option.text for option in options if isinstance(option, Const)]}
        case _:
            raise Unsupported(
                "The upstream of this model does not support this kind of structured output.",
                param=("text", "format"),
            )


def not_an_extension(name: str, param: ParamPath = ()) -> Unsupported:
    """A request with a parameter that the configuration does not say that the upstream has."""
    return Unsupported(
        f"The upstream of this model does not take {name}, as far as this gateway is configured. Leave it out, or have it "
        "added to `extensions` of the model, if the upstream takes it.",
        param=param or name,
    )


def _require_extension(name: str, config: OpenAIConfig, param: ParamPath = ()) -> None:
    if not config.extends(name):
        raise not_an_extension(name, param)


def _forward(request: EngineRequest, body: dict[str, Any], config: OpenAIConfig) -> None:
    """Copy the client's serving hints that `forward` allows."""
    chat = config.api == "chat"
    for name in config.forward:
        value = request.hints.get(name)
        if value is None:
            continue
        if name == "reasoning_summary":
            if not chat:
                body["reasoning"] = {**body.get("reasoning", {}), "summary": value}
        elif name == "verbosity" and not chat:
            body["text"] = {**body.get("text", {}), "verbosity": value}
        else:
            body[name] = request.scoped_to_owner(value) if name == "prompt_cache_key" else value
