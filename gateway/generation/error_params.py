"""The parameters that errors name, translated from positions in a turn to positions in the client's request.

Within the gateway, an error names a position in a turn by its path in the Responses API: `("input", 3, "content", 0)`,
`("tools", 1, "parameters")`, `("text", "format", "schema")`. The client must see the path in the request that it sent.
This module has one class for each API: a context manager that renames the parameters of errors raised within it.
Plugins' APIs provide their paths with `GenerationRequest.own_path`. `locate_fault` finds the position of a constraint
that an engine rejects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from gateway.base.constraints import Constraint, JsonSchema
from gateway.base.errors import InvalidRequest, ParamPath, RenamedParams
from gateway.generation.text_format import shared_path, text_path
from gateway.plugins.protocols import Engine, EngineRequest, GenerationRequest, Turn
from gateway.tools.client_functions import qualified_name
from gateway.wire.chat import ChatRequest
from gateway.wire.chat_messages import AssistantMessage
from gateway.wire.completions import CompletionRequest
from gateway.wire.tools import (
    AllowedToolsChoice,
    CustomChoice,
    CustomTool,
    FunctionChoice,
    FunctionTool,
    NamespaceTool,
    Tool,
    type_of,
)

TEXT_SCHEMA: ParamPath = ("text", "format", "schema")
"""The path of the schema of the final text. Each API renames it to the path of its own parameter."""

_ENGINES_WORDS = frozenset[ParamPath]({("schema",), ("pattern",), ("grammar",)})
"""Paths by which engines name a constraint. They do not know its position in the request."""


class ResponseParams(RenamedParams):
    """Names positions in the conversation of a Responses request, which includes earlier items and the request's
    own."""

    __slots__ = ("_before", "_logprobs", "_own", "_preamble", "_source", "_text")

    def __init__(
        self,
        before: int,
        own: int,
        *,
        source: str,
        logprobs: str = "top_logprobs",
        text: ParamPath = (),
        preamble: int = 0,
    ) -> None:
        """`own` is the number of the request's own items. `before` is the number of items before them, and `source` is
        the parameter that these come from. The first `preamble` of them come from a stored prompt. `logprobs` is the
        parameter that requests log probabilities. `text` is the parameter that sets the format of the final text, if
        `text.format` does not.
        """
        self._before = before
        self._own = own
        self._source = source
        self._logprobs = logprobs
        self._text = text
        self._preamble = preamble

    def renamed(self, path: ParamPath) -> ParamPath:
        match path:
            case ("input", int(index), *_) if index < self._preamble:
                return ("prompt",)
            case ("input", int(index), *_) if index < self._before:
                return (self._source,)
            case ("input", int(index), *rest) if index < self._before + self._own:
                return ("input", index - self._before, *rest)
            case ("input", int(), *_):  # an item of the response itself
                return ()
            case ("max_tokens",):
                return ("max_output_tokens",)
            case ("logprobs",):
                return (self._logprobs,)
            case ("text", "format", *_) if self._text:
                return self._text
            case _:
                return path


class ChatParams(RenamedParams):
    """Names positions in the turn that was made from a chat request."""

    __slots__ = ("_origins", "_request")

    def __init__(self, request: ChatRequest, origins: Sequence[int] | None = None) -> None:
        """`origins` maps each item of the turn to the index of its message. None while there is no turn."""
        self._request = request
        self._origins = origins

    def renamed(self, path: ParamPath) -> ParamPath:
        request = self._request
        match path:
            case ("input", int(index), *rest) if self._origins is not None:
                return self._in_messages(self._origins, index, rest)
            case ("input",) | ("instructions",):
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
                return ("web_search_options",)  # the web search is appended to the request's tools
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

    def _in_messages(
        self, origins: Sequence[int], index: int, rest: Sequence[str | int]
    ) -> ParamPath:
        if index >= len(origins):  # an item of the answer itself
            return ()
        origin = origins[index]
        made = isinstance(next(iter(self._request.messages[origin:]), None), AssistantMessage)
        return ("messages", origin, *(_in_images(rest) if made else _in_message(rest)))


class CompletionParams(RenamedParams):
    """Names the parameters of a Completions request. All of its prompts have the same path."""

    __slots__ = ("_request",)

    def __init__(self, request: CompletionRequest) -> None:
        self._request = request

    def renamed(self, path: ParamPath) -> ParamPath:
        match path:
            case ("input", *_):
                return ("prompt",)
            case ("max_output_tokens",):
                return ("max_tokens",)
            case ("text", "format", *_):
                return text_path(self._request)
            case _:
                return path


class EmbeddingParams(RenamedParams):
    """Names the inputs of an embeddings request."""

    __slots__ = ("_several",)

    def __init__(self, *, several: bool) -> None:
        """`several`: whether the request has a list of inputs instead of a single one."""
        self._several = several

    def renamed(self, path: ParamPath) -> ParamPath:
        return ("input",) if path[:1] == ("input",) and not self._several else path


class ScoringParams(RenamedParams):
    """Names the texts of a rerank or score request."""

    __slots__ = ("_names", "_one_query", "_several")

    def __init__(
        self, names: tuple[str, str], several: tuple[bool, bool], *, one_query: bool
    ) -> None:
        """`names` are the client's parameters for queries and documents. `several`: whether each of the two is a list.
        `one_query`: whether all pairs have the same query."""
        self._names = names
        self._several = several
        self._one_query = one_query

    def renamed(self, path: ParamPath) -> ParamPath:
        match path:
            case ("pairs" | "input", int(index), 0, *_):
                return self._place(0, 0 if self._one_query else index)
            case ("pairs" | "input", int(index), *_):
                return self._place(1, index)
            case ("pairs" | "input", *_):
                return (self._names[1],)
            case ("max_tokens_per_document",):
                return ("max_tokens_per_doc",)
            case ("truncate_to",):
                return ("truncate_prompt_tokens",)
            case _:
                return path

    def _place(self, side: int, index: int) -> ParamPath:
        name = self._names[side]
        return (name, index) if self._several[side] else (name,)


class ApiParams(RenamedParams):
    """Names the parameters of a request to a plugin's API, by its `GenerationRequest.own_path`."""

    __slots__ = ("_own_path", "_text")

    def __init__(self, request: GenerationRequest) -> None:
        self._text = () if request.parameters is None else shared_path(request.parameters)
        self._own_path = request.own_path

    def renamed(self, path: ParamPath) -> ParamPath:
        if self._text and path[:2] == ("text", "format"):
            return self._text
        return path if self._own_path is None else self._own_path(path)


