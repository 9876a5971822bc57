"""Engines: the protocol, its requests and its outputs."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.base.constraints import Constraint
from gateway.base.deltas import Delta
from gateway.plugins.protocols.prompt import Prompt, Tail, TokensPrompt, Turn


class ModelInfo(Struct, frozen=True, kw_only=True):
    """Metadata of a loaded model. `None` and empty mean unknown."""

    name: str
    engine: str
    architecture: str | None = None
    """Architecture name in the weights: `Qwen3ForCausalLM` (Hugging Face) or `qwen3` (GGUF)."""
    model_type: str | None = None
    path: str | None = None
    max_model_len: int | None = None
    """Maximum length of prompt and output together."""
    chat_template: str | None = None
    tool_chat_template: str | None = None
    """The template for conversations with tools, if the model has a separate one (`tool_use`)."""
    bos_token: str | None = None
    eos_token: str | None = None
    eos_token_ids: tuple[int, ...] = ()
    description: str | None = None
    sampling: Sampling | None = None
    """The model authors' recommendation (generation config). Used for parameters that neither the request nor the
    configuration sets."""
    adapters: tuple[str, ...] = ()
    """Names of the LoRA adapters. Each is served as a model of its own."""
    placeholders: Literal["template", "none"] = "template"
    """How prompts of tokens say where an image stands: by a placeholder token that the chat template writes, or only by
    `PlacedMedia.at`, for engines that add the image's tokens themselves."""


