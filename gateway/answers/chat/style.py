"""The options of a chat request that determine the content and the form of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from gateway.plugins.protocols import NamedTool, Turn
from gateway.services import Services
from gateway.tools.toolset import Toolset
from gateway.wire.chat import ChatRequest, FinishReason
from gateway.wire.content import text_of
from gateway.wire.items import Message


class ChatStyle(Struct, frozen=True, kw_only=True):
    """The content and the form of an answer."""

    reasoning_fields: Sequence[str]
    """The fields that contain reasoning; if empty, reasoning is not shown."""
    logprobs: bool
    shows_ids: bool
    """Whether the tokens of log probabilities are shown by their ids."""
    legacy: bool
    """Whether calls are shown as the legacy `function_call`."""
    calls_finish: FinishReason
    stream: bool
    includes_usage: bool
    continuous_usage: bool
    token_ids: bool
    times: bool
    """Whether the answer shows how long it took."""
    prompt_logprobs: bool
    service_tier: str | None
    """The value in the request."""
    lead: str
    """Text that precedes the output of each choice (`echo`)."""


def style_of(request: ChatRequest, services: Services, toolset: Toolset, turn: Turn) -> ChatStyle:
    """Return the style that `request` asks for. `toolset` and `turn` were made from it."""
    options = request.stream_options
    legacy = request.legacy
    calls_finish: FinishReason = "function_call" if legacy else "tool_calls"
    if isinstance(toolset.choice, NamedTool):
        calls_finish = "stop"  # OpenAI's rule for a forced call
    last = turn.items[-1] if turn.items else None
    echoed = request.echo and isinstance(last, Message) and last.role == "assistant"
    return ChatStyle(
        reasoning_fields=(
            () if request.include_reasoning is False else services.config.server.chat_reasoning
        ),
        logprobs=bool(request.logprobs),
        shows_ids=bool(request.return_tokens_as_token_ids),
        legacy=legacy,
        calls_finish=calls_finish,
        stream=bool(request.stream),
        includes_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.include_usage and options.continuous_usage_stats),
        token_ids=bool(request.return_token_ids),
        times=bool(request.timings_per_token),
        prompt_logprobs=request.prompt_logprobs is not None,
        service_tier=request.service_tier,
        lead=text_of(last.content) if echoed and isinstance(last, Message) else "",
    )
