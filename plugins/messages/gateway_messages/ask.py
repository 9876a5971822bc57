"""From a request to what the gateway is asked for, and from its errors to this API's parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import assert_never

from msgspec import Struct

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols import Ask, NamedTool, Sampling, TextFormat, ToolDefinition, Turn
from gateway.protocols import ToolChoice as ModelsChoice
from gateway_messages import request as wire
from gateway_messages.conversation import Unseal, conversation

MEDIUM_BUDGET, HIGH_BUDGET = 4096, 16384
"""From how many `budget_tokens` on thinking counts as of medium effort, and of high: models here take words, not numbers."""

_NOT_FOR_THE_MODEL = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?")
"""Claude Code's first line: another one in each request, by which no prefix of a prompt would ever be cached."""


class Asked(Struct, frozen=True):
    """What the gateway is asked for."""

    ask: Ask
    origins: Sequence[str]
    """For each item of the turn, the path of what it was made of."""


def asked(
    request: wire.MessagesRequest,
    unseal: Unseal,
    *,
    size: int,
    trace_headers: Mapping[str, str] | None,
) -> Asked:
    """Raises `InvalidRequest` or `Unsupported`, with this API's parameter."""
    said = conversation(request.messages, unseal)
    continued = request.messages[-1].role == "assistant"
    choice = request.tool_choice
    ask = Ask(
        model=request.model,
        turn=Turn(
            items=said.items,
            instructions=_instructions(request.system),
            tools=[_definition(tool) for tool in request.tools],
            tool_choice=_choice(request),
            parallel_tool_calls=not (
                isinstance(choice, wire.AutoChoice | wire.AnyChoice | wire.ToolChoice)
                and choice.disable_parallel_tool_use
            ),
            reasoning_effort=_effort(request),
            text_format=_text_format(request),
            add_generation_prompt=not continued,
            continue_final_message=continued,
        ),
        sampling=Sampling(
            # None to generate still takes one for the engine to do anything: it is not shown.
            max_tokens=None if request.max_tokens is None else max(1, request.max_tokens),
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            stop=tuple(request.stop_sequences or ()),
        ),
        size=size,
        trace_headers=trace_headers,
    )
    return Asked(ask, said.origins)


def _instructions(system: Sequence[str]) -> str | None:
    texts = [_NOT_FOR_THE_MODEL.sub("", text) for text in system]
    return "\n\n".join(text for text in texts if text) or None


def _definition(tool: wire.Tool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        strict=bool(tool.strict),
    )


def _choice(request: wire.MessagesRequest) -> ModelsChoice:
    match request.tool_choice:
        case None | wire.AutoChoice():
            return "auto"
        case wire.NoChoice():
            return "none"
        case wire.AnyChoice():
            if not request.tools:
                raise InvalidRequest(
                    "tool_choice is 'any', but there are no tools. Send tools, or leave tool_choice out.",
                    param="tool_choice",
                )
            return "required"
        case wire.ToolChoice(name=name):
            if all(tool.name != name for tool in request.tools):
                raise InvalidRequest(
                    f"tool_choice names '{name}', which is not among the tools.",
                    param="tool_choice.name",
                )
            return NamedTool(name)
        case other:
            assert_never(other)


def _effort(request: wire.MessagesRequest) -> str | None:
    """The effort in the gateway's words; None leaves thinking to the model."""
    config = request.output_config
    effort = config.effort if config is not None else None
    match request.thinking:
        case None:
            return effort
        case wire.ThinkingDisabled():
            return "none"
        case wire.ThinkingEnabled(budget_tokens=budget):
            if effort is not None:
                return effort
            return "low" if budget < MEDIUM_BUDGET else "medium" if budget < HIGH_BUDGET else "high"
        case wire.ThinkingAdaptive() | wire.ThinkingBetweenTools():
            return effort or "medium"
        case other:
            assert_never(other)


def _text_format(request: wire.MessagesRequest) -> TextFormat:
    config = request.output_config
    wanted = request.output_format or (config.format if config is not None else None)
    if wanted is None:
        return TextFormat()
    return TextFormat(kind="json_schema", name="answer", schema=wanted.schema, strict=True)


_ITEM = re.compile(r"input\[(\d+)\]")
_NAMES = {
    "input": "messages",
    "continue_final_message": "messages",
    "instructions": "system",
    "max_output_tokens": "max_tokens",
    "stop": "stop_sequences",
}


def in_own_words(error: GatewayError, origins: Sequence[str]) -> GatewayError:
    """`error` with the parameter that it is about named as in this API."""
    param = error.param
    if param is None:
        return error
    if (item := _ITEM.match(param)) is not None:
        number = int(item[1])
        error.param = origins[number] if number < len(origins) else "messages"
    elif param.startswith("reasoning"):
        error.param = "thinking"
    elif param.startswith("text.format"):
        error.param = "output_config.format"
    else:
        error.param = _NAMES.get(param, param)
    return error
