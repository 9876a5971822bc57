"""Data that an answer shows in addition to the parsed text: token ids, log probabilities and the usage so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gateway.generation.generation import Generation
from gateway.generation.usage import PromptCount, TokenCounter, completion_usage, total
from gateway.items.logprobs import LogprobAligner
from gateway.plugins.protocols import EngineOutput, TokenLogprob
from gateway.wire.chat import CompletionUsage, PromptLogprob
from gateway.wire.json_pieces import encode_pieces
from gateway.wire.large_bodies import threaded_if_many


class OutputObserver:
    """Receives the engine's outputs of one choice, before its parser. Implements
    `gateway.generation.generation_run.Observer`."""

    def __init__(
        self,
        *,
        aligner: LogprobAligner | None,
        token_ids: list[int] | None,
        counts_output: bool = True,
        shows_prompt: bool = False,
        echo: Callable[[Sequence[TokenLogprob | None]], None] | None = None,
    ) -> None:
        """`counts_output`: whether the output counts as usage; it does not if it is not shown. `shows_prompt`: whether
        the answer shows the prompt's log probabilities in vLLM's format. `echo` receives them if they are shown in
        another format; it may be called in a thread."""
        self._counts_output = counts_output
        self._shows_prompt = shows_prompt
        self._echo = echo
        self.shown_prompt: Any = []
        """The prompt's tokens as JSON, each with the most likely alternatives at its position, by token id (vLLM's
        format)."""
        self.kv_transfer_params: dict[str, Any] | None = None
        """The parameters that the engine's KV connector reported for the last generation."""
        self._aligner = aligner
        self._token_ids = token_ids
        self._prompt: PromptCount | None = None
        self._made = 0
        self._earlier = TokenCounter()

    def begin(self, generation: Generation) -> None:
        """Begin a generation. Its counts are added to the counts of earlier generations."""
        self._earlier = self._usage_so_far()
        self._prompt = PromptCount(generation.request)
        self._made = 0

    def see(self, output: EngineOutput) -> None:
        if self._aligner is not None:
            self._aligner.push(output)
        if self._token_ids is not None:
            self._token_ids += output.token_ids
        if output.kv_transfer_params is not None:
            self.kv_transfer_params = output.kv_transfer_params
        if self._prompt is not None:
            self._prompt.note(output)
        self._made += len(output.token_ids)

    async def see_prompt(self, scores: Sequence[TokenLogprob | None]) -> None:
        if self._shows_prompt or self._echo is not None:
            await threaded_if_many(scores, self._convert)

    def _convert(self, scores: Sequence[TokenLogprob | None]) -> None:
        if self._shows_prompt:
            self.shown_prompt = encode_pieces(scores, _prompt_logprob)
        if self._echo is not None:
            self._echo(scores)

    def usage(self) -> CompletionUsage:
        """Return the usage of this choice so far, over all its generations."""
        return completion_usage(self._usage_so_far().usage())

    def _usage_so_far(self) -> TokenCounter:
        current, prompt = TokenCounter(), self._prompt
        if prompt is not None:
            current.input, current.cached = prompt.prompt, prompt.cached
            if self._counts_output:
                current.output = prompt.output or self._made
        return total((self._earlier, current))


def _prompt_logprob(token: TokenLogprob | None) -> dict[int, PromptLogprob] | None:
    if token is None:
        return None
    found = {
        top.token_id: PromptLogprob(logprob=top.logprob, rank=rank, decoded_token=top.token)
        for rank, top in enumerate(token.top, start=1)
    }
    own = PromptLogprob(logprob=token.logprob, rank=token.rank, decoded_token=token.token)
    return {token.token_id: found.pop(token.token_id, own), **found}
