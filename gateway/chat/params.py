"""Parameter names of Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.errors import ParamPath
from gateway.loop.text_format import text_path
from gateway.wire.chat import ChatRequest
from gateway.wire.chat_messages import AssistantMessage
from gateway.wire.tools import AllowedToolsChoice, CustomChoice, FunctionChoice, type_of


def request_path(
    path: ParamPath, request: ChatRequest, origins: Sequence[int] | None = None
) -> ParamPath:
    """The place in `request` of `path`, which is a place in the turn that was made from it.

    `origins` has for each item of the turn the index of its message; it is None where there is no turn yet. Empty for
    what is not in the request.
    """
    match path:
        case ("input",):
            return ("messages",)
        case ("input", int(index), *rest) if origins is not None:
            if index >= len(origins):
                return ()
            origin = origins[index]
            made = isinstance(next(iter(request.messages[origin:]), None), AssistantMessage)
            return ("messages", origin, *(_in_images(rest) if made else _in_message(rest)))
        case ("instructions",):
            return ("messages",)
        case ("reasoning", "effort"):
            return path if request.reasoning is not None else ("reasoning_effort",)
        case ("thinking_token_budget",) if request.reasoning and request.reasoning.max_tokens:
            return ("reasoning", "max_tokens")
        case ("text", "format", *_):
            return text_path(request)
        case ("max_tokens" | "max_output_tokens",):
            sent = request.max_completion_tokens is not None
            return ("max_completion_tokens" if sent else "max_tokens",)
        case ("tools", int(index), *_) if index >= len(request.tools or ()):
            return ("web_search_options",)  # the search that it asks for is the last of the tools
        case ("tools", *rest) if request.legacy:
            return ("functions", *rest)
        case ("tool_choice", *rest) if request.legacy:
            return ("function_call", *rest)
        case ("tools", int(index), *rest):
            return ("tools", index, *_in_tool(request, index, rest))
        case ("tool_choice", *rest):
            return ("tool_choice", *_in_choice(request, rest))
        case _:
            return path


def _in_message(rest: Sequence[str | int]) -> Sequence[str | int]:
    match rest:
        case ["output" | "content", *below]:
            return ["content", *_in_part(below)]
        case ["call_id"]:
            return ["tool_call_id"]
        case _:
            return rest


def _in_images(rest: Sequence[str | int]) -> Sequence[str | int]:
    """In a message of the assistant: only its images have an output."""
    match rest:
        case ["output", *below]:
            return ["images", *_in_part(below)]
        case _:
            return _in_message(rest)


def _in_part(rest: Sequence[str | int]) -> Sequence[str | int]:
    match rest:
        case [index, "image_url"]:
            return [index, "image_url", "url"]
        case [index, "file_data" | "file_url" | "file_id" as name]:
            return [index, "file", name]
        case _:
            return rest


def _in_tool(request: ChatRequest, index: int, rest: Sequence[str | int]) -> Sequence[str | int]:
    match rest:
        case [] | ["type"]:
            return rest
        case ["format", "definition" | "syntax" as name]:
            return ["custom", "format", "grammar", name]
        case _:
            return [type_of((request.tools or ())[index]), *rest]


def _in_choice(request: ChatRequest, rest: Sequence[str | int]) -> Sequence[str | int]:
    choice = request.tool_choice
    match rest:
        case ["name"] if isinstance(choice, FunctionChoice | CustomChoice):
            return [type_of(choice), "name"]
        case ["tools", int(index), "name"] if isinstance(choice, AllowedToolsChoice):
            return ["allowed_tools", "tools", index, choice.tools[index]["type"], "name"]
        case ["tools", *below] if isinstance(choice, AllowedToolsChoice):
            return ["allowed_tools", "tools", *below]
        case _:
            return rest
