"""From a request to what the gateway is asked for, and from its errors to this API's parameters."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec import Struct

from gateway.errors import GatewayError, InvalidRequest
from gateway.protocols import Ask, Sampling, TextFormat, Turn
from gateway.wire import tools as gateway_tools
from gateway_messages import blocks
from gateway_messages import request as wire
from gateway_messages.conversation import Unseal, conversation
from gateway_messages.server_tools import ServerEntry, Wanted, wanted_of

UNSUPPORTED_TOOL = "unsupported_tool"
"""The gateway's code for a tool that it does not run."""

MEDIUM_BUDGET, HIGH_BUDGET = 4096, 16384
"""From how many `budget_tokens` on thinking counts as of medium effort, and of high: models here take words, not numbers."""

_NOT_FOR_THE_MODEL = re.compile(r"\A\s*x-anthropic-billing-header:[^\n]*\n?")
"""Claude Code's first line: another one in each request, by which no prefix of a prompt would ever be cached."""


class Asked(Struct, frozen=True):
    """What the gateway is asked for."""

    ask: Ask
    origins: Sequence[str]
    """For each item of the turn, the path of what it was made of."""
    tools: Wanted
    """The tools, each with its path."""


def asked(
    request: wire.MessagesRequest,
    unseal: Unseal,
    *,
    size: int,
    trace_headers: Mapping[str, str] | None,
    owner: str | None = None,
    available: Collection[str] = (),
    offers_tools: bool = False,
    max_turns: int | None = None,
) -> Asked:
    """`available` are the types of tools that the gateway runs. The last two are of the configuration.

    Raises `InvalidRequest` or `Unsupported`, with this API's parameter.
    """
    said = conversation(request.messages, unseal)
    last = request.messages[-1]
    # What ends with the answer of a tool was paused, and goes on with a new generation.
    continued = last.role == "assistant" and not (
        last.content and isinstance(last.content[-1], blocks.ToolAnswerBlock)
    )
    choice = request.tool_choice
    tools = _wanted(request, available)
    ask = Ask(
        model=request.model,
        turn=Turn(
            items=said.items,
            results=said.results,
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
            # None to generate still takes one for the engine to do anything: it is not shown.
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
        trace_headers=trace_headers,
    )
    return Asked(ask, said.origins, tools)


def _instructions(system: Sequence[str]) -> str | None:
    texts = [_NOT_FOR_THE_MODEL.sub("", text) for text in system]
    return "\n\n".join(text for text in texts if text) or None


def _wanted(request: wire.MessagesRequest, available: Collection[str]) -> Wanted:
    """All tools: the client's, then those that the gateway runs."""
    own: list[gateway_tools.Tool] = []
    places: list[str] = []
    served: list[tuple[str, ServerEntry]] = []
    loaded = _references(request.messages)
    for index, tool in enumerate(request.tools):
        param = f"tools[{index}]"
        if isinstance(tool, wire.Tool):
            if tool.defer_loading and tool.name not in loaded:
                continue
            own.append(_function(tool))
            places.append(param)
        else:
            served.append((param, tool))
    wanted = wanted_of(served, request.mcp_servers, available)
    return msgspec.structs.replace(
        wanted,
        tools=[*own, *wanted.tools],
        places=[*places, *wanted.places],
        types=[*("custom" for _ in own), *wanted.types],
    )


def _references(messages: Sequence[blocks.Message]) -> set[str]:
    """The names of the tools that results of the client's tools refer to, as its search of tools does."""
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


def _choice(request: wire.MessagesRequest, tools: Wanted) -> gateway_tools.ToolChoice | None:
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
                param="tool_choice.name",
            )
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
_TOOL = re.compile(r"tools\[(\d+)\](.*)")
_NAMES = {
    "input": "messages",
    "continue_final_message": "messages",
    "instructions": "system",
    "max_output_tokens": "max_tokens",
    "stop": "stop_sequences",
}
_TOOL_NAMES = {
    ".parameters": ".input_schema",
    ".filters.allowed_domains": ".allowed_domains",
    ".server_url": ".url",
    ".server_label": ".name",
    ".authorization": ".authorization_token",
}
_PLUGINS = {"web": "browser", "cod": "python", "mcp": "mcp"}
"""Which table of `[tools]` has what a type begins with."""


def in_own_words(error: GatewayError, wanted: Asked) -> GatewayError:
    """`error` with the parameter that it is about named as in this API."""
    param = error.param
    if param is None:
        return error
    if (item := _ITEM.match(param)) is not None:
        number = int(item[1])
        error.param = wanted.origins[number] if number < len(wanted.origins) else "messages"
    elif (tool := _TOOL.fullmatch(param)) is not None and int(tool[1]) < len(wanted.tools.places):
        _about_tool(error, wanted.tools, int(tool[1]), tool[2])
    elif param.startswith("reasoning"):
        error.param = "thinking"
    elif param.startswith("text.format"):
        error.param = "output_config.format"
    else:
        error.param = _NAMES.get(param, param)
    return error


def _about_tool(error: GatewayError, tools: Wanted, number: int, rest: str) -> None:
    place, kind = tools.places[number], tools.types[number]
    if error.code == UNSUPPORTED_TOOL and rest in ("", ".type", ".environment"):
        what = "MCP servers" if kind == "mcp" else f"Tools of type '{kind}'"
        error.message = (
            f"{what} are not available here. Leave it out, or have the server configured with a plugin that runs it "
            f"([tools.{_PLUGINS.get(kind[:3], '…')}])."
        )
        rest = "" if kind == "mcp" else ".type"
    for theirs, own in _TOOL_NAMES.items():
        if rest.startswith(theirs):
            rest = own + rest.removeprefix(theirs)
    if place.startswith("tools[") and kind == "mcp":  # a toolset that names a configured server
        rest = ".mcp_server_name" if rest == ".name" else ""
    error.param = place + rest
