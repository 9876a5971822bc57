"""Parameters of other servers that no API of this one has, and that would change the answer if ignored.

They are refused by name on all generating APIs; the message says what to send instead. Parameters of other servers that
change nothing are not listed: they are reported like all unknown ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gateway.errors import Unsupported

_REGEX = "Send the pattern as structured_outputs.regex."
_SCHEMA = "Send the schema as structured_outputs.json."
_GRAMMAR = "Send the grammar as structured_outputs.grammar."
_SPLIT = "Prefill and decoding are not split by requests on this server. Leave the parameter out."
_PROCESSORS = (
    "Logits processors are not taken from requests on this server. Leave the parameter out."
)
_IDS = "Token ids are returned with return_token_ids on this server."
_MEDIA = "Settings of the media processor are not taken from requests on this server. Leave the parameter out."
_HIDDEN = "The model's inner states are not shown on this server. Leave the parameter out."
_COUNTS = "Counts of tokens are in the usage on this server. Leave the parameter out."
_SEPARATE = (
    "Reasoning is always apart from the text on this server, and streamed. Leave the parameter out, or read the model's "
    "own text from /v1/completions."
)
_LENGTH = "The limit of output tokens has another name here: max_output_tokens in Responses, max_tokens elsewhere."

FOREIGN: Mapping[str, str] = {
    # vLLM's, in older or in batched requests.
    "guided_whitespace_pattern": "White space is not set apart from the schema on this server. Leave the parameter out.",
    # SGLang's.
    "regex": _REGEX,
    "ebnf": _GRAMMAR,
    "json_schema": _SCHEMA,
    "stop_regex": "Patterns do not end the output on this server. Send stop strings.",
    "no_stop_trim": "The stop string is kept with include_stop_str_in_output on this server.",
    "rid": "The id of a request is request_id on this server.",
    "extra_key": "The key of the prefix cache is cache_salt on this server.",
    "routed_dp_rank": "The replica is chosen with data_parallel_rank on this server.",
    "disagg_prefill_dp_rank": _SPLIT,
    "bootstrap_host": _SPLIT,
    "bootstrap_port": _SPLIT,
    "bootstrap_room": _SPLIT,
    "custom_logit_processor": _PROCESSORS,
    "custom_params": _PROCESSORS,
    "lora_path": "An adapter is chosen by its name as the model on this server.",
    "session_params": "Sessions of the engine are not taken from requests on this server. Leave the parameter out.",
    "separate_reasoning": _SEPARATE,
    "stream_reasoning": _SEPARATE,
    "input_ids": "Prompts of token ids are taken by /v1/completions only.",
    "images_config": _MEDIA,
    "max_dynamic_patch": _MEDIA,
    "min_dynamic_patch": _MEDIA,
    "use_audio_in_video": _MEDIA,
    "return_hidden_states": _HIDDEN,
    "return_routed_experts": _HIDDEN,
    "return_prompt_token_ids": _IDS,
    "return_input_ids_in_sglext": _IDS,
    "return_output_ids_in_sglext": _IDS,
    "return_meta_info": "The engine's own information on a request is not shown on this server. Leave the parameter out.",
    "return_cached_tokens_details": _COUNTS,
    "return_spec_tokens_details": _COUNTS,
    # llama.cpp's.
    "grammar": _GRAMMAR,
    "n_predict": _LENGTH,
}
"""The refused parameters, each with its error message."""

_HARMLESS: Mapping[str, tuple[Any, ...]] = {
    "separate_reasoning": (True,),
    "stream_reasoning": (True,),
    "n_predict": (-1,),
}
"""Values that change nothing. Without an entry here, these are the empty ones: null, false, 0, "", [] and {}."""

_NOTHING: tuple[Any, ...] = (None, False, "", [], {})

_SAME_AS: Mapping[str, tuple[str, ...]] = {
    "n_predict": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
}
"""Names under which some clients (SillyTavern) send the same value too. It is then accepted."""


def unknown_names(raw: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """The names in the body `raw` that are not in `known`, sorted. Raises `Unsupported` for those that are refused."""
    names = sorted(raw.keys() - known)
    for name in names:
        message = FOREIGN.get(name)
        if message is None:
            continue
        value = raw[name]
        if value is None or value in _HARMLESS.get(name, _NOTHING):
            continue
        if any(other in known and raw.get(other) == value for other in _SAME_AS.get(name, ())):
            continue
        raise Unsupported(message, param=name)
    return names
