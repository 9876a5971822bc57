"""Running one answer of Chat Completions, with its choices in parallel."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct

from gateway.assembly.logprobs import LogprobAligner
from gateway.chat.assembler import ChoiceAssembler
from gateway.chat.chunks import ChunkWriter
from gateway.chat.citations import AnnotatedWriter, CitedWriter
from gateway.chat.message import ChoiceCollector
from gateway.chat.plan import ChatPlan
from gateway.chat.tee import TeeWriter
from gateway.errors import StoreUnavailable, Unsupported
from gateway.loop.attempts import Attempts
from gateway.loop.choices import ByteSink, ChoicesRun, completion_usage
from gateway.loop.chunks import chunk_head, last_chunk
from gateway.loop.generation import Generation, variant
from gateway.loop.generator import Generator
from gateway.loop.observer import OutputObserver
from gateway.loop.server_tool_loop import ServerToolLoop
from gateway.loop.usage import ExpectedTokens, expected_tokens
from gateway.protocols import TokensPrompt, ToolResult
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.tools.roles import with_unknown
from gateway.wire.chat import ChatCompletion
from gateway.wire.ids import new_id
from gateway.wire.response import ResponseStatus

logger = logging.getLogger("gateway.chat.assembler")


class ChatChoice:
    """One choice, with its own generator, parser, assembler and tool sessions."""

    def __init__(
        self,
        index: int,
        plan: ChatPlan,
        services: Services,
        first: Generation,
        head: bytes,
        *,
        gathers: bool,
    ) -> None:
        """`gathers`: whether the complete choice is needed at the end, as it is without streaming."""
        style = plan.style
        self._plan = plan
        self._first = first
        aligner = LogprobAligner(shows_ids=style.shows_ids) if style.logprobs else None
        token_ids: list[int] | None = [] if style.token_ids else None
        self.observer: OutputObserver | None = None
        if (
            style.token_ids
            or style.continuous_usage
            or style.prompt_logprobs
            or plan.settings.kv_transfer_params
        ):
            self.observer = OutputObserver(
                aligner=aligner,
                token_ids=token_ids,
                shows_prompt=style.prompt_logprobs and gathers and index == 0,
            )
        self.message: ChoiceCollector | None = None
        writer: AnnotatedWriter
        if style.stream:
            writer = chunks = ChunkWriter(
                head,
                index,
                reasoning_fields=style.reasoning_fields,
                logprobs=style.logprobs,
                legacy=style.legacy,
                token_ids=token_ids,
                includes_usage=style.includes_usage,
                usage_so_far=self.observer.usage
                if self.observer and style.continuous_usage
                else None,
                first=_prompt_token_ids(first) if style.token_ids and index == 0 else b"",
            )
        if gathers:
            message = self.message = ChoiceCollector(
                index,
                reasoning_fields=style.reasoning_fields,
                logprobs=style.logprobs,
                legacy=style.legacy,
                token_ids=None if style.stream else token_ids,
            )
            writer = TeeWriter(chunks, message) if style.stream else message
        self.generator = Generator(
            plan.model,
            plan.settings,
            services.metrics,
            aligner=aligner,
            observer=self.observer,
            made_at=plan.created,
        )
        self.generator.counts_prompt = index == 0
        self._tools = ServerToolLoop(plan.toolset, services, self.generator)
        self._cited: CitedWriter | None = None
        if self._tools.offered or plan.model.cites:
            self._cited = CitedWriter(writer)
        self._assembler = ChoiceAssembler(
            self._cited or writer,
            roles=with_unknown(plan.toolset.roles),
            new_id=new_id,
            aligner=aligner,
            shows_reasoning=bool(style.reasoning_fields),
            calls_finish=style.calls_finish,
            lead=style.lead,
            citing=self._cited,
        )

    @property
    def cut_off(self) -> bool:
        return self._assembler.finish_reason in ("length", "content_filter")

    async def run(self, sink: ByteSink) -> bytes:
        assembler = self._assembler
        with self._plan.params:
            if self._cited is not None and self._tools.offered:
                last = await self._tools.run(
                    self._first, _CitingChoice(assembler, self._cited), sink
                )
            else:
                together = not self._plan.style.stream
                last = await self.generator.run(self._first, assembler, sink, together=together)
        end = assembler.finish(self.generator.stop_reason)
        if last and self._plan.to_store is not None:
            await sink(last)  # now: where the answer cannot be stored, its end is not sent
            return end
        return last + end


class _CitingChoice:
    """A choice in which the gateway runs tools. Their calls are not shown, but their sources can be cited. Implements
    `gateway.loop.server_tool_loop.ToolAnswerWriter`."""

    def __init__(self, assembler: ChoiceAssembler, cited: CitedWriter) -> None:
        self.feed = assembler.feed
        self.end = assembler.end
        self._cited = cited

    def called(self, result: ToolResult) -> bytes:
        return self._cited.called(result)


class PreparedChat(Struct, frozen=True):
    """A plan, and its first generation, which the engine has accepted."""

    plan: ChatPlan
    first: Generation


class ChatRun(ChoicesRun[PreparedChat]):
    """One prepared answer."""

    def __init__(
        self,
        prepared: PreparedChat,
        services: Services,
        attempts: Attempts[PreparedChat] | None = None,
    ) -> None:
        self._observers = bool(services.hook.gateway_chat_finished.get_hookimpls())
        super().__init__(services, prepared, attempts, api="chat")

    def take(
        self, prepared: PreparedChat
    ) -> tuple[ServedModel, Sequence[ChatChoice], ExpectedTokens]:
        plan, first = prepared.plan, prepared.first
        self._plan = plan
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
        self._first = first
        gathers = not plan.style.stream or plan.to_store is not None or self._observers
        self._chat_choices = [
            ChatChoice(
                index, plan, self.services, variant(first, index), self._head, gathers=gathers
            )
            for index in range(plan.n)
        ]
        self.scope.stats.response_id = plan.id
        return (
            plan.model,
            self._chat_choices,
            expected_tokens((first.request,), first.sequences(plan.n)),
        )

    def trailer(self) -> bytes:
        style = self._plan.style
        return last_chunk(
            self._head,
            completion_usage(self.usage()) if style.includes_usage else None,
            self.times() if style.times else None,
        )

    async def keep(self) -> None:
        store, order = self.services.store, self._plan.to_store
        if store is None or order is None:
            return
        try:
            await store.put_completion(await order.record(self.answer()))
        except StoreUnavailable as error:
            logger.warning("%s could not be stored: %s", self._plan.id, error.message)
            self.scope.error = error

    def notify_plugins(self, status: ResponseStatus) -> None:
        if not self._observers:
            return
        try:
            self.services.hook.gateway_chat_finished(
                completion=self.answer(), status=status, error=self.scope.error
            )
        except Exception:
            # A hook's failure must not affect the client.
            logger.exception("a gateway_chat_finished hook failed")

    def answer(self) -> ChatCompletion:
        """The completion with its finished choices; all of them if `run` succeeded."""
        plan, style = self._plan, self._plan.style
        choices = [
            choice.message.choice()
            for choice in self._chat_choices
            if choice.message is not None and choice.message.finished
        ]
        prompt, observer = self._first.request.prompt, self._chat_choices[0].observer
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


async def prepare_chat(plan: ChatPlan, services: Services) -> PreparedChat:
    """Render the prompt and let the engine check it. Raises a `GatewayError` that is to be answered with an HTTP
    status."""
    with plan.params:
        first = await Generator(
            plan.model, plan.settings, services.metrics, made_at=plan.created
        ).fitting(plan.turn)
    if plan.settings.policies is not None:
        plan.settings.policies.check_shown(plan.settings.sampling, token_ids=plan.style.token_ids)
    if plan.style.token_ids and not isinstance(first.request.prompt, TokensPrompt):
        raise Unsupported(
            "The engine of this model does not report token ids. Leave the parameter out.",
            param="return_token_ids",
        )
    if plan.to_store is not None and services.store is not None:
        await services.store.health()
    return PreparedChat(plan, first)


def _prompt_token_ids(generation: Generation) -> bytes:
    prompt = generation.request.prompt
    assert isinstance(prompt, TokensPrompt), "prepare_chat has looked"
    return b',"prompt_token_ids":%b' % msgspec.json.encode(list(prompt.token_ids))
