"""The `Output` of Chat Completions: the choices of an answer, made with the model of one plan."""

from __future__ import annotations

import logging
from typing import TypeAlias

import msgspec
from msgspec import UNSET

from gateway.answers.answer import Answer
from gateway.answers.attempts import Attempts
from gateway.answers.chat.assembler import ChoiceAssembler
from gateway.answers.chat.chunks import ChunkWriter
from gateway.answers.chat.citations import AnnotatedWriter, CitedWriter
from gateway.answers.chat.message import ChoiceCollector
from gateway.answers.chat.plan import ChatPlan
from gateway.answers.chat.tee import TeeWriter
from gateway.answers.choices import Choice, ChoicesOutput
from gateway.answers.chunks import chunk_head, failed_chunk, last_chunk
from gateway.answers.observer import OutputObserver
from gateway.answers.run_scope import RunScope
from gateway.answers.server_tool_loop import ServerToolLoop
from gateway.base.errors import GatewayError, StoreUnavailable, Unsupported
from gateway.generation.generation import Generation, variant
from gateway.generation.generator import Generator
from gateway.generation.usage import ExpectedTokens, completion_usage, expected_tokens
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import TokensPrompt, ToolResult
from gateway.services import Services
from gateway.tools.roles import with_unknown
from gateway.wire.chat import ChatCompletion
from gateway.wire.ids import new_id

logger = logging.getLogger("gateway.answers.chat.output")


class ChatOutput(ChoicesOutput):
    """The answer to a chat request, as chunks or as one message."""

    def __init__(self, plan: ChatPlan, services: Services, scope: RunScope) -> None:
        super().__init__(plan.model, scope)
        self.plan = plan
        self.params = plan.params
        self.stores = plan.to_store is not None
        self._services = services
        self._observers = bool(services.hook.gateway_chat_finished.get_hookimpls())
        self._head = b""
        if plan.style.stream:
            self._head = chunk_head(
                plan.id,
                "chat.completion.chunk",
                plan.created,
                plan.model.name,
                plan.style.service_tier,
                plan.model.fingerprint,
            )
        self._chat_choices: list[ChatChoice] = []
        self._first: Generation | None = None
        scope.stats.response_id = plan.id

    async def prepare(self) -> ExpectedTokens:
        plan, services = self.plan, self._services
        gathers = not plan.style.stream or self.stores or self._observers
        self._chat_choices = choices = [
            ChatChoice(index, plan, services, gathers=gathers) for index in range(plan.n)
        ]
        with plan.params:
            first = await choices[0].generator.fitting(plan.turn)
        self._check_shown(first)
        if self.stores and services.store is not None:
            await services.store.health()
        for index, choice in enumerate(choices):
            choice.begin_chat(variant(first, index), self._head)
        self._first = first
        self.take(choices)
        return expected_tokens((first.request,), first.sequences(plan.n))

    def _check_shown(self, first: Generation) -> None:
        """Raise `Unsupported` for parameters that request data which the answer cannot show."""
        settings, style = self.plan.settings, self.plan.style
        if settings.policies is not None:
            settings.policies.check_shown(settings.sampling, token_ids=style.token_ids)
        if style.token_ids and not isinstance(first.request.prompt, TokensPrompt):
            raise Unsupported(
                "The engine of this model does not report token ids. Leave the parameter out.",
                param="return_token_ids",
            )

    async def keep(self, scope: RunScope) -> bool:
        store, order = self._services.store, self.plan.to_store
        if store is None or order is None or self.status not in ("completed", "incomplete"):
            return True
        try:
            await store.put_completion(await order.record(self.answer()))
        except StoreUnavailable as error:
            logger.warning("%s could not be stored: %s", self.plan.id, error.message)
            self._last = b""  # the end of an answer that is not stored is not sent
            scope.error = error
            self.fail(error)
        return True

    def trailer(self) -> bytes:
        style = self.plan.style
        if not style.stream:
            return b""
        return last_chunk(
            self._head,
            completion_usage(self.usage()) if style.includes_usage else None,
            self.times() if style.times else None,
        )

    def failed(self, error: GatewayError) -> bytes:
        return failed_chunk(error) if self.plan.style.stream else b""

    def report(self, error: GatewayError | None) -> None:
        if not self._observers:
            return
        try:
            self._services.hook.gateway_chat_finished(
                completion=self.answer(), status=self.status, error=error
            )
        except Exception:
            # A hook's failure must not affect the client.
            logger.exception("a gateway_chat_finished hook failed")

    def answer(self) -> ChatCompletion:
        """Return the completion with its finished choices. If the answer succeeded, these are all choices."""
        plan, style = self.plan, self.plan.style
        choices = [
            choice.message.choice()
            for choice in self._chat_choices
            if choice.message is not None and choice.message.finished
        ]
        prompt = None if self._first is None else self._first.request.prompt
        observer = self._chat_choices[0].observer if self._chat_choices else None
        times = self.times() if style.times else None
        return ChatCompletion(
            id=plan.id,
            created=plan.created,
            model=plan.model.name,
            choices=choices,
            usage=completion_usage(self.usage()),
            system_fingerprint=plan.model.fingerprint,
            service_tier=style.service_tier or "default",  # type: ignore[arg-type]  # as it was decoded
            prompt_logprobs=(
                observer.shown_prompt if observer and style.prompt_logprobs else UNSET
            ),
            prompt_token_ids=(
                list(prompt.token_ids)
                if style.token_ids and isinstance(prompt, TokensPrompt)
                else UNSET
            ),
            timings=UNSET if times is None else times.timings,
            metrics=UNSET if times is None else times.metrics,
            kv_transfer_params=(
                observer.kv_transfer_params
                if observer and observer.kv_transfer_params is not None
                else UNSET
            ),
        )


