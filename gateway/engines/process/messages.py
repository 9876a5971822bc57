"""The messages between server processes and engines' processes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args, overload

import msgspec
from msgspec import Raw, Struct

from gateway.base import errors
from gateway.base.constraints import Constraint
from gateway.base.errors import EngineError, GatewayError, InvalidRequest, ParamPath
from gateway.plugins.protocols import (
    AddedToken,
    EmbeddingInfo,
    EngineOutput,
    EngineRequest,
    FinishReason,
    ModelInfo,
    PlacedMedia,
    Sampling,
    ScoringInfo,
    Tail,
    TokenLogprob,
    TokensPrompt,
    TopLogprob,
    Turn,
)

# Requests.


class WireRequest(Struct, omit_defaults=True, kw_only=True):
    """An `EngineRequest` whose prompt is token ids."""

    request_id: str
    token_ids: bytes
    """64-bit integers in the byte order of this machine."""
    media: list[PlacedMedia] = []
    sampling: Sampling = Sampling()
    constraint: Constraint | None = None
    adapter: str | None = None
    cache_salt: str | None = None
    owner: str = ""
    priority: int = 0
    trace_headers: dict[str, str] | None = None
    hints: dict[str, str] = {}
    vllm_xargs: dict[str, Any] = {}
    data_parallel_rank: int | None = None
    kv_transfer_params: dict[str, Any] = {}
    mm_processor_kwargs: dict[str, Any] = {}
    turn: Turn | None = None
    tail: Tail = "unknown"


def to_wire(request: EngineRequest, *, with_turn: bool) -> WireRequest:
    """The request in the form that is sent. Raises `InvalidRequest` for a prompt of messages, and for token ids of more
    than 64 bits."""
    prompt = request.prompt
    if not isinstance(prompt, TokensPrompt):
        raise InvalidRequest(
            "This engine takes prompts as token ids, not as messages.", param="input"
        )
    turn = request.turn if with_turn else None
    if turn is not None:
        turn = msgspec.structs.replace(turn, media=None, results={})
    trace = request.trace_headers
    return WireRequest(
        request_id=request.request_id,
        token_ids=packed_ids(prompt.token_ids),
        media=list(prompt.media),
        sampling=request.sampling,
        constraint=request.constraint,
        adapter=request.adapter,
        cache_salt=request.cache_salt,
        owner=request.owner,
        priority=request.priority,
        trace_headers=None if trace is None else dict(trace),
        hints=dict(request.hints),
        vllm_xargs=dict(request.vllm_xargs),
        data_parallel_rank=request.data_parallel_rank,
        kv_transfer_params=dict(request.kv_transfer_params),
        mm_processor_kwargs=dict(request.mm_processor_kwargs),
        turn=turn,
        tail=request.tail,
    )


def from_wire(wire: WireRequest) -> EngineRequest:
    return EngineRequest(
        request_id=wire.request_id,
        prompt=TokensPrompt(token_ids=unpacked_ids(wire.token_ids), media=wire.media),
        sampling=wire.sampling,
        constraint=wire.constraint,
        adapter=wire.adapter,
        cache_salt=wire.cache_salt,
        owner=wire.owner,
        priority=wire.priority,
        trace_headers=wire.trace_headers,
        hints=wire.hints,
        vllm_xargs=wire.vllm_xargs,
        data_parallel_rank=wire.data_parallel_rank,
        kv_transfer_params=wire.kv_transfer_params,
        mm_processor_kwargs=wire.mm_processor_kwargs,
        turn=wire.turn,
        tail=wire.tail,
    )


def packed_ids(token_ids: Sequence[int]) -> bytes:
    try:
        return array("q", token_ids).tobytes()
    except OverflowError:
        raise InvalidRequest(
            "The prompt has a token id that is outside of every vocabulary.", param="input"
        ) from None


def unpacked_ids(data: bytes) -> list[int]:
    ids = array("q")
    ids.frombytes(data)
    return ids.tolist()


# Outputs.


class WireTop(Struct, array_like=True, frozen=True, gc=False):
    """A `TopLogprob`."""

    token_id: int
    token: str
    logprob: float
    data: bytes


class WireLogprob(Struct, array_like=True, frozen=True):
    """A `TokenLogprob`."""

    token_id: int
    token: str
    logprob: float
    data: bytes
    top: tuple[WireTop, ...]
    rank: int | None = None


class PackedLogprobs(Struct, array_like=True):
    """Log probabilities of a prompt. There may be many, so they are packed and unpacked in pieces, outside of the event
    loop."""

    count: int
    pieces: list[bytes]


class RareFields(Struct, omit_defaults=True):
    """The fields of an `EngineOutput` that most outputs do not have."""

    logprobs: list[WireLogprob] | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prompt_logprobs: PackedLogprobs | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    kv_transfer_params: dict[str, Any] | None = None


class Piece(Struct, array_like=True, gc=False):
    """An `EngineOutput` of one stream."""

    stream: int
    text: str
    token_ids: list[int]
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    rest: RareFields | None = None


_PACKED_AT_ONCE = 1024
_encode = msgspec.msgpack.Encoder().encode
_unpacked = msgspec.msgpack.Decoder(list[WireLogprob | None]).decode
_FINISH_REASONS = frozenset(get_args(FinishReason))


def pack(logprobs: Sequence[TokenLogprob | None]) -> PackedLogprobs:
    """Pack log probabilities. Takes some microseconds for each."""
    pieces: list[bytes] = []
    for at in range(0, len(logprobs), _PACKED_AT_ONCE):
        some = logprobs[at : at + _PACKED_AT_ONCE]
        pieces.append(_encode([None if each is None else _sent(each) for each in some]))
    return PackedLogprobs(len(logprobs), pieces)


class ReceivedLogprobs(Sequence[TokenLogprob | None]):
    """Log probabilities of a prompt that are unpacked on first use, which may be in any thread."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, packed: PackedLogprobs) -> None:
        self._packed = packed
        self._unpacked: list[TokenLogprob | None] | None = None

    def __len__(self) -> int:
        return self._packed.count

    @overload
    def __getitem__(self, index: int) -> TokenLogprob | None: ...

    @overload
    def __getitem__(self, index: slice) -> list[TokenLogprob | None]: ...

    def __getitem__(self, index: int | slice) -> TokenLogprob | list[TokenLogprob | None] | None:
        if self._unpacked is None:
            self._unpacked = [
                None if each is None else _received(each)
                for piece in self._packed.pieces
                for each in _unpacked(piece)
            ]
        return self._unpacked[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


def piece_of(stream: int, output: EngineOutput, *, packed: PackedLogprobs | None = None) -> Piece:
    """The output in the form that is sent. `packed`: its `prompt_logprobs`, if they are packed already.

    Raises `ValueError` for parsed output, which cannot be sent, and for an unknown finish reason.
    """
    if output.deltas is not None:
        raise ValueError("an engine that parses its output runs in the server process")
    if output.finish_reason is not None and output.finish_reason not in _FINISH_REASONS:
        raise ValueError(f"{output.finish_reason!r} is not a finish reason")
    rest = None
    if (
        output.prompt_tokens is not None
        or output.logprobs is not None
        or output.cached_tokens is not None
        or output.prompt_logprobs is not None
        or output.output_tokens is not None
        or output.reasoning_tokens is not None
        or output.kv_transfer_params is not None
    ):
        rest = RareFields(
            None if output.logprobs is None else [_sent(each) for each in output.logprobs],
            output.prompt_tokens,
            output.cached_tokens,
            None if output.prompt_logprobs is None else packed or pack(output.prompt_logprobs),
            output.output_tokens,
            output.reasoning_tokens,
            output.kv_transfer_params,
        )
    ids = output.token_ids
    return Piece(
        stream,
        output.text,
        ids if type(ids) is list else list(ids),
        output.finish_reason,
        output.stop_reason,
        rest,
    )


def output_of(piece: Piece) -> EngineOutput:
    output = EngineOutput(
        text=piece.text,
        token_ids=piece.token_ids,
        finish_reason=piece.finish_reason,
        stop_reason=piece.stop_reason,
    )
    rest = piece.rest
    if rest is not None:
        output.prompt_tokens, output.cached_tokens = rest.prompt_tokens, rest.cached_tokens
        output.output_tokens, output.reasoning_tokens = rest.output_tokens, rest.reasoning_tokens
        output.kv_transfer_params = rest.kv_transfer_params
        if rest.logprobs is not None:
            output.logprobs = [_received(each) for each in rest.logprobs]
        if rest.prompt_logprobs is not None:
            output.prompt_logprobs = ReceivedLogprobs(rest.prompt_logprobs)
    return output


def _sent(each: TokenLogprob) -> WireLogprob:
    top = tuple(WireTop(t.token_id, t.token, t.logprob, t.bytes) for t in each.top)
    return WireLogprob(each.token_id, each.token, each.logprob, each.bytes, top, each.rank)


def _received(each: WireLogprob) -> TokenLogprob:
    top = tuple(TopLogprob(t.token_id, t.token, t.logprob, t.data) for t in each.top)
    return TokenLogprob(each.token_id, each.token, each.logprob, each.data, top, each.rank)


# Errors.


class WireError(Struct, array_like=True):
    """A `GatewayError`."""

    kind: str
    """The name of the error's class, or of its nearest base class in `gateway.base.errors`."""
    message: str
    at: ParamPath = ()
    code: str | None = None
    headers: dict[str, str] = {}


def failure_of(error: GatewayError) -> WireError:
    kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
    return WireError(kind.__name__, error.message, tuple(error.at), error.code, error.headers)


def error_of(failure: WireError) -> GatewayError:
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, GatewayError)):
        kind = EngineError
    error: GatewayError = kind.__new__(kind, failure.message)
    # The constructors of the classes differ, but their fields are the same.
    GatewayError.__init__(
        error, failure.message, param=failure.at, code=failure.code, headers=failure.headers
    )
    return error


