"""The object that a request gives, which changes with each step."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any


class RequestError(RuntimeError):
    """An error of one request."""


class EngineDeadError(RuntimeError):
    """The executor has gone."""


@dataclass(slots=True)
class TokenIdLogprob:
    logprob: float
    rank: int | None = None


@dataclass(slots=True)
class Step:
    """What the worker tells of one step, or of several."""

    token_ids: list[int]
    logprobs: list[dict[int, TokenIdLogprob]]
    cached_tokens: int = 0
    prompt_logprobs: list[dict[int, TokenIdLogprob]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | None = None
    error: Exception | None = None


@dataclass(slots=True)
class CompletionOutput:
    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[dict[int, TokenIdLogprob]] = field(default_factory=list)
    prompt_logprobs: list[dict[int, TokenIdLogprob]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    last_text_len: int = 0
    last_token_ids_len: int = 0
    last_logprobs_len: int = 0

    @property
    def text_diff(self) -> str:
        return self.text[self.last_text_len :]

    @property
    def token_ids_diff(self) -> list[int]:
        return self.token_ids[self.last_token_ids_len :]

    @property
    def logprobs_diff(self) -> list[dict[int, TokenIdLogprob]]:
        return self.logprobs[self.last_logprobs_len :]


class RequestOutput:
    def __init__(self, number: int, executor: Any, params: Any) -> None:
        self.number = number
        self._outputs = [CompletionOutput(0)]
        self._done = False
        self.cached_tokens = 0
        self._executor = executor
        self._params = params
        self._loop = asyncio.get_running_loop()
        self._steps: deque[Step] = deque()
        self._arrived = asyncio.Event()

    @property
    def outputs(self) -> list[CompletionOutput]:
        return self._outputs

    @property
    def finished(self) -> bool:
        return self._done

    def abort(self) -> None:
        self._executor.abort_request(self.number)

    def put(self, step: Step) -> None:
        """From the worker's thread."""
        self._loop.call_soon_threadsafe(self._put, step)

    def _put(self, step: Step) -> None:
        self._steps.append(step)
        self._arrived.set()

    def __aiter__(self) -> RequestOutput:
        return self

    async def __anext__(self) -> RequestOutput:
        if self._done:
            raise StopAsyncIteration
        while not self._steps:
            self._arrived.clear()
            await self._arrived.wait()
        step = self._steps.popleft()
        if step.error is not None:
            raise step.error
        made = self._outputs[0]
        made.last_token_ids_len = len(made.token_ids)
        made.last_logprobs_len = len(made.logprobs)
        made.token_ids += step.token_ids
        made.logprobs += step.logprobs
        made.prompt_logprobs = step.prompt_logprobs or made.prompt_logprobs
        self.cached_tokens = step.cached_tokens
        if step.finish_reason is not None:
            self._done = True
            made.finish_reason = step.finish_reason
            made.stop_reason = step.stop_reason
            if step.stop_reason is not None and not self._params.include_stop_str_in_output:
                made.token_ids = made.token_ids[:-1]
        assert not self._params.detokenize, "the stand-in makes tokens only"
        return self
