"""Failures of calls to replicas, for the request and for the replica's health."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct

from gateway.sdk import InvalidRequest, ParamPath
from gateway.sdk.configuration import without_secrets
from gateway.sdk.http import wanted_wait
from gateway_remote.reading import reader_of


class ReplicaFailure(Exception):
    """The replica is unreachable, broken, silent or returned malformed data. Another replica may succeed."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """`retry_after`: the seconds that it wants to be left alone by this client, if it says so."""
        super().__init__(message)
        self.retry_after = retry_after


class ReplicaBusy(ReplicaFailure):
    """The replica is overloaded and asks to retry after `retry_after` seconds."""

    retry_after: float

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message, retry_after)


class GatewayRefused(ReplicaFailure):
    """The server refuses the gateway itself: its key, or its account. Sending the request again does not help, here or elsewhere,
    until an operator acts."""


class UnknownServer(ReplicaFailure):
    """The server is none that this engine knows. It answers, so it does not help to wait."""


class ReplicaErrorBody(Struct):
    """The `error` object of a response or an event. Its message, which clients may see, has no credentials: a server tells of an
    address that it cannot reach with the password in it."""

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: int | str | None = None

    def __post_init__(self) -> None:
        self.message = without_secrets(self.message)


class _Answer(Struct):
    error: ReplicaErrorBody | str | None = None
    message: str | None = None
    detail: str | list[object] | None = None
    type: str | None = None
    param: str | None = None


_decode_answer = reader_of(_Answer)
_TOO_LONG = re.compile(
    r"context (?:length|size|window)|maximum model length|max_model_len|too large to process", re.I
)
_PARAMETERS: Mapping[str, str | ParamPath] = {
    "prompt": "input",
    "token_ids": "input",
    "prompt_token_ids": "input",
    "max_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "n_probs": "logprobs",
    "structured_outputs": ("text", "format"),
    "response_format": ("text", "format"),
    "json_schema": ("text", "format"),
    "grammar": ("text", "format"),
    "guided_decoding": ("text", "format"),
}
"""Maps the servers' parameter names to the gateway's."""


_LONGEST_WAIT = 60.0
"""Upper bound on a server's Retry-After, in seconds."""
_SHORTEST_WAIT = 1.0
"""Seconds that a server is left alone that names none, or none that makes sense: 0, negative ones, a date in the past."""


def retry_after_seconds(value: str | None) -> float:
    """Parse a Retry-After header, given in seconds or as a date. Returns seconds, from 1 to 60."""
    wanted = wanted_wait(value)
    if wanted is None:
        return _SHORTEST_WAIT
    return min(_LONGEST_WAIT, max(_SHORTEST_WAIT, wanted))


def failure_wait(value: str | None) -> float | None:
    """As `retry_after_seconds`, for a failure, which need not say when it ends: None if it does not."""
    return None if wanted_wait(value) is None else retry_after_seconds(value)


def read_error(body: bytes, status: int) -> ReplicaErrorBody:
    """Parse the error of an unsuccessful response in any of the known shapes."""
    try:
        answer = _decode_answer(body)
    except msgspec.DecodeError:
        text = " ".join(body[:300].decode("utf-8", "replace").split())
        return ReplicaErrorBody(message=text or f"HTTP status {status}")
    if isinstance(answer.error, ReplicaErrorBody):
        return answer.error
    message = answer.error or answer.message or str(answer.detail or f"HTTP status {status}")
    return ReplicaErrorBody(message=message, type=answer.type, param=answer.param)


def too_large(error: ReplicaErrorBody) -> bool:
    """Whether llama-server reports that an embedding input exceeds its `--ubatch-size`. It reports this as a server
    error."""
    return "too large to process" in error.message


def refusal(error: ReplicaErrorBody) -> InvalidRequest:
    """A 400 with the server's message and the gateway's name of the parameter."""
    name = (error.param or "").rpartition(".")[2]
    if _TOO_LONG.search(error.message) or error.type == "exceed_context_size_error":
        return InvalidRequest(error.message, param="input", code="context_length_exceeded")
    return InvalidRequest(error.message, param=_PARAMETERS.get(name, name))


def failure_in_stream(error: ReplicaErrorBody) -> Exception:
    """The exception for an error event: invalid request or replica failure."""
    if isinstance(error.code, int) and 400 <= error.code < 500 and error.code not in (408, 429):
        return refusal(error)
    return ReplicaFailure(f"it failed on the request: {error.message or 'no reason given'}")
