"""Embeddings: the request and its answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from gateway.base.errors import InvalidRequest, ParamPath, param_path, param_text
from gateway.wire.common import Value, Wire
from gateway.wire.decoding import convert, decode_object
from gateway.wire.field_errors import missing, wrong_type
from gateway.wire.parameter_table import EMBEDDINGS
from gateway.wire.sampling import MAX_INT

EncodingFormat: TypeAlias = Literal["float", "base64"]
TokenIds: TypeAlias = list[Annotated[int, Meta(ge=0, le=MAX_INT)]]
Input: TypeAlias = str | list[int]
"""Text, or token ids."""

MAX_DIMENSIONS = 1_000_000
"""More than any model has. The dimensions of a particular model are checked elsewhere."""


class EmbeddingsRequest(Wire, kw_only=True):
    """The body of `POST /v1/embeddings`. `inputs` is the normalized form of `input`."""

    model: str | None = None
    inputs: list[Input] = []
    several: bool = False
    """Whether `input` is a list of inputs, so that errors name one of them by index."""
    encoding_format: EncodingFormat = "float"
    dimensions: Annotated[int, Meta(ge=1, le=MAX_DIMENSIONS)] | None = None
    user: str | None = None
    add_special_tokens: bool | None = None
    priority: Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)] | None = None
    unknown: list[str] = []
    """Names of unknown parameters."""


_NOT_OF_THE_API = ("inputs", "several", "unknown")


def decode_embeddings_request(body: bytes, *, max_inputs: int) -> EmbeddingsRequest:
    """Decode the request. Raises `InvalidRequest` with the path of the invalid parameter."""
    raw = decode_object(body)
    given = {key: value for key, value in raw.items() if value is not None}
    sent = given.pop("input", None)
    for name in _NOT_OF_THE_API:
        given.pop(name, None)
    request = convert(given, EmbeddingsRequest)
    EMBEDDINGS.refuse(given)
    if sent is None:
        raise missing("input", "Send a string, a list of token ids, or a list of either.")
    request.inputs, request.several = _inputs(sent, max_inputs)
    request.unknown = sorted(raw.keys() - EMBEDDINGS.known)
    return request


def _inputs(raw: Any, most: int) -> tuple[list[Input], bool]:
    if isinstance(raw, str):
        return [_text(raw, "input")], False
    if not isinstance(raw, list):
        raise wrong_type("input", "a string or token ids", raw)
    if not raw:
        raise _empty("input", "array")
    if type(raw[0]) is int:
        return [convert(raw, TokenIds, "input")], False
    if len(raw) > most:
        raise InvalidRequest(
            f"Invalid 'input': at most {most} inputs can be embedded at once, and these are {len(raw)}. Send several "
            "requests.",
            param="input",
            code="array_above_max_length",
        )
    return [_input(each, ("input", index)) for index, each in enumerate(raw)], True


def _input(raw: Any, param: ParamPath) -> Input:
    if isinstance(raw, str):
        return _text(raw, param)
    if not isinstance(raw, list):
        raise wrong_type(param, "a string or token ids", raw)
    if not raw:
        raise _empty(param, "array")
    return convert(raw, TokenIds, param)


def _text(text: str, param: str | ParamPath) -> str:
    if not text:
        raise _empty(param, "string")
    return text


def _empty(param: str | ParamPath, kind: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid '{param_text(param_path(param))}': empty {kind}. An input has at least one character or token.",
        param=param,
        code=f"empty_{kind}",
    )


class Embedding(Value, frozen=True, kw_only=True):
    """One vector: numbers, or the base64 of their little-endian 32-bit floats."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Value, frozen=True, kw_only=True):
    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Value, frozen=True, kw_only=True):
    """The answer. Each element of `data` is an encoded `Embedding`."""

    object: Literal["list"] = "list"
    data: list[msgspec.Raw]
    model: str
    usage: EmbeddingUsage
