"""Translates vLLM's validation errors."""

from __future__ import annotations

import re

from gateway.sdk import InvalidRequest, ParamPath

# vLLM's parameter names that differ from the gateway's.
_NAMES = {
    "prompt": "input",
    "prompt_token_ids": "input",
    "prompt_embeds": "input",
    "extra_args": None,
}
# Some vLLM errors name the parameter in an attribute, others only in the message.
_IN_MESSAGE = re.compile(
    r"\W*(?:The )?(?P<name>[a-z_]+) (?:must|cannot|contains|entries|should|is not)\b"
)
_SPEAKS_OF = frozenset(
    {
        "max_tokens",
        "min_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "seed",
        "stop",
        "stop_token_ids",
        "bad_words",
        "logit_bias",
        "logprobs",
        "prompt_logprobs",
        "priority",
        "cache_salt",
    }
)


def refused(error: Exception, *, param: str | ParamPath = ()) -> InvalidRequest:
    """A 400 with the message of vLLM's validation error, and the parameter that it names or else `param`."""
    message = str(error.args[0]) if error.args else str(error)
    named = getattr(error, "parameter", None)
    if named is not None:
        named = _NAMES.get(named, named)
    elif (match := _IN_MESSAGE.match(message)) and match["name"] in _SPEAKS_OF:
        named = match["name"]
    return InvalidRequest(message, param=named or param)