def _in_message(rest: Sequence[str | int]) -> Sequence[str | int]:
    match rest:
        case ["output" | "content", *below]:
            return ["content", *_in_part(below)]
        case ["call_id"]:
            return ["tool_call_id"]
        case _:
            return rest


def _in_images(rest: Sequence[str | int]) -> Sequence[str | int]:
    """Return the path within a message of the assistant, in which only images have an `output`."""
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


def tool_params(tools: Sequence[Tool], param: ParamPath = ("tools",)) -> dict[str, ParamPath]:
    """Map the names of a request's tools, as the model sees them, to the paths of their schemas and grammars."""
    found: dict[str, ParamPath] = {}
    for index, tool in enumerate(tools):
        match tool:
            case NamespaceTool(name=namespace):
                inner = tool_params(tool.tools, (*param, index, "tools"))
                found |= {qualified_name(name, namespace): path for name, path in inner.items()}
            case FunctionTool():
                found[tool.name] = (*param, index, "parameters")
            case CustomTool():
                found[tool.name] = (*param, index, "format", "definition")
            case _:
                pass
    return found


async def locate_fault(
    error: InvalidRequest,
    request: EngineRequest,
    structure: Constraint | None,
    engine: Engine,
    tools: Mapping[str, ParamPath],
) -> None:
    """Set the path of `error`, which the engine's `check` raised for `request`, to a parameter of the client's request.
    Does nothing if the error is not about a constraint.

    If several constraints could be the cause, the engine checks each of them separately. `structure`, if given, is the
    constraint on the final text. `tools` are the paths of the constraints of tools, as returned by `tool_params`.
    """
    if not _about_constraint(error.at):
        return
    suspects = _suspects(request.turn, structure, tools)
    if error.at == ("tools",):
        suspects = [(path, each) for path, each in suspects if path != TEXT_SCHEMA]
    elif error.at not in _ENGINES_WORDS:
        suspects = [(path, each) for path, each in suspects if path == TEXT_SCHEMA]
    asked = () if request.turn is None else request.turn.tools
    # The gateway's own tools are not in the request.
    sure = len(suspects) == 1 and all(tool.name in tools for tool in asked)
    for path, suspect in suspects:
        if sure or await _refuses(engine, request, suspect):
            error.at = path
            return
    if error.at in _ENGINES_WORDS:
        error.at = ()


def _about_constraint(path: ParamPath) -> bool:
    return path in _ENGINES_WORDS or path == ("tools",) or path[:2] == TEXT_SCHEMA[:2]


def _suspects(
    turn: Turn | None, structure: Constraint | None, tools: Mapping[str, ParamPath]
) -> list[tuple[ParamPath, Constraint]]:
    found: list[tuple[ParamPath, Constraint]] = []
    if structure is not None:
        found.append((TEXT_SCHEMA, structure))
    if turn is None:
        return found
    if structure is None and turn.text_format.schema is not None:
        found.append((TEXT_SCHEMA, JsonSchema(turn.text_format.schema)))
    for tool in turn.tools:
        path = tools.get(tool.name)
        wanted = tool.grammar if tool.kind == "custom" else JsonSchema(tool.parameters or {})
        if path is not None and wanted is not None:
            found.append((path, wanted))
    return found


async def _refuses(engine: Engine, request: EngineRequest, suspect: Constraint) -> bool:
    try:
        await engine.check(msgspec.structs.replace(request, constraint=suspect))
    except InvalidRequest as error:
        return not error.at or _about_constraint(error.at)
    return False
