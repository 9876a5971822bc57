"""The response before any output, as `response.created` shows it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from gateway.answers.responses.stored_prompts import FilledPrompt
from gateway.plugins.protocols import Sampling
from gateway.wire.common import JsonObject
from gateway.wire.ids import new_id
from gateway.wire.request import ResponseRequest
from gateway.wire.response import ConversationReference, Response
from gateway.wire.text import TextConfig
from gateway.wire.tools import Tool

_RETENTIONS: Mapping[str | None, Literal["in_memory", "24h"] | UnsetType] = {
    None: UNSET, "24h": "24h", "in_memory": "in_memory", "in-memory": "in_memory",
}  # fmt: skip
"""The value in the response, for each value that a request may have."""


def initial_response(
    request: ResponseRequest,
    model: str,
    sampling: Sampling,
    tools: list[Tool],
    conversation_id: str | None,
    prompt: FilledPrompt | None,
    *,
    store: bool,
) -> Response:
    """Return a response with every field that the API requires. `tools` are shown, so they must not contain
    credentials."""
    return Response(
        id=new_id("resp_"),
        background=bool(request.background),
        conversation=(ConversationReference(id=conversation_id) if conversation_id else UNSET),
        created_at=int(time.time()),
        model=model,
        status="in_progress",
        instructions=request.instructions,
        max_output_tokens=request.max_output_tokens,
        max_tool_calls=request.max_tool_calls,
        metadata=request.metadata or {},
        parallel_tool_calls=request.parallel_tool_calls is not False,
        previous_response_id=request.previous_response_id,
        prompt_cache_key=request.prompt_cache_key,
        reasoning=request.reasoning,
        safety_identifier=request.safety_identifier,
        service_tier=request.service_tier or "default",
        store=store,
        temperature=1.0 if sampling.temperature is None else sampling.temperature,
        top_p=1.0 if sampling.top_p is None else sampling.top_p,
        presence_penalty=sampling.presence_penalty or 0.0,
        frequency_penalty=sampling.frequency_penalty or 0.0,
        text=request.text or TextConfig(),
        tool_choice=request.tool_choice or "auto",
        tools=tools,
        top_logprobs=request.top_logprobs or 0,
        truncation=request.truncation or "disabled",
        user=request.user,
        prompt=UNSET if prompt is None else prompt.shown,
        prompt_cache_retention=_RETENTIONS[request.prompt_cache_retention],
        prompt_cache_options=(
            UNSET
            if request.prompt_cache_options is None
            else _present(msgspec.to_builtins(request.prompt_cache_options))
        ),
    )


def _present(options: JsonObject) -> JsonObject:
    return {name: value for name, value in options.items() if value is not None}