ChatAnswer: TypeAlias = Answer[ChatPlan, bytes, ChatOutput]


def chat_answer(
    plan: ChatPlan, services: Services, attempts: Attempts[ChatPlan] | None = None
) -> ChatAnswer:
    """Return the answer to a chat request, not prepared yet. `attempts` provides the plans of the remaining models."""
    scope = RunScope(services, name="a completion", api="chat")
    return Answer(
        plan, services, scope, lambda plan, before: ChatOutput(plan, services, scope), attempts
    )


class ChatChoice(Choice):
    """One choice, with its own generator, parser, assembler and tool sessions."""

    def __init__(self, index: int, plan: ChatPlan, services: Services, *, gathers: bool) -> None:
        """`gathers`: whether the complete choice is collected, which is always the case without streaming."""
        style = plan.style
        self._index = index
        self._plan = plan
        self._services = services
        self._gathers = gathers
        self._aligner = LogprobAligner(shows_ids=style.shows_ids) if style.logprobs else None
        self._token_ids: list[int] | None = [] if style.token_ids else None
        self.message: ChoiceCollector | None = None
        """Collects the whole choice, if `gathers`."""
        self.observer: OutputObserver | None = None
        if (
            style.token_ids
            or style.continuous_usage
            or style.prompt_logprobs
            or plan.settings.kv_transfer_params
        ):
            self.observer = OutputObserver(
                aligner=self._aligner,
                token_ids=self._token_ids,
                shows_prompt=style.prompt_logprobs and gathers and index == 0,
            )
        generator = Generator(
            plan.model,
            plan.settings,
            services.metrics,
            aligner=self._aligner,
            observer=self.observer,
            made_at=plan.created,
        )
        generator.counts_prompt = index == 0
        super().__init__(generator, together=not style.stream)

    def begin_chat(self, first: Generation, head: bytes) -> None:
        """Begin the choice with its `first` generation. `head` is the common beginning of all chunks."""
        plan, style = self._plan, self._plan.style
        writer = self._annotated_writer(first, head)
        tools = None
        if plan.toolset.bound_tools:
            tools = ServerToolLoop(plan.toolset, self._services, self.generator)
        cited = CitedWriter(writer) if tools is not None or plan.model.cites else None
        assembler = ChoiceAssembler(
            cited or writer,
            roles=with_unknown(plan.toolset.roles),
            new_id=new_id,
            aligner=self._aligner,
            shows_reasoning=bool(style.reasoning_fields),
            calls_finish=style.calls_finish,
            lead=style.lead,
            citing=cited,
        )
        self.begin(first, _AssembledChoice(assembler, cited), tools)

    def _annotated_writer(self, first: Generation, head: bytes) -> AnnotatedWriter:
        style, index = self._plan.style, self._index
        if self._gathers:
            self.message = ChoiceCollector(
                index,
                reasoning_fields=style.reasoning_fields,
                logprobs=style.logprobs,
                legacy=style.legacy,
                token_ids=None if style.stream else self._token_ids,
            )
            if not style.stream:
                return self.message
        chunks = ChunkWriter(
            head,
            index,
            reasoning_fields=style.reasoning_fields,
            logprobs=style.logprobs,
            legacy=style.legacy,
            token_ids=self._token_ids,
            includes_usage=style.includes_usage,
            usage_so_far=self.observer.usage if self.observer and style.continuous_usage else None,
            first=_prompt_token_ids(first) if style.token_ids and index == 0 else b"",
        )
        return chunks if self.message is None else TeeWriter(chunks, self.message)


class _AssembledChoice:
    """Writes a choice with its assembler. Calls of tools that the gateway runs are not shown, but their sources can be
    cited. Implements `gateway.answers.choices.ChoiceWriter`."""

    def __init__(self, assembler: ChoiceAssembler, cited: CitedWriter | None) -> None:
        self.feed = assembler.feed
        self.end = assembler.end
        self._assembler = assembler
        self._cited = cited

    @property
    def cut_off(self) -> bool:
        return self._assembler.finish_reason in ("length", "content_filter")

    def called(self, result: ToolResult) -> bytes:
        return b"" if self._cited is None else self._cited.called(result)

    def finish(self, generator: Generator) -> bytes:
        return self._assembler.finish(generator.stop_reason)


def _prompt_token_ids(generation: Generation) -> bytes:
    prompt = generation.request.prompt
    assert isinstance(prompt, TokensPrompt), "it was checked before"
    return b',"prompt_token_ids":%b' % msgspec.json.encode(list(prompt.token_ids))