# Messages of a server process.


class Start(Struct, array_like=True, tag=1):
    """Starts a generation. Its output is sent as pieces with the number `stream`."""

    stream: int
    request: WireRequest


class Cancel(Struct, array_like=True, tag=2):
    """Cancels a generation or a call. Nothing more is sent for it."""

    number: int


class MethodCall(Struct, array_like=True, tag=3):
    """Calls a method. Answered by `MethodResult` or `Failed`."""

    number: int
    method: str
    argument: Raw = Raw(b"\xc0")


FromServer: TypeAlias = Start | Cancel | MethodCall


# Messages of an engine's process.


class Outputs(Struct, array_like=True, tag=1):
    """The pieces of any number of generations that are ready."""

    pieces: list[Piece]


class MethodResult(Struct, array_like=True, tag=2):
    """The result of a call."""

    number: int
    value: Raw


class Failed(Struct, array_like=True, tag=3):
    """The error with which a stream or a call has ended."""

    number: int
    failure: WireError


FromEngine: TypeAlias = Outputs | MethodResult | Failed


class QueueLimits(Struct, kw_only=True):
    """Limits on the requests of all server processes together. The fields have the same names as in `ModelConfig`."""

    max_running: int
    max_waiting: int
    max_waiting_per_key: int | None = None
    scheduling: Literal["fair", "fifo"] = "fair"


