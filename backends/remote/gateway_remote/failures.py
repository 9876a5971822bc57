"""How a call to a replica can fail, and what that means for the request and for the replica."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from gateway.errors import InvalidRequest


class ReplicaFailure(Exception):
    """The replica did not do its part: unreachable, broken, silent, or not making sense. Another one may."""


class ReplicaBusy(ReplicaFailure):
    """The replica asks to wait: `retry_after` seconds."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ErrorBody(Struct):
    """The `error` of an answer or of an event."""

    message: str = ""
    type: str | None = None
    param: str | None = None
    code: int | str | None = None


class _Answer(Struct):
    error: ErrorBody | str | None = None
    message: str | None = None
    detail: str | list[object] | None = None
    type: str | None = None
    param: str | None = None


_decode_answer = msgspec.json.Decoder(_Answer).decode
_TOO_LONG = re.compile(
    r"context (?:length|size|window)|maximum model length|max_model_len|too large to process", re.I
)
_PARAMETERS = {
    "prompt": "input",
    "token_ids": "input",
    "prompt_token_ids": "input",
    "max_tokens": "max_tokens",
    "n_predict": "max_tokens",
    "repeat_penalty": "repetition_penalty",
    "n_probs": "logprobs",
    "structured_outputs": "text.format",
    "response_format": "text.format",
    "json_schema": "text.format",
    "grammar": "text.format",
    "guided_decoding": "text.format",
}
"""The servers' names of what the gateway calls otherwise."""


def read_error(body: bytes, status: int) -> ErrorBody:
    """What an answer that is no success says, in whichever shape."""
    try:
        answer = _decode_answer(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(body[:300].decode("utf-8", "replace").split())
        return ErrorBody(message=text or f"HTTP status {status}")
    if isinstance(answer.error, ErrorBody):
        return answer.error
    message = answer.error or answer.message or str(answer.detail or f"HTTP status {status}")
    return ErrorBody(message=message, type=answer.type, param=answer.param)


def too_large(error: ErrorBody) -> bool:
    """Whether llama-server says, as a failure of its own, that a text to embed is longer than its `--ubatch-size`."""
    return "too large to process" in error.message


def refusal(error: ErrorBody) -> InvalidRequest:
    """The 400 for the client, with the server's words and the gateway's name of the parameter."""
    param = error.param.rsplit(".", 1)[-1] if error.param else None
    param = _PARAMETERS.get(param, param) if param else None
    if _TOO_LONG.search(error.message) or error.type == "exceed_context_size_error":
        return InvalidRequest(error.message, param="input", code="context_length_exceeded")
    return InvalidRequest(error.message, param=param)


def failure_in_stream(error: ErrorBody) -> Exception:
    """What an error that comes as an event means: the request's fault, or the replica's."""
    if isinstance(error.code, int) and 400 <= error.code < 500 and error.code not in (408, 429):
        return refusal(error)
    return ReplicaFailure(f"it failed on the request: {error.message or 'no reason given'}")
