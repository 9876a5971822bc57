"""What fronts use of the gateway: prompts, counts, and answers that their own writers write."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from gateway.errors import InvalidRequest, Unsupported
from gateway.loop.choices import AnswerRun
from gateway.loop.faults import Places, tool_places
from gateway.loop.front_run import WrittenChoice
from gateway.loop.front_tools import asks_for_tools, front_toolset
from gateway.loop.generation import Generation, GenerationSettings, Generator
from gateway.loop.sampling import with_defaults
from gateway.loop.served_tools import ServedTools
from gateway.protocols import (
    AnswerWriter,
    AsgiApp,
    Ask,
    ListedModel,
    OfferedTool,
    TokensPrompt,
    Turn,
)
from gateway.routes.front_answers import StreamedAnswer, WholeAnswer
from gateway.serving.served import ServedModel, Services
from gateway.tools.toolset import Toolset


class PreparedAnswer:
    """Satisfies `gateway.protocols.Answer`."""

    def __init__(
        self,
        model: ServedModel,
        settings: GenerationSettings,
        first: Generation,
        toolset: Toolset,
        ask: Ask,
        services: Services,
    ) -> None:
        self._model = model
        self._settings = settings
        self._first = first
        self._toolset = toolset
        self._ask = ask
        self._services = services

    @property
    def model(self) -> str:
        return self._model.name

    @property
    def prompt_tokens(self) -> int:
        prompt = self._first.request.prompt
        return len(prompt.token_ids) if isinstance(prompt, TokensPrompt) else 0

    @property
    def served(self) -> Mapping[str, OfferedTool]:
        return {
            name: OfferedTool(
                server_label=self._toolset.roles[name].server_label, tool=runnable.tool
            )
            for name, runnable in self._toolset.served.items()
        }

    def stream(
        self,
        writer: AnswerWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "text/event-stream; charset=utf-8",
        idle_seconds: float | None = None,
    ) -> AsgiApp:
        return StreamedAnswer(
            self._run(writer),
            writer,
            headers=headers,
            content_type=content_type,
            idle_seconds=idle_seconds,
        )

    def whole(
        self,
        writer: AnswerWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "application/json",
    ) -> AsgiApp:
        return WholeAnswer(self._run(writer), headers=headers, content_type=content_type)

    def _run(self, writer: AnswerWriter) -> AnswerRun:
        services = self._services
        generator = Generator(self._model, self._settings, services.metrics)
        choice = WrittenChoice(
            generator,
            self._first,
            writer,
            ServedTools(self._toolset, services, generator),
            max_turns=self._ask.max_turns,
            max_uses=self._ask.max_uses,
        )
        return AnswerRun(self._model, services, [choice])


class FrontGateway:
    """Satisfies `gateway.protocols.Gateway`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def models(self) -> Sequence[ListedModel]:
        return [_listed(model) for model in self._services.models.values()]

    def model(self, name: str) -> ListedModel:
        return _listed(self._services.known_model(name))

    def tool_types(self, model: str | None) -> Collection[str]:
        offered = self._services.offered_tools[self._services.model(model).name]
        return {*offered.by_type, *offered.choices}

    async def prepare(self, ask: Ask) -> PreparedAnswer:
        services = self._services
        model = services.model(ask.model)
        settings = _settings(ask, model)
        generator = Generator(model, settings, services.metrics)
        toolset = await front_toolset(ask, model, services)
        first = await generator.fitting(_turn(ask, model, toolset))
        return PreparedAnswer(model, settings, first, toolset, ask, services)

    async def count_tokens(self, ask: Ask) -> int:
        services = self._services
        model = services.model(ask.model)
        generator = Generator(model, _settings(ask, model), services.metrics)
        toolset = await front_toolset(ask, model, services)
        prompt = (await generator.prepare(_turn(ask, model, toolset))).request.prompt
        if not isinstance(prompt, TokensPrompt):
            raise Unsupported(
                f"The engine of '{model.name}' counts its tokens itself; they are not known here.",
                param="model",
            )
        return len(prompt.token_ids)

    def seal(self, text: str, owner: str | None) -> str:
        return self._services.sealer.seal(text, owner)

    def unseal(self, sealed: str, owner: str | None) -> str | None:
        try:
            return self._services.sealer.open(sealed, owner, "")
        except InvalidRequest:
            return None

    def unknown_parameters(self, path: str) -> None:
        self._services.metrics.unknown_parameters(path)


def _listed(model: ServedModel) -> ListedModel:
    return ListedModel(
        name=model.name,
        created=model.created,
        max_model_len=model.info.max_model_len,
        description=model.config.description or model.info.description,
    )


def _settings(ask: Ask, model: ServedModel) -> GenerationSettings:
    return GenerationSettings(
        sampling=with_defaults(ask.sampling, model),
        cache_salt=ask.cache_salt,
        priority=ask.priority,
        trace_headers=ask.trace_headers,
        size=ask.size,
        places=Places(tools=tool_places(ask.tools)),
    )


def _turn(ask: Ask, model: ServedModel, toolset: Toolset) -> Turn:
    turn = ask.turn
    if asks_for_tools(ask):
        turn = msgspec.structs.replace(turn, tools=toolset.definitions, tool_choice=toolset.choice)
    configured = model.config.chat_template_kwargs
    if not configured:
        return turn
    kwargs = {**configured, **turn.chat_template_kwargs}
    return msgspec.structs.replace(turn, chat_template_kwargs=kwargs)