class Opened(Struct, kw_only=True):
    """The answer to the call `open`."""

    error: str = ""
    """Message of the `ConfigurationError`, if the engine could not be opened."""
    description: Description | None = None


class Description(Struct, kw_only=True):
    """The properties of an open engine."""

    info: ModelInfo
    capabilities: list[str]
    added_tokens: dict[str, AddedToken] | None = None
    """The added tokens of the engine's tokenizer, if the tokenizer lists them."""
    has_tokenizer: bool = False
    embedding: EmbeddingInfo | None = None
    scoring: ScoringInfo | None = None
    counts: bool = False
    """Whether the engine is a `CountingEngine`."""
    loads_adapters: bool = False
    """Whether the engine is an `AdapterLoadingEngine`."""
    measured: bool = False
    """Whether the engine is a `MeasuredEngine`."""
    takes_turns: bool = False
    """Whether the engine is a `FormatAwareEngine`, which reads the turns of requests."""
    late: bool = False
    """Whether the engine is a `LateRefusingEngine`."""
    last_priority: int | None = None
    """The `last_priority` of a `PrioritizingEngine`."""


class WireVectors(Struct, array_like=True):
    """An `EmbeddingResult`."""

    vectors: list[bytes]
    """32-bit floats in the byte order of this machine."""
    prompt_tokens: int


class PlaceRequest(Struct, array_like=True):
    """A request for a place in the queue that all server processes share."""

    principal: str | None
    priority: int
    weight: float
    prompt: int
    """Length of the prompt in tokens."""
    several: bool
    """Whether there is more than one principal."""
    added_priority: int = 0
    """Added to the principal's priority."""


class PlaceUsed(Struct, array_like=True):
    """The numbers of tokens that the request of a place has used."""

    number: int
    prompt: int
    output: int
