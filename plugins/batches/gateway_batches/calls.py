"""Runs one line of a batch by the gateway's own API."""

from __future__ import annotations

import asyncio
import random
from typing import Final

import msgspec
from msgspec import Raw, Struct

from gateway.sdk import EngineError, EngineUnavailable, GatewayServices, InternalAnswer
from gateway.sdk.processes import Shares
from gateway.sdk.wire import encode, new_id
from gateway_batches.batches import BatchJob
from gateway_batches.config import BatchesConfig
from gateway_batches.lines import COMPLETED, FAILED, PendingLine, State, TokenCounts
from gateway_batches.objects import LineError, LineResponse, LineResult

_PAUSES: Final = (0.5, 60.0)
"""First and longest pause before a line is run again, in seconds."""
_MAX_ANSWER: Final = 67_108_864
"""Maximum size of one answer in bytes."""


class Draining(Exception):
    """The server is shutting down: it runs no more lines."""


class LineOutcome(Struct, frozen=True):
    """The result of a line, as it will be written."""

    result: bytes
    state: State
    used: TokenCounts = TokenCounts()


class _Details(Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(Struct):
    """Tokens by the names of any of OpenAI's APIs."""

    input_tokens: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    completion_tokens: int | None = None
    input_tokens_details: _Details | None = None
    prompt_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Answer(Struct):
    usage: _Usage | None = None


class _Code(Struct):
    code: str | None = None


class _Refusal(Struct):
    error: _Code | None = None


class LineCalls:
    """Runs lines, of all batches of this process, within its limit on concurrent ones."""

    def __init__(self, services: GatewayServices, config: BatchesConfig) -> None:
        self._services = services
        self._config = config
        # Each owner may have all, if no other has lines: a place is free again soon.
        self._slots = Shares(config.concurrency, each=config.concurrency)

    async def run(self, job: BatchJob, line: PendingLine) -> LineOutcome:
        """Run a line until it has a result.

        A rejection because of a limit, or because the model is not available now, is not a result: the line is run again after a
        while. Raises `PermissionDenied` if the batch's API key is no longer valid, and `Draining`. Cancelling cancels the request.
        """
        delegation = job.delegation
        assert delegation is not None, "otherwise the batch has failed"
        pause, longest = _PAUSES
        left = self._config.attempts
        while True:
            request_id = new_id("req_")
            try:
                async with self._slots.slot(job.owner):
                    answer = await self._services.send(
                        job.endpoint,
                        line.body,
                        delegation=delegation,
                        priority=self._config.priority,
                        request_id=request_id,
                        max_bytes=_MAX_ANSWER,
                    )
            except EngineError as error:
                return _failure(line, LineError(code="answer_too_large", message=error.message))
            except EngineUnavailable:  # the gateway is still starting
                answer = InternalAnswer(status=503, headers={}, body=b"")
            if answer.status == 503 and _code(answer) == "server_shutting_down":
                raise Draining
            later = answer.status in (429, 503) and answer.headers.get("x-should-retry") != "false"
            if answer.status in (500, 502, 504):
                left -= 1
                later = left > 0
            if not later:
                return _outcome(line, request_id, answer)
            header = answer.headers.get("retry-after", "")
            wanted = float(header[:9]) if header.isascii() and header.isdecimal() else 0.0
            # Not all at the same time.
            await asyncio.sleep(min(longest, max(pause, wanted)) * random.uniform(1, 1.25))  # noqa: S311
            pause *= 2


def _outcome(line: PendingLine, request_id: str, answer: InternalAnswer) -> LineOutcome:
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return _failure(
            line, LineError(code="no_json", message="The answer to the line is not JSON.")
        )
    body = answer.body
    if b"\n" in body:  # between the values, as strings have no bare line breaks
        body = msgspec.json.format(body, indent=-1)
    response = LineResponse(status_code=answer.status, request_id=request_id, body=Raw(body))
    result = LineResult(
        id=new_id("batch_req_"), custom_id=line.custom_id, response=response, error=None
    )
    if answer.status == 200:
        return LineOutcome(encode(result), COMPLETED, _usage_of(body))
    return LineOutcome(encode(result), FAILED)


def _failure(line: PendingLine, error: LineError) -> LineOutcome:
    result = LineResult(
        id=new_id("batch_req_"), custom_id=line.custom_id, response=None, error=error
    )
    return LineOutcome(encode(result), FAILED)


def _code(answer: InternalAnswer) -> str | None:
    try:
        error = msgspec.json.decode(answer.body, type=_Refusal).error
    except (msgspec.DecodeError, RecursionError):
        return None
    return None if error is None else error.code


def _usage_of(body: bytes) -> TokenCounts:
    try:
        usage = msgspec.json.decode(body, type=_Answer).usage
    except (msgspec.DecodeError, RecursionError):
        return TokenCounts()
    if usage is None:
        return TokenCounts()
    given = usage.input_tokens_details or usage.prompt_tokens_details or _Details()
    made = usage.output_tokens_details or usage.completion_tokens_details or _Details()
    return TokenCounts(
        input=usage.input_tokens or usage.prompt_tokens or 0,
        cached=given.cached_tokens or 0,
        output=usage.output_tokens or usage.completion_tokens or 0,
        reasoning=made.reasoning_tokens or 0,
    )
