"""vLLM's refusals in the gateway's words."""

from __future__ import annotations

import re

from gateway.errors import InvalidRequest

# vLLM's name of a parameter, where it is not the gateway's.
_NAMES = {
    "prompt": "input",
    "prompt_token_ids": "input",
    "prompt_embeds": "input",
    "extra_args": None,
}
# vLLM names the parameter as an attribute of some errors, and only in the sentence of others.
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


def refused(error: Exception, *, param: str | None = None) -> InvalidRequest:
    """The 400 that says what vLLM's validation error says, with the parameter that it names, or else `param`."""
    message = str(error.args[0]) if error.args else str(error)
    named = getattr(error, "parameter", None)
    if named is not None:
        named = _NAMES.get(named, named)
    elif (match := _IN_MESSAGE.match(message)) and match["name"] in _SPEAKS_OF:
        named = match["name"]
    return InvalidRequest(message, param=named or param)
