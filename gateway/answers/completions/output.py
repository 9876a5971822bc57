"""The `Output` of Completions: the choices of each prompt, made with one model."""

from __future__ import annotations

import time
from typing import TypeAlias

from msgspec import UNSET

from gateway.answers.answer import Answer
from gateway.answers.attempts import Attempts
from gateway.answers.choices import Choice, ChoicesOutput
from gateway.answers.chunks import chunk_head, failed_chunk, last_chunk
from gateway.answers.completions.plan import PreparedCompletion
from gateway.answers.completions.writer import CompletionWriter, Echo
from gateway.answers.observer import OutputObserver
from gateway.answers.run_scope import RunScope
from gateway.base.errors import GatewayError
from gateway.generation.error_params import CompletionParams
from gateway.generation.generation import variant
from gateway.generation.generator import Generator
from gateway.generation.usage import ExpectedTokens, completion_usage, expected_tokens
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import TokensPrompt, ToolResult
from gateway.services import Services
from gateway.wire.completions import Completion, CompletionRequest
from gateway.wire.ids import new_id


class CompletionOutput(ChoicesOutput):
    """The answer to a Completions request, as chunks or as one object."""

    def __init__(
        self,
        request: CompletionRequest,
        prepared: PreparedCompletion,
        services: Services,
        scope: RunScope,
        answer_id: str,
    ) -> None:
        super().__init__(prepared.model, scope)
        self.params = CompletionParams(request)
        self._request = request
        self._prepared = prepared
        self._services = services
        self._id = answer_id
        self._created = int(time.time())
        self._head = chunk_head(
            answer_id,
            "text_completion",
            self._created,
            prepared.model.name,
            None,
            prepared.model.fingerprint,
        )
        scope.stats.response_id = answer_id

    async def prepare(self) -> ExpectedTokens:
        request, prepared = self._request, self._prepared
        n = request.n or 1
        self._text_choices = [
            TextChoice(number * n + index, request, prepared, self._services, number, self._head)
            for number in range(len(prepared.generations))
            for index in range(n)
        ]
        self.take(self._text_choices)
        return expected_tokens(
            (each.request for each in prepared.generations),
            max(each.sequences(n) for each in prepared.generations),
        )

    def trailer(self) -> bytes:
        if not self._request.stream:
            return b""
        options = self._request.stream_options
        return last_chunk(
            self._head,
            completion_usage(self.usage()) if options and options.include_usage else None,
            self.times() if self._request.timings_per_token else None,
        )

    def failed(self, error: GatewayError) -> bytes:
        return failed_chunk(error) if self._request.stream else b""

    def answer(self) -> Completion:
        """Return the whole answer, after it was made."""
        shows_prompt = self._request.prompt_logprobs is not None
        times = self.times() if self._request.timings_per_token else None
        return Completion(
            id=self._id,
            created=self._created,
            model=self.model.name,
            system_fingerprint=self.model.fingerprint,
            choices=[
                choice.text_writer.choice(choice.observer.shown_prompt if shows_prompt else None)
                for choice in self._text_choices
            ],
            usage=completion_usage(self.usage()),
            timings=UNSET if times is None else times.timings,
            metrics=UNSET if times is None else times.metrics,
            kv_transfer_params=next(
                (told for each in self._text_choices if (told := each.observer.kv_transfer_params)),
                UNSET,
            ),
        )


CompletionAnswer: TypeAlias = Answer[PreparedCompletion, bytes, CompletionOutput]


def completion_answer(
    request: CompletionRequest,
    prepared: PreparedCompletion,
    services: Services,
    attempts: Attempts[PreparedCompletion] | None = None,
) -> CompletionAnswer:
    """Return the answer to a request whose prompts the engine has accepted. `attempts` provides the plans of the
    remaining models."""
    scope = RunScope(services, name="a completion", api="completions")
    answer_id = new_id("cmpl-")

    def output_of(
        prepared: PreparedCompletion, before: CompletionOutput | None
    ) -> CompletionOutput:
        return CompletionOutput(request, prepared, services, scope, answer_id)

    return Answer(prepared, services, scope, output_of, attempts)


class TextChoice(Choice):
    """One choice, with its own generator and text writer."""

    def __init__(
        self,
        index: int,
        request: CompletionRequest,
        prepared: PreparedCompletion,
        services: Services,
        number: int,
        head: bytes,
    ) -> None:
        """`number` is the index of the prompt. `index` is the index of the choice among the choices of all prompts."""
        first, text, tokenizer = (
            prepared.generations[number],
            prepared.texts[number],
            prepared.tokenizer,
        )
        n = request.n or 1
        options = request.stream_options
        logprobs = request.logprobs is not None
        shows_ids = bool(request.return_tokens_as_token_ids)
        aligner = LogprobAligner(shows_ids=shows_ids, every=True) if logprobs else None
        token_ids: list[int] | None = [] if request.return_token_ids else None
        prompt = first.request.prompt
        assert isinstance(prompt, TokensPrompt), "prompts are token ids here"
        mute = request.max_tokens == 0
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
            counts_output=not mute,
            shows_prompt=request.prompt_logprobs is not None and not request.stream,
            echo=echo.read if echo is not None and logprobs else None,
        )
        self.text_writer = CompletionWriter(
            index,
            head=head if request.stream else None,
            aligner=aligner,
            echo=echo,
            mute=mute,
            token_ids=token_ids,
            prompt_token_ids=prompt.token_ids,
            includes_usage=includes_usage,
            usage_so_far=self.observer.usage if continuous else None,
        )
        generator = Generator(
            prepared.model,
            prepared.settings,
            services.metrics,
            aligner=aligner,
            observer=self.observer,
        )
        generator.counts_prompt = index % n == 0
        super().__init__(generator)
        self.begin(variant(first, index % n), _TextWriter(self.text_writer, mute=mute))


class _TextWriter:
    """Writes a choice of text. Implements `gateway.answers.choices.ChoiceWriter`."""

    def __init__(self, writer: CompletionWriter, *, mute: bool) -> None:
        """`mute`: whether the output is neither shown nor counted."""
        self.feed = writer.feed
        self.end = writer.end
        self._writer = writer
        self._mute = mute

    @property
    def cut_off(self) -> bool:
        return self._writer.finish_reason != "stop"

    def called(self, result: ToolResult) -> bytes:
        raise AssertionError("the API has no tools")

    def finish(self, generator: Generator) -> bytes:
        if self._mute:
            generator.tokens.output = 0
        return self._writer.finish(generator.stop_reason)
