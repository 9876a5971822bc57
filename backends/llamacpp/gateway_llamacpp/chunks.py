"""Chunks of a `verbose` completion of llama.cpp's server. Other fields are ignored."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field


class Alternative(Struct, gc=False):
    """One entry of a token's `top_logprobs`."""

    id: int
    logprob: float


class Probability(Struct):
    """The sampled token's log probability before any sampler, and the most likely tokens in its place."""

    id: int
    logprob: float
    top_logprobs: list[Alternative] = []


class PromptProgress(Struct, gc=False):
    """Progress of prompt processing. `cache` tokens were taken from the cache."""

    cache: int = 0


class Details(Struct):
    """The native part of a chunk."""

    tokens: list[int] = []
    """The new token; empty in the last chunk."""
    content: str = ""
    tokens_predicted: int = 0
    """Number of tokens generated so far, including this one."""
    stop: bool = False
    """Whether this is the last chunk."""
    stop_type: str = "none"
    completion_probabilities: list[Probability] = []


class ErrorReply(Struct):
    """An error reply; it is the only chunk."""

    message: str = "llama.cpp failed without a message"
    type: str = ""
    code: int = 500


class CompletionReply(Struct):
    """One reply.

    llama.cpp sends no chunk for a token that ends inside a UTF-8 character. It is counted in `tokens_predicted` of the
    next chunk, which includes its text.
    """

    details: Details | None = field(name="__verbose", default=None)
    prompt_progress: PromptProgress | None = None
    error: ErrorReply | None = None


decode_chunk = msgspec.json.Decoder(CompletionReply).decode
