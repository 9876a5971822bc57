"""Shared by the readers of both APIs: combines deltas, token counts and the end into engine outputs."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.sdk import (
    BlockEnded,
    CallEnded,
    Delta,
    EngineOutput,
    EngineRequest,
    FinishReason,
    MessageStarted,
    TextDelta,
    TokenLogprob,
)
from gateway_openai.blocks import Blocks
from gateway_openai.errors import Translator
from gateway_openai.scores import ScoreCollector, UpstreamLogprob


class DeltaBuilder:
    """State of one streamed answer. Implements `gateway_remote.generation.Builder`."""

    def __init__(self, request: EngineRequest, translator: Translator) -> None:
        turn, wanted = request.turn, request.sampling.logprobs
        self._one_call = turn is not None and bool(turn.tools) and not turn.parallel_tool_calls
        self.blocks = Blocks(one_call=self._one_call)
        self.translator = translator
        self.complete = False
        self.count = 0
        """Number of output tokens; 0 while the upstream has not reported it."""
        self.reasoning = 0
        self.prompt: int | None = None
        self.cached: int | None = None
        self._scores = None if wanted is None else ScoreCollector(wanted)
        self._text = ""
        self._chars = 0
        self._logprobs: list[TokenLogprob] = []
        self._finish: FinishReason | None = None
        self._stop_reason: str | int | None = None
        self._cut = False

    @property
    def finished(self) -> bool:
        return self._finish is not None

    def report(
        self,
        prompt: int | None,
        output: int | None,
        *,
        cached: int | None,
        reasoning: int | None,
    ) -> None:
        """Note the upstream's counts. A report without a count, or with zero, does not take back an earlier one."""
        if prompt is not None and prompt > 0:
            self.prompt = prompt
        if output is not None and output > 0:
            self.count = output
        if cached is not None and cached >= 0:
            self.cached = max(cached, self.cached or 0)
        if reasoning is not None and reasoning > 0:
            self.reasoning = reasoning

    def text(self, text: str, tokens: Sequence[UpstreamLogprob] | None = None) -> None:
        """Add text and the log probabilities that arrived with it."""
        scores = self._scores
        if scores is None:
            self.blocks.write(TextDelta(text))
            return
        scores.add(tokens or ())
        self._logprobs += scores.take(text)
        if text:
            self.blocks.write(TextDelta(text, self._chars))
            self._text += text
            self._chars += len(text)

    def new_message(self, phase: str | None) -> None:
        """Start a message. `phase` is the API's message phase, if any."""
        match phase:
            case "commentary" | "final_answer":
                self.blocks.write(MessageStarted(phase))
            case _:
                self.blocks.write(BlockEnded())

    def end(self, finish: FinishReason, stop_reason: str | int | None = None) -> None:
        """End the output; usage may still follow. Raises ValueError if an item is left malformed."""
        self.blocks.finish(cut=finish not in ("stop", "error"))
        self._finish, self._stop_reason = finish, stop_reason

    def cut(self) -> None:
        self._cut = True

    def take(self) -> EngineOutput | None:
        last = self._finish is not None and (self.complete or self._cut)
        ready = self.blocks.ready
        if not last:
            rest: list[Delta] = []
            if self._finish is not None and self._one_call:
                # A reader that takes one call stops at its end: that waits for the counts.
                ends = next((at for at, each in enumerate(ready) if type(each) is CallEnded), None)
                if ends is not None:
                    ready, rest = ready[:ends], ready[ends:]
            if not (ready or self._logprobs):
                return None
            self.blocks.ready = rest
            if self._scores is None:
                return EngineOutput(deltas=ready)
            output = EngineOutput(text=self._text, logprobs=self._logprobs, deltas=ready)
            self._text, self._logprobs = "", []
            return output
        self.blocks.ready = []
        return EngineOutput(
            text=self._text,
            logprobs=None if self._scores is None else self._logprobs,
            deltas=ready,
            finish_reason=self._finish,
            stop_reason=self._stop_reason,
            prompt_tokens=self.prompt or 0,
            cached_tokens=self.cached,
            output_tokens=self.count,
            reasoning_tokens=self.reasoning,
        )
