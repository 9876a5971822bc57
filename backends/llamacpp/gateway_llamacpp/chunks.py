"""What llama.cpp's server says, chunk by chunk, of a completion with `verbose`. Unread fields are skipped."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field


class Alternative(Struct, gc=False):
    """One entry of a token's `top_logprobs`."""

    id: int
    logprob: float


class Probability(Struct):
    """The sampled token's log probability, before any sampler, and the most likely tokens at its place."""

    id: int
    logprob: float
    top_logprobs: list[Alternative] = []


class Progress(Struct, gc=False):
    """How far the prompt is read; `cache` tokens of it were not computed again."""

    cache: int = 0


class Details(Struct):
    """The native half of a chunk."""

    tokens: list[int] = []
    """The one new token; none in the last chunk."""
    content: str = ""
    tokens_predicted: int = 0
    """Tokens generated so far, this one included."""
    stop: bool = False
    """Whether this is the last chunk."""
    stop_type: str = "none"
    completion_probabilities: list[Probability] = []


class Failure(Struct):
    """An error reply; then it is the only chunk."""

    message: str = "llama.cpp failed without a message"
    type: str = ""
    code: int = 500


class Chunk(Struct):
    """One reply. llama.cpp sends no chunk for a token that leaves a UTF-8 character unfinished: it is counted in the
    next chunk's `tokens_predicted`, and its text comes with that chunk."""

    details: Details | None = field(name="__verbose", default=None)
    prompt_progress: Progress | None = None
    error: Failure | None = None


decode_chunk = msgspec.json.Decoder(Chunk).decode
