"""The answers of plugins' APIs. Each consists of one choice, written by the API's own `AnswerWriter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec import Struct

from gateway.answers.answer import Answer
from gateway.answers.attempts import Attempts
from gateway.answers.choices import Choice, ChoicesOutput
from gateway.answers.run_scope import RunScope
from gateway.answers.server_tool_loop import ServerToolLoop
from gateway.base.deltas import Delta
from gateway.base.errors import GatewayError, RateLimited
from gateway.generation.error_params import ApiParams
from gateway.generation.generation import Generation, GenerationSettings
from gateway.generation.generator import Generator
from gateway.generation.usage import ExpectedTokens, expected_tokens
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import (
    AnswerWriter,
    CallWriter,
    FinishReason,
    GenerationRequest,
    Outcome,
    ToolResult,
)
from gateway.services import Services
from gateway.tools.toolset import Toolset


class PreparedGeneration(Struct, frozen=True, kw_only=True):
    """A plugin API's request, planned for one model, with a first generation that the engine has accepted."""

    model: ServedModel
    settings: GenerationSettings
    first: Generation
    toolset: Toolset
    prompt_tokens: int


class ApiOutput(ChoicesOutput):
    """The output of a plugin API's answer."""

    def __init__(
        self,
        request: GenerationRequest,
        prepared: PreparedGeneration,
        services: Services,
        scope: RunScope,
        writer: AnswerWriter,
    ) -> None:
        super().__init__(prepared.model, scope)
        self.params = ApiParams(request)
        self.writer = writer
        self._request = request
        self._prepared = prepared
        self._services = services

    async def prepare(self) -> ExpectedTokens:
        request, prepared, first = self._request, self._prepared, self._prepared.first
        generator = Generator(prepared.model, prepared.settings, self._services.metrics)
        tools = None
        if prepared.toolset.bound_tools:
            tools = ServerToolLoop(prepared.toolset, self._services, generator)
        choice = Choice(generator, max_turns=request.max_turns, max_uses=request.max_uses)
        choice.begin(first, _ApiChoiceWriter(self.writer, first, tools), tools)
        self.take([choice])
        return expected_tokens((first.request,), first.sequences())

    def trailer(self) -> bytes:
        return b""

    def failed(self, error: GatewayError) -> bytes:
        return b""  # the route lets the writer report it, if a part was sent


ApiAnswer: TypeAlias = Answer[PreparedGeneration, bytes, ApiOutput]


def api_answer(
    request: GenerationRequest,
    prepared: PreparedGeneration,
    services: Services,
    attempts: Attempts[PreparedGeneration] | None,
    new_writer: Callable[[PreparedGeneration], AnswerWriter],
    *,
    api: str,
) -> ApiAnswer:
    """Return the answer to a prepared request. `new_writer` is called for each plan that the answer is begun with.
    `api` is the short name of the API. Takes a place in the model's queue: raises `RateLimited` if it is full and no other model is
    left."""
    scope = RunScope(services, name="a completion", api=api)

    def output_of(prepared: PreparedGeneration, before: ApiOutput | None) -> ApiOutput:
        return ApiOutput(request, prepared, services, scope, new_writer(prepared))

    answer: ApiAnswer = Answer(prepared, services, scope, output_of, attempts)
    first = prepared.first
    try:
        scope.reserve(prepared.model, expected_tokens((first.request,), first.sequences()))
    except RateLimited:
        if not answer.may_change:
            raise
    return answer


class _ApiChoiceWriter:
    """Writes the choice by the API's `AnswerWriter`. Implements `gateway.answers.choices.ChoiceWriter`."""

    def __init__(
        self, writer: AnswerWriter, first: Generation, tools: ServerToolLoop | None
    ) -> None:
        self.feed = writer.feed
        self._writer = writer
        self._first = first
        self._tools = tools
        self._reason: FinishReason = "stop"

    @property
    def cut_off(self) -> bool:
        return self._reason in ("length", "content_filter")

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        self._reason = reason
        return self._writer.end(held, reason)

    def called(self, result: ToolResult) -> bytes:
        return self._writer.called(result) if isinstance(self._writer, CallWriter) else b""

    def finish(self, generator: Generator) -> bytes:
        return self._writer.finish(
            Outcome(
                reason=self._reason,
                stop_reason=generator.stop_reason,
                usage=generator.tokens.usage(),
                context_full=self._context_full(generator),
                paused=self._tools is not None and self._tools.paused,
            )
        )

    def _context_full(self, generator: Generator) -> bool:
        limit = generator.model.info.max_model_len
        wanted = self._first.request.sampling.max_tokens
        if self._reason != "length" or limit is None or wanted == generator.tokens.output:
            return False
        return generator.context >= limit - 1  # engines may reserve one position
