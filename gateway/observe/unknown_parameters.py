"""Reports parameters of requests that have no effect on this server."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from itertools import islice

from gateway.observe.metrics import Metrics

logger = logging.getLogger("gateway.requests")

OTHER = "other"
"""The label of all names that are not well known."""
MAX_LOGGED = 256
"""Maximum number of different names that are logged. Clients choose the names, so it must be limited."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_SHOWN = 16
_MAX_REPORTED = 64

_WELL_KNOWN = frozenset(
    {
        "best_of", "beam_width", "chat_template_kwargs", "custom_params", "documents", "dynatemp_range", "ebnf",
        "echo", "extra_body", "frequency_penalty", "functions", "grammar", "guided_decoding_backend",
        "guided_whitespace_pattern", "include", "input", "instructions", "json_schema", "keep_alive", "logit_bias",
        "logprobs", "lora_path", "max_completion_tokens", "max_output_tokens", "max_tokens", "messages", "metadata",
        "mirostat", "mm_payload", "modalities", "n", "n_predict", "n_probs", "no_stop_trim", "options", "plugins",
        "prediction", "presence_penalty", "previous_response_id", "prompt", "provider", "reasoning",
        "reasoning_effort", "reasoning_format", "regex", "response_format", "return_hidden_states",
        "return_mm_kwargs", "rid", "safe_prompt", "seed", "separate_reasoning", "session_id", "stop",
        "stop_sequences", "store", "stream_interval", "stream_options", "stream_reasoning", "suffix", "system",
        "temperature", "text", "thinking", "thinking_budget", "timings_per_token", "tool_choice", "tools", "top_a",
        "top_logprobs", "transforms", "truncation", "typical_p", "user", "verbosity", "web_search_options",
    }
)  # fmt: skip
"""Parameters of other servers and APIs that clients often send. The metric counts each under its own name."""


class UnknownParameters:
    """Counts the parameters that have no effect, and logs each name once."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._logged: set[str] = set()

    def report(self, route: str, names: Iterable[str]) -> None:
        """Report the parameters of one request to `route`, at most the first 64."""
        for name in islice(names, _MAX_REPORTED):
            self._metrics.unknown_parameter(route, name if name in _WELL_KNOWN else OTHER)
            shown = name if _NAME.fullmatch(name) else ascii(name[:64])
            if shown not in self._logged and len(self._logged) < MAX_LOGGED:
                self._logged.add(shown)
                logger.warning(
                    "requests to %s have the parameter %s, which has no effect here", route, shown
                )


def header_of(names: Iterable[str]) -> bytes:
    """Format names as a header's value. Names with characters other than letters, digits and `_.-` are left out, and at
    most 16 names are shown."""
    clean = [name for name in islice(names, _MAX_REPORTED) if _NAME.fullmatch(name)]
    return ", ".join(clean[:_MAX_SHOWN]).encode()
