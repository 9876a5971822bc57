"""Engines: what generates, what it is asked, what it answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from gateway.constraints import Constraint
from gateway.deltas import Delta
from gateway.protocols.prompt import Prompt, Tail, Turn


class ModelInfo(Struct, frozen=True, kw_only=True):
    """What is known of a loaded model from its own metadata. `None` and empty mean unknown."""

    name: str
    engine: str
    architecture: str | None = None
    """As the weights say: `Qwen3ForCausalLM` (Hugging Face) or `qwen3` (GGUF)."""
    model_type: str | None = None
    path: str | None = None
    max_model_len: int | None = None
    """Prompt and output together."""
    chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    description: str | None = None
    sampling: Sampling | None = None
    """What the model's makers recommend (its generation config): used where request and configuration are silent."""
    adapters: tuple[str, ...] = ()
    """LoRA adapters, each served as a model of its own name."""


Capability: TypeAlias = Literal[
    "tokens",  # generates, and takes TokensPrompt
    "messages",  # generates, and takes ChatPrompt; an engine with neither only embeds
    "logprobs",
    "prompt_logprobs",
    "json_schema",
    "json_object",
    "regex",
    "lark",
    "gbnf",
    "structure",  # the whole constraint tree: Sequence, OneOf, Repeat, FreeText
    "triggered",  # Triggered
    "adapters",
    "images",
    "embeddings",  # is an EmbeddingEngine
]


class Sampling(Struct, frozen=True, kw_only=True):
    """How to sample. `None` leaves it to the engine's own default. Ranges and meanings are vLLM's `SamplingParams`."""

    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    logit_bias: dict[int, float] | None = None
    logprobs: int | None = None
    """Log probabilities of the sampled tokens, and of this many most likely alternatives (0: the sampled alone)."""
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    """Whether the engine leaves special tokens out of the text. Formats that read them say False."""


class EngineRequest(Struct, frozen=True, kw_only=True):
    """One generation."""

    request_id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    constraint: Constraint | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    priority: int = 0
    """Lower runs earlier, as in vLLM."""
    trace_headers: Mapping[str, str] | None = None
    multi_modal: Mapping[str, Any] | None = None
    hints: Mapping[str, str] = {}
    """What the client said of how it wants to be served, by the API's names (`user`, `service_tier`, `prompt_cache_key`,
    …): for engines that pass requests on. Others ignore it."""
    turn: Turn | None = None
    """What the prompt was made from, for engines that answer without a model (the scripted one). Others ignore it."""
    tail: Tail = "unknown"


FinishReason: TypeAlias = Literal["stop", "length", "error", "abort", "content_filter"]


class TopLogprob(Struct, frozen=True, gc=False):
    """One alternative at a position."""

    token_id: int
    token: str
    logprob: float
    """Natural logarithm."""
    bytes: bytes


class TokenLogprob(Struct, frozen=True):
    """The sampled token at a position, with its most likely alternatives, best first.

    `bytes` is what the token adds to the output's UTF-8: the concatenation over a generation is the text's bytes (a
    special token that is not part of the text has none). `token` is the same as text, with replacement characters where
    the token holds a part of a character.
    """

    token_id: int
    token: str
    logprob: float
    bytes: bytes
    top: tuple[TopLogprob, ...] = ()


class EngineOutput(Struct, kw_only=True, gc=False):
    """What an engine has newly generated; never cumulative.

    One output may carry many tokens, and text may lag behind tokens (a held stop string, half a character).
    `finish_reason` is set on the last output and only there. `stop_reason` is the stop string or token that ended it.
    """

    text: str = ""
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    prompt_tokens: int | None = None
    """The prompt's length: on the first or the last output, where the engine knows it better than `len(token_ids)`."""
    cached_tokens: int | None = None
    """How many prompt tokens came from the engine's prefix cache: on the first or the last output."""
    prompt_logprobs: Sequence[TokenLogprob | None] | None = None
    deltas: Sequence[Delta] | None = None
    """On every output of engines at message level, whose upstream has parsed already, and only there. Then `text` is empty,
    or, where there are `logprobs`, the answer's text alone, to which the `start` of its `TextDelta`s refers."""
    output_tokens: int | None = None
    """The whole output's tokens, as the upstream has counted them: on the last output of engines at message level, with
    `prompt_tokens`; what all `token_ids` add up to elsewhere."""
    reasoning_tokens: int | None = None
    """Likewise, those of them that are reasoning."""


class Tokenizer(Protocol):
    """An engine's own tokenizer. Methods are synchronous, thread-safe, and do not touch the network."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`; special tokens written in the text become their ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text; raises ValueError for an id outside the vocabulary."""
        ...


class Engine(Protocol):
    """Something that generates. Opened once at start-up, used by many requests at once."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None only for engines without the capability `tokens`."""
        ...

    async def check(self, request: EngineRequest) -> None:
        """Refuse at once what `generate` would refuse: raises `InvalidRequest` (with `param`) or `EngineUnavailable`.

        Called before the response starts, so that a bad request is a 400 and not a failed stream. Starts nothing.
        """
        ...

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`.

        The last output, and only the last, has a finish reason. Closing the generator, or cancelling the task that
        awaits it, aborts the request in the engine. What the engine refuses raises `InvalidRequest`; a failure of this
        request raises `EngineError`; a dead engine raises `EngineUnavailable`, for every running request.
        """
        ...

    async def health(self) -> None:
        """Return if the engine can serve now; raise `EngineUnavailable` with the reason if not. Cheap; polled."""
        ...
