"""Converts a request to a generation request."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec import Struct

from gateway.sdk import GenerationRequest, InvalidRequest, ParamPath, Sampling, TextFormat, Turn
from gateway.sdk.wire import tools as gateway_tools
from gateway_messages import blocks
from gateway_messages import request as wire
from gateway_messages.conversation import Unseal, conversation
from gateway_messages.server_tools import ServerEntry, ToolOrigin, ToolSelection, select_tools

MEDIUM_BUDGET, HIGH_BUDGET = 4096, 16384
"""The `budget_tokens` from which thinking counts as medium and as high effort: models here take effort levels, not
numbers."""

_NOT_FOR_THE_MODEL = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?")
"""The first line of Claude Code's prompt. It differs in each request, which would prevent prefix caching."""


class ConvertedRequest(Struct, frozen=True):
    """A converted request."""

    generation: GenerationRequest
    origins: Sequence[ParamPath]
    """For each item of the turn, the path of the block it was made from."""
    tools: ToolSelection
    """The tools, each with its origin."""
    parts: Mapping[int, Sequence[ParamPath]] = {}
    """For messages and results of the turn, by the index of their item: the path of the block that each part was made from."""


def convert_request(
    request: wire.MessagesRequest,
    unseal: Unseal,
    *,
    size: int,
    trace_headers: Mapping[str, str] | None,
    owner: str | None = None,
    available: Collection[str] = (),
    offers_tools: bool = False,
    max_turns: int | None = None,
) -> ConvertedRequest:
    """Convert a request. `available` are the types of tools that the gateway runs. The last two parameters come from
    the configuration.

    Raises `InvalidRequest` or `Unsupported`, with this API's parameter.
    """
    converted = conversation(request.messages, unseal)
    last = request.messages[-1]
    # A message that ends with a server tool result was paused; it continues with a new generation.
    continued = last.role == "assistant" and not (
        last.content and isinstance(last.content[-1], blocks.ToolAnswerBlock)
    )
    choice = request.tool_choice
    tools = _select_tools(request, available)
    generation = GenerationRequest(
        model=request.model,
        turn=Turn(
            items=converted.items,
            results=converted.results,
            instructions=_instructions(request.system),
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
            # `max_tokens` 0 still generates one token, because engines need at least one; it is not shown.
            max_tokens=None if request.max_tokens is None else max(1, request.max_tokens),
            temperature=request.temperature,
            top_p=request.top_p,
            top_k=request.top_k,
            stop=tuple(request.stop_sequences or ()),
        ),
        tools=tools.tools,
        tool_choice=_choice(request, tools),
        denied_tools=tools.denied,
        offers_tools=offers_tools,
        max_uses=tools.max_uses,
        max_turns=max_turns,
        owner=owner,
        size=size,
        thinking_budget=_budget(request),
        parameters=request,
        trace_headers=trace_headers,
    )
    return ConvertedRequest(generation, converted.origins, tools, converted.parts)


def _instructions(system: Sequence[str]) -> str | None:
    texts = [_NOT_FOR_THE_MODEL.sub("", text) for text in system]
    return "\n\n".join(text for text in texts if text) or None


def _select_tools(request: wire.MessagesRequest, available: Collection[str]) -> ToolSelection:
    """All tools: first the client's, then those that the gateway runs."""
    own: list[gateway_tools.Tool] = []
    origins: list[ToolOrigin] = []
    served: list[tuple[ParamPath, ServerEntry]] = []
    loaded = _references(request.messages)
    for index, tool in enumerate(request.tools):
        param = ("tools", index)
        if isinstance(tool, wire.Tool):
            if tool.defer_loading and tool.name not in loaded:
                continue
            own.append(_function(tool))
            origins.append(ToolOrigin(param=param, type="custom"))
        else:
            served.append((param, tool))
    wanted = select_tools(served, request.mcp_servers, available)
    return msgspec.structs.replace(
        wanted,
        tools=[*own, *wanted.tools],
        origins=[*origins, *wanted.origins],
    )


def _references(messages: Sequence[blocks.MessageParam]) -> set[str]:
    """Names of the tools that results of client tools refer to, as the client's tool search does."""
    return {
        part.tool_name
        for message in messages
        for block in message.content
        if isinstance(block, blocks.ToolResultBlock) and isinstance(block.content, list)
        for part in block.content
        if isinstance(part, blocks.ToolReferenceBlock)
    }


def _function(tool: wire.Tool) -> gateway_tools.FunctionTool:
    return gateway_tools.FunctionTool(
        name=tool.name,
        description=tool.description,
        parameters=tool.input_schema,
        strict=tool.strict,
    )


def _choice(request: wire.MessagesRequest, tools: ToolSelection) -> gateway_tools.ToolChoice | None:
    match request.tool_choice:
        case None | wire.AutoChoice():
            return None
        case wire.NoChoice():
            return "none"
        case wire.AnyChoice():
            if not tools.tools:
                raise InvalidRequest(
                    "tool_choice is 'any', but there are no tools. Send tools, or leave tool_choice out.",
                    param="tool_choice",
                )
            return "required"
        case wire.ToolChoice(name=name):
            if any(isinstance(tool, wire.Tool) and tool.name == name for tool in request.tools):
                return gateway_tools.FunctionChoice(name=name)
            if (choice := tools.choices.get(name)) is not None:
                return choice
            raise InvalidRequest(
                f"tool_choice names '{name}', which is not among the tools.",
                param=("tool_choice", "name"),
            )
        case other:
            assert_never(other)


def _effort(request: wire.MessagesRequest) -> str | None:
    """The effort in the gateway's terms. None leaves the decision to the model."""
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


def _budget(request: wire.MessagesRequest) -> int | None:
    thinking = request.thinking
    return thinking.budget_tokens if isinstance(thinking, wire.ThinkingEnabled) else None


def _text_format(request: wire.MessagesRequest) -> TextFormat:
    config = request.output_config
    wanted = request.output_format or (config.format if config is not None else None)
    if wanted is None:
        return TextFormat()
    return TextFormat(kind="json_schema", name="answer", schema=wanted.schema, strict=True)
