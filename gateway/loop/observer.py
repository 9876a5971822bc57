"""Data that an answer shows beside the parsed text: tokens, log probabilities and running usage."""

from __future__ import annotations

from typing import Any

from gateway.assembly.logprobs import LogprobAligner
from gateway.loop.choices import completion_usage
from gateway.loop.generation import Generation
from gateway.loop.usage import PromptCount, TokenCounter, total
from gateway.protocols import EngineOutput, TokenLogprob
from gateway.wire.chat import CompletionUsage, PromptLogprob


class OutputObserver:
    """Receives the engine's outputs of one choice, before its parser. Implements `gateway.loop.generator.Observer`."""

    def __init__(
        self,
        *,
        aligner: LogprobAligner | None,
        token_ids: list[int] | None,
        counts_output: bool = True,
    ) -> None:
        """`counts_output`: whether the output is shown and so counts as usage."""
        self._counts_output = counts_output
        self.prompt_logprobs: list[TokenLogprob | None] = []
        self.kv_transfer_params: dict[str, Any] | None = None
        """What the engine's connector of caches told about the last generation."""
        self._aligner = aligner
        self._token_ids = token_ids
        self._prompt: PromptCount | None = None
        self._made = 0
        self._earlier = TokenCounter()

    def begin(self, generation: Generation) -> None:
        """Begin a generation. Its counts are added to those of the earlier ones."""
        self._earlier = self._usage_so_far()
        self._prompt = PromptCount(generation.request)
        self._made = 0

    def see(self, output: EngineOutput) -> None:
        if self._aligner is not None:
            self._aligner.push(output)
        if self._token_ids is not None:
            self._token_ids += output.token_ids
        if output.prompt_logprobs is not None:
            self.prompt_logprobs += output.prompt_logprobs
        if output.kv_transfer_params is not None:
            self.kv_transfer_params = output.kv_transfer_params
        if self._prompt is not None:
            self._prompt.note(output)
        self._made += len(output.token_ids)

    def usage(self) -> CompletionUsage:
        """Usage of this choice so far, over all its generations."""
        return completion_usage(self._usage_so_far().usage())

    def _usage_so_far(self) -> TokenCounter:
        current, prompt = TokenCounter(), self._prompt
        if prompt is not None:
            current.input, current.cached = prompt.prompt, prompt.cached
            if self._counts_output:
                current.output = prompt.output or self._made
        return total((self._earlier, current))

    def shown_prompt(self) -> list[dict[int, PromptLogprob] | None]:
        """The prompt's tokens, each with the most likely alternatives at its position, by token id (vLLM's shape)."""
        return [_prompt_logprob(token) for token in self.prompt_logprobs]


def _prompt_logprob(token: TokenLogprob | None) -> dict[int, PromptLogprob] | None:
    if token is None:
        return None
    found = {
        top.token_id: PromptLogprob(logprob=top.logprob, rank=rank, decoded_token=top.token)
        for rank, top in enumerate(token.top, start=1)
    }
    own = PromptLogprob(logprob=token.logprob, rank=token.rank, decoded_token=token.token)
    return {token.token_id: found.pop(token.token_id, own), **found}
