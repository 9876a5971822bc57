"""What the engines of vLLM share that embed or rerank. Imports vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final, TypeVar

from vllm.exceptions import VLLMClientError  # type: ignore[import-not-found,unused-ignore]

from gateway.sdk import (
    EmbeddingRequest,
    EngineContext,
    EngineError,
    InvalidRequest,
    ParamPath,
    ScoreRequest,
)
from gateway.sdk.engines import HfTokenizer
from gateway_vllm.config import VllmConfig
from gateway_vllm.errors import refused
from gateway_vllm.host import FAILURES, Host
from gateway_vllm.model_info import model_info

T = TypeVar("T")

_AT_ONCE: Final = 256
"""Maximum number of inputs of one request submitted to vLLM at once: more than one batch, so that vLLM is never
idle."""


class PooledEngine:
    """Each input of a request is a separate vLLM request, so that vLLM batches them."""

    def __init__(self, host: Host, config: VllmConfig, context: EngineContext) -> None:
        self._host = host
        self.tokenizer = HfTokenizer(host.llm.get_tokenizer())
        self.info = model_info(host.llm, config, context)
        self._takes_priority = config.scheduling_policy == "priority"
        self._traces = host.llm.observability_config.otlp_traces_endpoint is not None

    @property
    def last_priority(self) -> int | None:
        """See `PrioritizingEngine`."""
        return 2**31 - 1 if self._takes_priority else None

    async def end_helpers(self) -> None:
        """Does nothing: there are no helper processes."""

    def forget(self) -> None:
        """Drop the references to vLLM after it has ended, besides the host's."""

    async def health(self) -> None:
        """Return if the engine can serve now; otherwise raise `EngineUnavailable` with the reason."""
        self._host.require_life()

    def _check(self, request: EmbeddingRequest | ScoreRequest) -> None:
        """Raise `EngineUnavailable` if vLLM has ended, and `InvalidRequest` for a priority that it would ignore."""
        self._host.require_life()
        if request.priority and not self._takes_priority:
            raise InvalidRequest(
                "This model does not schedule by priority. Leave priority out, or have the server set "
                'scheduling_policy = "priority".',
                param="priority",
            )

    async def _run_all(self, jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
        """The results of all jobs, in order. If one fails, the others are cancelled, and its error is raised."""
        results: dict[int, T] = {}
        todo = iter(enumerate(jobs))

        async def work() -> None:
            for index, job in todo:
                results[index] = await job()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(_AT_ONCE, len(jobs))):
                    group.create_task(work())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [results[index] for index in range(len(jobs))]

    async def _encode(
        self,
        prompt: Any,
        params: Any,
        request: EmbeddingRequest | ScoreRequest,
        index: int,
        adapter: Any | None,
        *,
        param: ParamPath,
        result: str,
    ) -> Any:
        """vLLM's result for the input with that index. For errors, `param` is the input's place in the request, and `result` what
        the result is called."""
        outputs = self._host.llm.encode(
            prompt,
            params,
            f"{request.request_id}-{index}",
            lora_request=adapter,
            trace_headers=request.trace_headers if self._traces else None,
            priority=request.priority,
        )
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if output.finished:
                        return output.outputs
        except FAILURES as error:
            raise self._host.failure(error) from error
        except VLLMClientError as error:
            raise refused(error, param=param) from error
        raise EngineError(f"vLLM gave no {result} for this request. Others may succeed.")