Capability: TypeAlias = Literal[
    "tokens",  # generates, and takes TokensPrompt
    "messages",  # generates, and takes ChatPrompt; an engine with neither only embeds or reranks
    "logprobs",
    "prompt_logprobs",
    "beam_search",  # gives log probabilities of continued prompts fast enough to search over them (a prefix cache); or, if
    # it takes messages, takes EngineRequest.beams
    "json_schema",
    "json_object",
    "regex",
    "lark",
    "gbnf",
    "structure",  # the whole constraint tree: Sequence, OneOf, Repeat, FreeText
    "triggered",  # Triggered
    "adapters",
    "images",  # takes images in prompts
    "audio",  # takes sounds in prompts
    "files",  # takes files in messages unchanged; other engines get their text
    "allowed_token_ids",  # keeps Sampling.allowed_token_ids
    "encrypted_reasoning",  # emits EncryptedReasoning, and takes it back from Turn.results
    "vllm_xargs",  # takes EngineRequest.vllm_xargs
    "data_parallel_rank",  # takes EngineRequest.data_parallel_rank
    "thinking_budget",  # takes EngineRequest.thinking_budget; not needed by engines that take tokens
    "kv_transfer_params",  # takes EngineRequest.kv_transfer_params
    "mm_processor_kwargs",  # takes EngineRequest.mm_processor_kwargs
    "embeddings",  # is an EmbeddingEngine
    "rerank",  # is a ScoringEngine
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
    allowed_token_ids: tuple[int, ...] = ()
    """The only tokens to sample; empty allows all. For engines with the capability of this name."""
    logprobs: int | None = None
    """Return log probabilities of the sampled tokens and of this many most likely alternatives (0: only the sampled
    tokens)."""
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    """Whether the engine removes special tokens from the text. False for formats that parse them."""


class BeamSearch(Struct, frozen=True, kw_only=True):
    """The parameters of a beam search."""

    width: int
    length_penalty: float = 1.0
    """Exponent of the length, of prompt and output together, by which the sum of a beam's log probabilities is divided."""
    early: bool = False
    """Whether the search ends as soon as `width` beams are complete."""


class EngineRequest(Struct, frozen=True, kw_only=True):
    """One generation."""

    request_id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    constraint: Constraint | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    """The client's own value. Engines separate their caches by `prefix_salt`."""
    owner: str = ""
    """Keyed hash of the request's owner; "" if the server has no keys. Prefix caches are not shared between owners."""
    priority: int = 0
    """Lower runs earlier, as in vLLM."""
    trace_headers: Mapping[str, str] | None = None
    hints: Mapping[str, str] = {}
    """Client hints by their API names (`user`, `service_tier`, `prompt_cache_key`, …). For engines that forward
    requests; others ignore them."""
    vllm_xargs: Mapping[str, Any] = {}
    """vLLM's extra arguments, for engines with the capability of that name. Unchecked: the configuration of a model
    allows them (`engine_parameters`)."""
    data_parallel_rank: int | None = None
    """The data-parallel replica of the engine to run on. Same conditions as for `vllm_xargs`."""
    kv_transfer_params: Mapping[str, Any] = {}
    """Parameters for vLLM's cache connector. Same conditions as for `vllm_xargs`."""
    mm_processor_kwargs: Mapping[str, Any] = {}
    """Arguments for the model's processor of images and sounds. Same conditions as for `vllm_xargs`."""
    thinking_budget: int | None = None
    """Maximum number of tokens of reasoning, for engines with the capability of this name. For engines that take
    tokens, the gateway itself ends the reasoning."""
    beams: BeamSearch | None = None
    """The search whose best beam is the output, for engines with the capability `beam_search` that take messages."""
    turn: Turn | None = None
    """The turn that the prompt was rendered from. For engines without a model (the scripted one); others ignore it."""
    tail: Tail = "unknown"

    @property
    def prefix_salt(self) -> str | None:
        """Cache key that requests must have in common to share a prefix cache: the owner and the client's own salt.

        None if the cache may be shared with everyone. A client cannot choose a salt that gives it another owner's key.
        """
        return self.scoped_to_owner(self.cache_salt or "") or None

    def scoped_to_owner(self, value: str) -> str:
        """Make a client's value unique to its owner. Returns it unchanged if the server has no keys."""
        if not self.owner:
            return value
        return hashlib.sha256(f"{self.owner}\0{value}".encode()).hexdigest()[:32]


FinishReason: TypeAlias = Literal["stop", "length", "error", "abort", "content_filter"]


class TopLogprob(Struct, frozen=True, gc=False):
    """One alternative token at a position."""

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
    rank: int | None = None
    """For a token of the prompt: its rank among all tokens by likelihood, from 1. None if the engine does not report
    it."""


class EngineOutput(Struct, kw_only=True, gc=False):
    """New output of an engine; never cumulative.

    One output may carry many tokens, and text may lag behind tokens (a held stop string, part of a character). An incomplete
    character at the end of the output is never text.
    `finish_reason` is set on the last output and only there. `stop_reason` is the stop string or token that ended it.
    """

    text: str = ""
    token_ids: Sequence[int] = ()
    logprobs: Sequence[TokenLogprob] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    prompt_tokens: int | None = None
    """The prompt's length. Set on the first or the last output, if the engine knows it better than `len(token_ids)`."""
    cached_tokens: int | None = None
    """Number of prompt tokens taken from the engine's prefix cache. Set on the first or the last output."""
    prompt_logprobs: Sequence[TokenLogprob | None] | None = None
    deltas: Sequence[Delta] | None = None
    """Parsed output. Set on every output of message-level engines (whose upstream parses), and only there. `text` is
    then empty; or, if there are `logprobs`, it is the answer's text alone, to which the `start` of each `TextDelta`
    refers."""
    output_tokens: int | None = None
    """Total number of output tokens, as counted by the upstream. Set on the last output of message-level engines,
    together with `prompt_tokens`. For other engines it is the sum of all `token_ids`."""
    reasoning_tokens: int | None = None
    """The part of `output_tokens` that is reasoning."""
    kv_transfer_params: dict[str, Any] | None = None
    """What the engine's cache connector reports about this request. Set on the last output."""


class Tokenizer(Protocol):
    """An engine's own tokenizer. Methods are synchronous, thread-safe, and do not touch the network."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`. Special tokens written in the text become their ids."""
        ...

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that one token adds to a text. Raises ValueError for an id outside the vocabulary."""
        ...


class AddedToken(Struct, frozen=True, kw_only=True):
    """A string that a tokenizer always encodes as one token."""

    id: int
    special: bool
    """Whether `skip_special_tokens` removes it."""
    divides: bool = False
    """Whether the texts before and after it are always tokenized separately. The ids of `before + token + after` are
    then the ids of `before + token`, followed by the ids of `token + after` without the first one, unless an added
    token overlaps with it there. The unchanged part of a longer prompt need not be tokenized again."""


@runtime_checkable
class KnowsAddedTokens(Protocol):
    """A `Tokenizer` that lists its added tokens.

    Renderers keep these strings from being encoded as tokens in untrusted text (`gateway.engines.origins`). If a
    tokenizer does not list them, the control tokens of well-known families are tried.
    """

    @property
    def added_tokens(self) -> Mapping[str, AddedToken]:
        """The tokens by their text. Empty if the tokenizer reads every text as ordinary text."""
        ...


class Engine(Protocol):
    """A generating, embedding or reranking backend. Opened once at start-up; serves many requests concurrently."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def capabilities(self) -> frozenset[Capability]: ...

    @property
    def tokenizer(self) -> Tokenizer | None:
        """None only for engines without the capability `tokens`."""
        ...

    async def check(self, request: EngineRequest) -> None:
        """Check a request without starting it. Raises what `generate` would: `InvalidRequest` (with `param`) or
        `EngineUnavailable`.

        Called before the response starts, so that a bad request is answered with 400 instead of a failed stream.
        """
        ...

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate the output for `request`.

        The last output, and only the last, has a finish reason. Closing the generator, or cancelling the task that
        awaits it, aborts the request in the engine. Raises `InvalidRequest` if the engine rejects the request,
        `EngineError` if this request fails, and `EngineUnavailable`, for every running request, if the engine is down.
        """
        ...

    async def health(self) -> None:
        """Return if the engine can serve now; otherwise raise `EngineUnavailable` with the reason. Polled, so it must
        be cheap."""
        ...


@runtime_checkable
class PushingEngine(Protocol):
    """An `Engine` that can hand over outputs in the callback that receives them, for a whole batch in one step. This
    costs the gateway a fifth less per token than resuming a generator for each output."""

    def generate_pushing(
        self, request: EngineRequest, push: Callable[[EngineOutput], bool]
    ) -> AsyncGenerator[EngineOutput, None]:
        """Like `generate`, but each output may first be given to `push`: if that returns True, the output is not
        yielded.

        `push` is called on the event loop, with outputs in their order: all earlier ones were accepted or yielded. It
        returns False for outputs that must be yielded: the first and the last, all while an earlier one is being
        handled, and those of a client that reads slowly. It raises nothing. It must not be called after the generator
        has raised or was closed.
        """
        ...


@runtime_checkable
class AdapterLoadingEngine(Protocol):
    """An `Engine` that loads and unloads LoRA adapters while it runs. `info.adapters` has their names."""

    async def load_adapter(self, name: str, path: str) -> None:
        """Load the adapter at `path`, a folder or a hub id, and serve it as `name`, which is not in `info.adapters`.

        Raises `InvalidRequest` if it cannot be loaded, or the engine was not started for adapters.
        """
        ...

    async def unload_adapter(self, name: str) -> None:
        """Stop serving an adapter of `info.adapters`. Running requests that use it are not affected."""
        ...


@runtime_checkable
class LateRefusingEngine(Protocol):
    """An `Engine` that may refuse a request only when it generates, such as one that forwards requests to another
    server.

    The start of a stream is then held back until the first output, for some seconds at most, so that the client gets
    the refusal as an HTTP status. A failure before the first output is answered in the same way.
    """

    def may_refuse(self, request: EngineRequest) -> bool:
        """Whether `generate` may raise `InvalidRequest` or `RateLimited` for a request that `check` has accepted."""
        ...


@runtime_checkable
class PrioritizingEngine(Protocol):
    """An `Engine` that may serve waiting requests by their `priority`.

    Work that no client waits for, such as the lines of a batch, is then also served last within the engine.
    """

    @property
    def last_priority(self) -> int | None:
        """The largest priority that a request may have; None if requests are served in the order of arrival."""
        ...


@runtime_checkable
class CountingEngine(Protocol):
    """An `Engine` whose prompts may be longer than their token ids, because of images or sounds."""

    async def count(self, prompt: TokensPrompt) -> int:
        """The length of `prompt` in tokens, equal to the later `EngineOutput.prompt_tokens`. Raises `InvalidRequest`
        for media that the engine does not take."""
        ...
