"""Parameters that the gateway knows but does not honour, and that would change the answer if ignored.

They are rejected by name. Values that change nothing are accepted. docs/parameters.md has the table for all APIs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from gateway.errors import Unsupported
from gateway.protocols import Capability
from gateway.wire.parameters import SharedParameters
from gateway.wire.sampling import SamplingParameters

Api: TypeAlias = Literal["responses", "chat", "completions", "further"]

_OF_BEAMS = "This is a parameter of beam search. Send use_beam_search: true, or leave it out."
_EVERYWHERE = {
    "length_penalty": _OF_BEAMS,
    "early_stopping": _OF_BEAMS,
    "best_of": "best_of is the number of beams on this server. Send use_beam_search: true, or leave it out.",
    "logits_processors": "Logits processors are not taken from requests on this server.",
    "ec_transfer_params": "Transfers of the engine's cache are not taken from requests on this server.",
    "media_io_kwargs": "Settings for loading media are not taken from requests on this server.",
    "return_token_offsets": "Offsets of tokens are not shown on this server. Leave the parameter out.",
    "return_prompt_text": "The prompt's text is not shown on this server. Leave the parameter out.",
    "logprob_token_ids": "Log probabilities of chosen tokens are not available on this server. Use top_logprobs.",
    "truncation_side": "The side is not chosen on this server: truncate_prompt_tokens keeps the prompt's end.",
    "repetition_detection": "Detection of repetition is not available on this server. Use repetition_penalty.",
    "routed_experts_prompt_start": "Routed experts are not shown on this server. Leave the parameter out.",
    "watermarking": "Watermarks are not available on this server. Leave the parameter out.",
    "enable_response_messages": "The engine's own messages are not shown on this server. Read the items of the output.",
    "previous_input_messages": "The engine's own messages are not taken on this server. Send items as input.",
}
_RENDERED = {
    "add_special_tokens": "The model's chat template writes special tokens here. Leave the parameter out.",
    "skip_special_tokens": (
        "skip_special_tokens is only available in Completions: elsewhere the model's output format decides it."
    ),
    "truncate_prompt_tokens": "A conversation is not cut to tokens on this server. Send fewer messages.",
}
"""Where the prompt is rendered from a conversation."""
_ITEMS = {
    "echo": "The prompt is not repeated in answers of this API. Leave the parameter out.",
    "prompt_logprobs": (
        "Answers of this API have no log probabilities of the prompt. Use /v1/chat/completions."
    ),
    "return_token_ids": "Answers of this API have no token ids. Use /v1/chat/completions.",
    "include_reasoning": "Reasoning is a part of this API's answers. Leave the parameter out.",
}
"""Where the answer consists of items or blocks."""
_RAW = dict.fromkeys(
    (
        "documents",
        "chat_template",
        "chat_template_kwargs",
        "add_generation_prompt",
        "continue_final_message",
        "include_reasoning",
        "thinking_token_budget",
        "thinking_budget_tokens",
        "mm_processor_kwargs",
    ),
    "Completions takes prompts as they are, without a chat template. Use /v1/chat/completions.",
)
REFUSED: Mapping[Api, Mapping[str, str]] = {
    "responses": {
        **_EVERYWHERE,
        **_RENDERED,
        **_ITEMS,
        "truncate_prompt_tokens": "A conversation is not cut to tokens on this server. Use truncation: 'auto'.",
        "moderation": "Moderation is not available on this server. Leave the parameter out.",
        "image": "Images of the input are not compressed on this server. Send image.context_compression 'auto' or 'disabled'.",
    },
    "chat": {
        **_EVERYWHERE,
        **_RENDERED,
        "audio": "Audio output is not available on this server. Leave the parameter out.",
        "moderation": "Moderation is not available on this server. Leave the parameter out.",
    },
    "completions": {
        **_EVERYWHERE,
        **_RAW,
        "suffix": "Text cannot be inserted before a suffix on this server. Leave suffix out.",
    },
    "further": {
        **_EVERYWHERE,
        **_RENDERED,
        **_ITEMS,
        "return_tokens_as_token_ids": "Answers of this API have no log probabilities. Use /v1/chat/completions.",
        "timings_per_token": "Answers of this API do not say how long they took. Use /v1/chat/completions.",
        "add_generation_prompt": (
            "add_generation_prompt is not a parameter of this API: its messages say what is continued."
        ),
        "continue_final_message": (
            "continue_final_message is not a parameter of this API: its messages say what is continued."
        ),
    },
}
"""For each API, the parameters that it rejects, each with its error message. `further` are those of plugins."""

_FORMATS: Mapping[Api, tuple[str, ...]] = {
    "chat": ("response_format",),
    "completions": ("response_format",),
}
"""For each API, the parameter that sets the format of the text and may be a structural tag."""

_BEAMS = frozenset({"length_penalty", "early_stopping", "best_of"})
"""Not rejected with beam search."""

_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "skip_special_tokens": (True,),
    "include_reasoning": (True,),
    "add_generation_prompt": (True,),
    "length_penalty": (1.0,),
    "prompt_logprobs": (),
    "thinking_token_budget": (),
    "thinking_budget_tokens": (-1,),
    "truncation_side": ("left",),
    "image": (
        {},
        {"context_compression": "auto"},
        {"context_compression": "disabled"},
        {"context_compression": None},
    ),
}
"""Values that change nothing. Without an entry here, these are the empty ones: false, 0, "", [] and {}."""


_NOTHING: tuple[Any, ...] = (False, "", [], {})
_CHECKS = {
    api: [(name, _HARMLESS.get(name, _NOTHING), message) for name, message in refused.items()]
    for api, refused in REFUSED.items()
}
_EXTENDED = (
    *sorted({*SharedParameters.__struct_fields__} - {*SamplingParameters.__struct_fields__}),
)
"""The parameters of self-hosted engines, but for those of sampling."""
_VALUES: Mapping[str, Callable[[SharedParameters], tuple[object, ...]]] = {
    api: attrgetter(*_EXTENDED, *sorted(refused.keys() - {*_EXTENDED}), *_FORMATS.get(api, ()))
    for api, refused in REFUSED.items()
}


def refuse(request: SharedParameters, api: Api) -> bool:
    """Raise `Unsupported` for parameters that this API does not honour.

    Returns whether the request is extended: whether it has any parameter of self-hosted engines besides those of sampling, or
    a format. What is about these parameters alone is skipped for other requests, which most are.
    """
    values = _VALUES[api](request)
    if values.count(None) == len(values):
        return False
    for name, harmless, message in _CHECKS[api]:
        value = getattr(request, name)
        if value is None or value in harmless:
            continue
        if name == "best_of" and value <= (getattr(request, "n", None) or 1):
            continue
        if request.use_beam_search and name in _BEAMS:
            continue
        raise Unsupported(message, param=name)
    return True


def refuse_scores(request: SharedParameters, capabilities: frozenset[Capability]) -> None:
    """Raise `Unsupported` if log probabilities are requested and the engine has none."""
    if getattr(request, "logprobs", None) not in (None, False) and "logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities. Leave the parameter out.",
            param="logprobs",
        )
    if request.prompt_logprobs is not None and "prompt_logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities of the prompt.",
            param="prompt_logprobs",
        )
