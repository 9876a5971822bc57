"""Running one answer of Completions, with its choices in parallel."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import UNSET

from gateway.assembly.logprobs import LogprobAligner
from gateway.completions.plan import PreparedCompletion
from gateway.completions.writer import CompletionWriter, Echo
from gateway.loop.attempts import Attempts
from gateway.loop.choices import ByteSink, ChoicesRun, completion_usage
from gateway.loop.chunks import chunk_head, last_chunk
from gateway.loop.error_params import CompletionParams
from gateway.loop.generation import (
    Generation,
    GenerationSettings,
    variant,
)
from gateway.loop.generator import Generator
from gateway.loop.observer import OutputObserver
from gateway.loop.usage import ExpectedTokens, expected_tokens
from gateway.protocols import (
    Tokenizer,
    TokensPrompt,
)
from gateway.runtime.served_model import ServedModel
from gateway.runtime.services import Services
from gateway.wire.completions import Completion, CompletionRequest
from gateway.wire.ids import new_id


class TextChoice:
    """One choice, with its own generator and text writer."""

    def __init__(
        self,
        index: int,
        request: CompletionRequest,
        model: ServedModel,
        services: Services,
        first: Generation,
        head: bytes,
        tokenizer: Tokenizer,
        *,
        text: str | None,
        counts_prompt: bool,
        settings: GenerationSettings,
    ) -> None:
        """`text`: the prompt's, if it is echoed."""
        options = request.stream_options
        logprobs = request.logprobs is not None
        shows_ids = bool(request.return_tokens_as_token_ids)
        aligner = LogprobAligner(shows_ids=shows_ids, every=True) if logprobs else None
        token_ids: list[int] | None = [] if request.return_token_ids else None
        prompt = first.request.prompt
        assert isinstance(prompt, TokensPrompt), "prompts are token ids here"
        self._request = request
        self._mute = request.max_tokens == 0
        includes_usage = bool(request.stream and options and options.include_usage)
        continuous = bool(includes_usage and options and options.continuous_usage_stats)
        echo = None
        if text is not None:
            first_token = tokenizer.decode(prompt.token_ids[:1])
            first_shown = f"token_id:{prompt.token_ids[0]}" if shows_ids else first_token
            echo = Echo(text, first_token, first_shown, shows_ids=shows_ids)
        self.observer = OutputObserver(
            aligner=aligner,
            token_ids=token_ids,
            counts_output=not self._mute,
            shows_prompt=request.prompt_logprobs is not None and not request.stream,
            echo=echo.read if echo is not None and logprobs else None,
        )
        self.writer = CompletionWriter(
            index,
            head=head if request.stream else None,
            aligner=aligner,
            echo=echo,
            mute=self._mute,
            token_ids=token_ids,
            prompt_token_ids=prompt.token_ids,
            includes_usage=includes_usage,
            usage_so_far=self.observer.usage if continuous else None,
        )
        self._first = first
        self.generator = Generator(
            model,
            settings,
            services.metrics,
            aligner=aligner,
            observer=self.observer,
        )
        self.generator.counts_prompt = counts_prompt

    @property
    def cut_off(self) -> bool:
        return self.writer.finish_reason != "stop"

    async def run(self, sink: ByteSink) -> bytes:
        with CompletionParams(self._request):
            last = await self.generator.run(self._first, self.writer, sink)
        if self._mute:
            self.generator.tokens.output = 0
        return last + self.writer.finish(self.generator.stop_reason)


class CompletionRun(ChoicesRun[PreparedCompletion]):
    """One prepared answer."""

    def __init__(
        self,
        request: CompletionRequest,
        services: Services,
        prepared: PreparedCompletion,
        attempts: Attempts[PreparedCompletion] | None = None,
    ) -> None:
        self._request = request
        self._id = new_id("cmpl-")
        self._created = int(time.time())
        super().__init__(services, prepared, attempts, api="completions")

    def take(
        self, prepared: PreparedCompletion
    ) -> tuple[ServedModel, Sequence[TextChoice], ExpectedTokens]:
        request, model = self._request, prepared.model
        self._head = chunk_head(
            self._id, "text_completion", self._created, model.name, None, model.fingerprint
        )
        n = request.n or 1
        self._made = [
            TextChoice(
                number * n + index,
                request,
                model,
                self.services,
                variant(generation, index),
                self._head,
                prepared.tokenizer,
                text=prepared.texts[number],
                counts_prompt=index == 0,
                settings=prepared.settings,
            )
            for number, generation in enumerate(prepared.generations)
            for index in range(n)
        ]
        self.scope.stats.response_id = self._id
        return (
            model,
            self._made,
            expected_tokens(
                (each.request for each in prepared.generations),
                max(each.sequences(n) for each in prepared.generations),
            ),
        )

    def trailer(self) -> bytes:
        options = self._request.stream_options
        return last_chunk(
            self._head,
            completion_usage(self.usage()) if options and options.include_usage else None,
            self.times() if self._request.timings_per_token else None,
        )

    def answer(self) -> Completion:
        shows_prompt = self._request.prompt_logprobs is not None
        times = self.times() if self._request.timings_per_token else None
        return Completion(
            id=self._id,
            created=self._created,
            model=self.model.name,
            system_fingerprint=self.model.fingerprint,
            choices=[
                choice.writer.choice(choice.observer.shown_prompt if shows_prompt else None)
                for choice in self._made
            ],
            usage=completion_usage(self.usage()),
            timings=UNSET if times is None else times.timings,
            metrics=UNSET if times is None else times.metrics,
            kv_transfer_params=next(
                (told for each in self._made if (told := each.observer.kv_transfer_params)), UNSET
            ),
        )
