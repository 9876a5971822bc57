"""Shared part of both vLLM engines: liveness, adapters and shutdown. Imports vLLM."""

from __future__ import annotations

import asyncio
import itertools
import os
from typing import Any

import vllm.exceptions  # type: ignore[import-not-found,unused-ignore]
from vllm.exceptions import (  # type: ignore[import-not-found,unused-ignore]
    GracefulHTTPError,
    VLLMServerError,
)
from vllm.lora.request import LoRARequest  # type: ignore[import-not-found,unused-ignore]
from vllm.v1.engine.exceptions import (  # type: ignore[import-not-found,unused-ignore]
    EngineDeadError,
)

from gateway.sdk import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    GatewayError,
    InvalidRequest,
    RateLimited,
)
from gateway.sdk.engines import unknown_adapter
from gateway_vllm.config import VllmConfig
from gateway_vllm.error_log import ErrorLog

FAILURES = (EngineDeadError, GracefulHTTPError, VLLMServerError)
"""Exceptions that `failure` translates: all that the request did not cause."""

_RETRYABLE: type[Exception] | tuple[()] = getattr(vllm.exceptions, "RetryableRequestError", ())
"""Raised while vLLM is paused; from 0.33 on."""


class Host:
    """The `AsyncLLM` of one model. The model runs in vLLM's own processes; this object sends requests and reads
    outputs."""

    def __init__(self, llm: Any, config: VllmConfig, errors: ErrorLog | None) -> None:
        self.llm = llm
        """None after it has ended."""
        self._errors = errors
        self._closing = False
        self._adapters = {
            name: _adapter(name, number, path)
            for number, (name, path) in enumerate(config.lora_modules.items(), start=1)
        }
        self._loaded: set[str] = set()
        self._takes_adapters = config.enable_lora or bool(config.lora_modules)
        self._ids = itertools.count(len(self._adapters) + 1)
        self._loading = asyncio.Lock()

    def require_life(self) -> None:
        """Raise `EngineUnavailable` if vLLM has died or is shutting down."""
        if self._closing:
            raise EngineUnavailable("The engine is shutting down.")
        if self.llm.errored:
            raise self._dead()

    def known_adapter(self, name: str | None) -> Any | None:
        """The adapter of that name, loaded or not; None for None. Raises `InvalidRequest` if it is unknown."""
        if name is None:
            return None
        adapter = self._adapters.get(name)
        if adapter is None:
            raise unknown_adapter(name, self._adapters)
        return adapter

    async def adapter(self, name: str | None) -> Any | None:
        """The adapter of that name, loaded. Raises `InvalidRequest` if it is unknown, and `EngineError` if it cannot be
        loaded.

        Adapters are loaded before a request uses them, because a failure inside a request would crash vLLM.
        """
        adapter = self.known_adapter(name)
        if adapter is None or name in self._loaded:
            return adapter
        async with self._loading:
            if name not in self._loaded:
                try:
                    await self.llm.add_lora(adapter)
                except EngineDeadError as error:
                    raise self._dead() from error
                except Exception as error:  # vLLM passes its engine's errors on as bare exceptions.
                    raise EngineError(
                        f"vLLM cannot load the adapter '{name}'. The server's log says why."
                    ) from error
                self._loaded.add(adapter.lora_name)
        return adapter

    async def load_adapters(self) -> None:
        """Load every LoRA adapter now. Raises `ConfigurationError` for one that cannot be loaded."""
        for name, adapter in self._adapters.items():
            try:
                await self.adapter(name)
            except GatewayError as error:
                raise ConfigurationError(
                    f"vLLM cannot load the adapter '{name}' from {adapter.lora_path}: {error.__cause__ or error}"
                ) from error

    @property
    def adapters(self) -> tuple[str, ...]:
        """Names of the adapters."""
        return tuple(self._adapters)

    async def add_adapter(self, name: str, path: str) -> None:
        """Load a further adapter. Raises `InvalidRequest` if it cannot be loaded."""
        if not self._takes_adapters:
            raise InvalidRequest(
                "vLLM was started without LoRA. Set enable_lora = true in the model's vllm table.",
                param="lora_name",
            )
        self.require_life()
        self._adapters[name] = _adapter(name, next(self._ids), path)
        try:
            await self.adapter(name)
        except BaseException as error:
            self.remove_adapter(name)
            if isinstance(error, EngineError):
                raise InvalidRequest(
                    f"vLLM cannot load the adapter '{name}': {error.__cause__}", param="lora_path"
                ) from error
            raise

    def remove_adapter(self, name: str) -> None:
        """Serve an adapter no longer. vLLM drops its weights when it needs the room, so running requests are not affected."""
        self._adapters.pop(name, None)
        self._loaded.discard(name)

    async def end_requests(self) -> None:
        """Reject new requests and abort running ones."""
        self._closing = True
        if self.llm.errored:
            return
        if running := list(self.llm.output_processor.request_states):
            await self.llm.abort(running, internal=True)

    def forget(self) -> None:
        """Drop the references to vLLM after it has ended; otherwise its finalizer would try to end it again."""
        self.llm = None

    def failure(self, error: Exception) -> GatewayError:
        """The gateway error for one of `FAILURES`."""
        if isinstance(error, GracefulHTTPError):
            return RateLimited(error.message)
        if isinstance(error, EngineDeadError) or self._closing or self.llm.errored:
            return self._dead()
        if isinstance(error, _RETRYABLE):
            return EngineUnavailable(f"vLLM takes no requests at the moment: {error}. Retry later.")
        return EngineError(f"vLLM failed on this request: {error.__cause__ or error}")

    def _dead(self) -> EngineUnavailable:
        if self._closing:
            return EngineUnavailable("The engine is shutting down.")
        reason = self._errors.cause() if self._errors is not None else None
        if reason is None:
            manager = self.llm.engine_core.resources.engine_manager
            for process in getattr(manager, "processes", ()):
                if process.exitcode is not None and process.exitcode < 0:
                    reason = f"its process was killed by signal {-process.exitcode}"
        return EngineUnavailable(f"vLLM has died: {reason or 'see the log'}. Restart the server.")


def _adapter(name: str, number: int, path: str) -> Any:
    return LoRARequest(lora_name=name, lora_int_id=number, lora_path=os.path.expanduser(path))
