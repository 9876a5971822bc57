"""Token counts of one generation, and of all generations of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from gateway.engines.estimates import TokenEstimate, estimated_prompt
from gateway.plugins.protocols import ChatPrompt, EngineOutput, EngineRequest, TokensPrompt
from gateway.wire.chat import (
    CompletionTokensDetails,
    CompletionUsage,
    PromptTokensDetails,
)
from gateway.wire.response import InputTokensDetails, OutputTokensDetails, Usage


class TurnTokens(Struct, frozen=True):
    """The tokens of one generation."""

    input: int
    cached: int
    output: int


class TokenCounter:
    """The tokens used by an answer so far, over all its generations."""

    def __init__(self) -> None:
        self.input = 0
        self.cached = 0
        self.output = 0
        self.reasoning = 0
        self.turns: list[TurnTokens] = []
        """The counts of each generation that has ended."""

    def usage(self, turns: Sequence[TurnTokens] = ()) -> Usage:
        """Return the counts as usage. With two or more `turns`, it includes the counts of each turn."""
        input_details = InputTokensDetails(cached_tokens=self.cached)
        output_details = OutputTokensDetails(reasoning_tokens=self.reasoning)
        if len(turns) > 1:
            # A prompt that is shorter than the previous prompt and output, for example after a compaction, counts 0.
            added = [0, *(max(0, b.input - a.input - a.output) for a, b in pairwise(turns))]
            input_details = replace(
                input_details,
                input_tokens_per_turn=[turn.input for turn in turns],
                cached_tokens_per_turn=[turn.cached for turn in turns],
            )
            output_details = replace(
                output_details,
                tool_output_tokens=sum(added),
                output_tokens_per_turn=[turn.output for turn in turns],
                tool_output_tokens_per_turn=added,
            )
        return Usage(
            input_tokens=self.input,
            input_tokens_details=input_details,
            output_tokens=self.output,
            output_tokens_details=output_details,
            total_tokens=self.input + self.output,
        )


def total(counts: Iterable[TokenCounter]) -> TokenCounter:
    """Return the sum of all counts, without their turns."""
    whole = TokenCounter()
    for count in counts:
        whole.input += count.input
        whole.cached += count.cached
        whole.output += count.output
        whole.reasoning += count.reasoning
    return whole


class ExpectedTokens(Struct, frozen=True):
    """The number of tokens that an answer may use, as far as it is known before the answer begins."""

    prompt: int = 0
    output: int = 0


def expected_tokens(requests: Iterable[EngineRequest], n: int = 1) -> ExpectedTokens:
    """Return the tokens that `n` choices of each request may use. Prompts that only the engine can count, and outputs
    without a limit, count 0."""
    prompt = output = 0
    for request in requests:
        if isinstance(request.prompt, TokensPrompt):
            prompt += len(request.prompt.token_ids)
        output += n * (request.sampling.max_tokens or 0)
    return ExpectedTokens(prompt, output)


class PromptCount:
    """The token counts of one generation: prompt tokens, as reported by the engine or else from the rendered prompt;
    and the output tokens that a message-level engine reports. Counts that such an engine does not report are
    estimated."""

    def __init__(self, request: EngineRequest) -> None:
        prompt = request.prompt
        self.prompt = 0
        self.cached = 0
        self.output = 0
        self.reasoning = 0
        self.estimate: TokenEstimate | None = None
        """Estimates the output tokens from the text. None if the engine takes tokens, because its outputs contain
        them."""
        self._messages: ChatPrompt | None = None
        if isinstance(prompt, TokensPrompt):
            self.prompt = len(prompt.token_ids)
        else:
            self.estimate, self._messages = TokenEstimate(), prompt

    def estimate_unreported(self) -> None:
        """Estimate the counts that a message-level engine did not report, because its upstream never does or the
        generation ended early. Called at the end of a generation that was cancelled or had any output."""
        if self._messages is not None and self.estimate is not None:
            self.prompt = self.prompt or estimated_prompt(self._messages)
            self.output = self.output or self.estimate.tokens

    def note(self, output: EngineOutput) -> None:
        if output.prompt_tokens is not None and (output.prompt_tokens or self.estimate is None):
            self.prompt = output.prompt_tokens
        if output.cached_tokens is not None:
            self.cached = output.cached_tokens
        self.output = output.output_tokens or 0
        self.reasoning = output.reasoning_tokens or 0


def completion_usage(usage: Usage) -> CompletionUsage:
    """Convert usage to the form of Chat Completions."""
    return CompletionUsage(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        prompt_tokens_details=PromptTokensDetails(
            cached_tokens=usage.input_tokens_details.cached_tokens
        ),
        completion_tokens_details=CompletionTokensDetails(
            reasoning_tokens=usage.output_tokens_details.reasoning_tokens
        ),
    )
