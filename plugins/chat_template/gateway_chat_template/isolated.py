"""Evaluates templates from requests in helper processes, because a template is a program that may use unbounded time
and memory."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from gateway.sdk import InvalidRequest, RateLimited
from gateway.sdk.caches import LruCache
from gateway.sdk.engines import Origin
from gateway.sdk.processes import (
    FunctionFailed,
    HelperDeadlineExceeded,
    HelperFailure,
    PoolBusy,
    ProcessPool,
    current_owner,
)
from gateway_chat_template import isolated_worker
from gateway_chat_template.environment import told
from gateway_chat_template.features import Features
from gateway_chat_template.marked_text import AssistantText, OutsideText, concat

T = TypeVar("T")

_SECONDS: Final = 5.0
"""Time limit of an inspection and of a rendering, in seconds."""
_MEMORY: Final = 536_870_912
_MAX_CHARACTERS: Final = 10_000_000
_CACHED: Final = 64
_KINDS: Final = {Origin.TEMPLATE: str, Origin.ASSISTANT: AssistantText, Origin.OUTSIDE: OutsideText}


class IsolatedTemplate(Struct, frozen=True):
    """A template from a request and its features."""

    source: str
    variables: frozenset[str]
    features: Features


class IsolatedTemplates:
    """Evaluates each template in a new process, isolated from other requests. Raises `InvalidRequest` for every failure
    of a template."""

    def __init__(self, tokens: Mapping[str, str], max_characters: int) -> None:
        self._tokens = dict(tokens)
        self._limit = min(max_characters, _MAX_CHARACTERS)
        self._pool = ProcessPool(
            processes=2,
            memory=_MEMORY,
            max_calls=1,
            max_result=4 * self._limit + 1_048_576,
            preload=["gateway_chat_template.isolated_worker"],
        )
        self._cache = LruCache[tuple[str, str], IsolatedTemplate](_CACHED)

    async def inspect(self, source: str) -> IsolatedTemplate:
        """Compile and inspect the template, unless it is cached."""
        key = current_owner(), source  # the time would tell an owner which templates others send
        if (known := self._cache.get(key)) is not None:
            return known
        call = self._pool.run(isolated_worker.inspect, source, self._tokens, seconds=_SECONDS)
        variables, features = await self._result(call)
        found = IsolatedTemplate(source, frozenset(variables), msgspec.convert(features, Features))
        self._cache.put(key, found)
        return found

    async def render(self, source: str, variables: Mapping[str, Any], today: str | None) -> str:
        """The rendered text, marked with the origin of its parts."""
        pickled = pickle.dumps(dict(variables))
        call = self._pool.run(
            isolated_worker.render, source, pickled, today, self._limit, seconds=_SECONDS
        )
        return concat(_KINDS[Origin(origin)](part) for part, origin in await self._result(call))

    async def _result(self, call: Any) -> Any:
        try:
            return await call
        except PoolBusy:
            raise RateLimited(
                "Too many chat templates of requests are being evaluated. Try again later."
            ) from None
        except HelperFailure as failure:
            raise InvalidRequest(self._error_message(failure), param="chat_template") from None

    def _error_message(self, failure: HelperFailure) -> str:
        match failure:
            case HelperDeadlineExceeded():
                return f"The chat template takes longer than {_SECONDS:g} seconds."
            case FunctionFailed(name="TemplateSyntaxError" | "TemplateAssertionError"):
                return f"The chat template is malformed: {failure.message[:500]}."
            case FunctionFailed(name="TemplateTooLong"):
                return f"The prompt is longer than {self._limit} characters."
            case FunctionFailed(name="TemplateRefusal"):
                return f"The chat template refuses this conversation: {failure.message[:500]}"
            case FunctionFailed(name="MemoryError"):
                return "The chat template takes more memory than this server allows."
            case FunctionFailed():
                cause = f"{failure.name}: {told(failure.message[:500])}"
                return f"The chat template failed on this conversation: {cause}"
            case _:
                return "The chat template takes more memory than this server allows, or cannot be evaluated."
