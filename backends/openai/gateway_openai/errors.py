"""Translates an upstream's errors for clients and the log.

Clients see the upstream's message without addresses and keys.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from gateway.sdk import GatewayError, InvalidRequest, NotFound, ParamPath, PayloadTooLarge
from gateway.sdk.configuration import without_secrets
from gateway_remote.failures import (
    GatewayRefused,
    ReplicaBusy,
    ReplicaFailure,
    failure_wait,
    retry_after_seconds,
)
from gateway_remote.reading import reader_of

logger = logging.getLogger("gateway.openai")

_REFUSALS = (400, 404, 413, 422)
_OF_THE_UPSTREAM = frozenset({401, 402, 403, 408, 424, 425, 429})
"""4xx that say nothing about the request: the key, the account, or the state of the server. All others refuse the request, and
would be answered the same by another replica. (424: a generation that failed, of text-generation-inference.)"""
_MODERATED = re.compile(r"moderation|content.?(?:policy|filter)|flagged|safety|blocked", re.I)
_KINDS: Mapping[int, type[GatewayError]] = {404: NotFound, 413: PayloadTooLarge}
_TOO_LONG = re.compile(r"context (?:length|size|window)|maximum model length|max_model_len", re.I)
_PARAMETERS: Mapping[str, ParamPath] = {
    "messages": ("input",),
    "input": ("input",),
    "max_tokens": ("max_output_tokens",),
    "max_completion_tokens": ("max_output_tokens",),
    "response_format": ("text", "format"),
    "text": ("text", "format"),
}
"""Maps the first word of an upstream's parameter to the gateway's name where they differ."""


class UpstreamError(Struct):
    """The `error` object of a response or an event."""

    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: int | str | None = None


class _Envelope(Struct):
    error: UpstreamError | str | None = None
    message: str | None = None
    detail: str | list[object] | None = None
    type: str | None = None
    param: str | None = None
    code: int | str | None = None


_decode = reader_of(_Envelope, strict=False)


class Translator:
    """Turns an upstream's errors into the gateway's."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """`secrets` are strings that no message may contain: keys and addresses."""
        words = sorted({each for each in secrets if len(each) > 3}, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, words))) if words else None

    def clean(self, text: str) -> str:
        """`text` on one line of bounded length, with secrets removed."""
        text = without_secrets(" ".join(text.split()))
        if self._secrets is not None:
            text = self._secrets.sub("…", text)
        return text if len(text) <= 1000 else f"{text[:999]}…"

    def answer(self, status: int, body: bytes, retry_after: str | None) -> Exception:
        """The exception for an unsuccessful response. Implements `gateway_remote.client.Meaning`."""
        error = _read(body)
        said = self.clean(error.message or "no reason given")
        moderated = status == 403 and _MODERATED.search(f"{error.type} {error.code} {said}")
        if moderated or (400 <= status < 500 and status not in _OF_THE_UPSTREAM):
            otherwise = f"The upstream server refused the request ({status})."
            return self.refusal(error, otherwise, status=status)
        if status == 429:
            return ReplicaBusy(f"it asks to wait (429): {said}", retry_after_seconds(retry_after))
        if status in (401, 402, 403):
            advice = "the account's credit" if status == 402 else "api_key and headers"
            logger.error(
                "the upstream refuses the gateway itself (%d): %s; check %s", status, said, advice
            )
            return GatewayRefused(f"HTTP {status}: {said}")
        return ReplicaFailure(f"HTTP {status}: {said}", failure_wait(retry_after))

    def event(self, error: UpstreamError) -> Exception:
        """The exception for an error in a stream."""
        kind, code = error.type or "", str(error.code or "")
        if code == "429" or "rate_limit" in kind or "rate_limit" in code:
            return ReplicaBusy(f"it asks to wait: {self.clean(error.message or '')}", 1.0)
        numbered = code.isdecimal() and int(code) in _REFUSALS
        if numbered or kind == "invalid_request_error" or code == "invalid_prompt":
            return self.refusal(error, "The upstream server refused the request.")
        said = self.clean(error.message or "no reason given")
        return ReplicaFailure(f"it failed on the request: {said}")

    def refusal(self, error: UpstreamError, otherwise: str, *, status: int = 400) -> GatewayError:
        """The error with the upstream's message and the gateway's name of the parameter. It is a 400, unless `status`
        is 404 or 413."""
        message = self.clean(error.message) if error.message else otherwise
        code = error.code if isinstance(error.code, str) and not error.code.isdecimal() else None
        if code == "context_length_exceeded" or _TOO_LONG.search(message):
            return InvalidRequest(message, param="input", code="context_length_exceeded")
        named = error.param or ""
        first = named.partition(".")[0].partition("[")[0]
        kind = _KINDS.get(status, InvalidRequest)
        return kind(message, param=_PARAMETERS.get(first) or named, code=code)


def _read(body: bytes) -> UpstreamError:
    """Parse an error body in any of the known shapes. A body that is not JSON comes from an intermediary; its text is
    not passed on."""
    try:
        envelope = _decode(body)
    except msgspec.DecodeError:
        return UpstreamError()
    if isinstance(envelope.error, UpstreamError):
        return envelope.error
    message = envelope.error or envelope.message
    if message is None and envelope.detail:
        message = str(envelope.detail)
    return UpstreamError(message, envelope.type, envelope.param, envelope.code)
