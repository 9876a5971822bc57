"""Token counts of one prompt, and of all generations of an answer."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from gateway.protocols import EngineOutput, EngineRequest, TokensPrompt
from gateway.wire.response import InputTokensDetails, OutputTokensDetails, Usage


class TokenCounter:
    """The tokens used by an answer so far, over all its generations."""

    def __init__(self) -> None:
        self.input = 0
        self.cached = 0
        self.output = 0
        self.reasoning = 0

    def usage(self) -> Usage:
        return Usage(
            input_tokens=self.input,
            input_tokens_details=InputTokensDetails(cached_tokens=self.cached),
            output_tokens=self.output,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=self.reasoning),
            total_tokens=self.input + self.output,
        )


def total(counts: Iterable[TokenCounter]) -> TokenCounter:
    """The sum of all counts."""
    whole = TokenCounter()
    for count in counts:
        whole.input += count.input
        whole.cached += count.cached
        whole.output += count.output
        whole.reasoning += count.reasoning
    return whole


class ExpectedTokens(Struct, frozen=True):
    """What an answer may use, as far as it is known before it begins."""

    prompt: int = 0
    output: int = 0


def expected_tokens(requests: Iterable[EngineRequest], n: int = 1) -> ExpectedTokens:
    """What `n` choices of each request may use. Prompts that only the engine can count, and outputs without a limit, count 0."""
    prompt = output = 0
    for request in requests:
        if isinstance(request.prompt, TokensPrompt):
            prompt += len(request.prompt.token_ids)
        output += n * (request.sampling.max_tokens or 0)
    return ExpectedTokens(prompt, output)


class PromptCount:
    """A generation's prompt tokens, as reported by the engine or else from the rendered prompt; and the output counts
    that a message-level engine reports."""

    def __init__(self, request: EngineRequest) -> None:
        prompt = request.prompt
        self.prompt = len(prompt.token_ids) if isinstance(prompt, TokensPrompt) else 0
        self.cached = 0
        self.output = 0
        self.reasoning = 0

    def note(self, output: EngineOutput) -> None:
        if output.prompt_tokens is not None:
            self.prompt = output.prompt_tokens
        if output.cached_tokens is not None:
            self.cached = output.cached_tokens
        self.output = output.output_tokens or 0
        self.reasoning = output.reasoning_tokens or 0
