"""Running one answer of a plugin's API."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from gateway.loop.api_choice import ApiChoice
from gateway.loop.attempts import Attempts
from gateway.loop.choices import AnswerRun
from gateway.loop.generation import Generation, GenerationSettings
from gateway.loop.generator import Generator
from gateway.loop.server_tool_loop import ServerToolLoop
from gateway.loop.usage import ExpectedTokens, expected_tokens
from gateway.protocols import AnswerWriter, GenerationRequest
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.tools.toolset import Toolset


class PreparedGeneration(Struct, frozen=True, kw_only=True):
    """A request of an API, planned for one model, with a first generation that the engine has accepted."""

    model: ServedModel
    settings: GenerationSettings
    first: Generation
    toolset: Toolset
    prompt_tokens: int


class ApiRun(AnswerRun[PreparedGeneration]):
    """One prepared answer."""

    writer: AnswerWriter

    def __init__(
        self,
        request: GenerationRequest,
        services: Services,
        prepared: PreparedGeneration,
        attempts: Attempts[PreparedGeneration] | None,
        new_writer: Callable[[PreparedGeneration], AnswerWriter],
        *,
        api: str,
    ) -> None:
        """`new_writer` is called for each plan that the answer is begun with."""
        self._request = request
        self._new_writer = new_writer
        super().__init__(services, prepared, attempts, api=api)

    def take(
        self, prepared: PreparedGeneration
    ) -> tuple[ServedModel, Sequence[ApiChoice], ExpectedTokens]:
        self.writer = self._new_writer(prepared)
        generator = Generator(prepared.model, prepared.settings, self.services.metrics)
        choice = ApiChoice(
            self._request,
            generator,
            prepared.first,
            self.writer,
            ServerToolLoop(prepared.toolset, self.services, generator),
        )
        first = prepared.first
        return prepared.model, [choice], expected_tokens((first.request,), first.sequences())
