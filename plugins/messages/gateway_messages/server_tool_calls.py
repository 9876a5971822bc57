"""Shows calls of gateway tools in the format of this API: the tool, its input and its result.

Code and the arguments of MCP tools are streamed. For other tools the API has its own input formats, which require
the complete call.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from gateway.sdk import AvailableTool, SearchDetails, ServerTool, ShellDetails, ToolResult
from gateway.sdk.tools import StringFieldReader
from gateway.sdk.wire import SearchAction, ShellOutput, ShellTimeout, decode_text
from gateway_messages.answer import McpToolUseContent, ServerToolUseContent
from gateway_messages.tool_answer import (
    BashAnswer,
    BashError,
    BashResult,
    CodeAnswer,
    CodeError,
    CodeResult,
    Document,
    ErrorCode,
    McpAnswer,
    McpText,
    TextSource,
    ToolAnswer,
    WebFetchAnswer,
    WebFetchError,
    WebFetchResult,
    WebSearchAnswer,
    WebSearchError,
    WebSearchResult,
)

Seal: TypeAlias = Callable[[str], str]
OVERDUE: ErrorCode = "execution_time_exceeded"


class ServerToolUse(ABC):
    """A call, from its first delta to its result."""

    def __init__(self, call_id: str, prompt_name: str, offered: AvailableTool) -> None:
        """`prompt_name` is the tool's name as shown to the model."""
        self.id = call_id
        self._prompt_name = prompt_name
        self._offered = offered
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        """The arguments as the model wrote them."""
        return "".join(self._arguments)

    @abstractmethod
    def initial_block(self) -> ServerToolUseContent | McpToolUseContent:
        """The initial block, without input."""

    def write(self, text: str) -> str:
        """Add a piece of the arguments. Returns the newly known part of the input, as JSON."""
        self._arguments.append(text)
        return ""

    def end(self) -> str:
        """End the arguments. Returns the rest of the input."""
        return json.dumps(self._input(), ensure_ascii=False)

    def cut(self) -> str:
        """End truncated arguments. Returns the rest of the input, which is not complete JSON."""
        return self.arguments

    def _input(self) -> dict[str, Any]:
        """The arguments as an object; {} if they are not an object."""
        try:
            value = decode_text(self.arguments or "{}")
        except msgspec.DecodeError:
            return {}
        return value if isinstance(value, dict) else {}

    @abstractmethod
    def answer(self, result: ToolResult, seal: Seal) -> ToolAnswer:
        """The block of the call's result."""

    def _sealed(self, result: ToolResult, seal: Seal) -> str:
        """The complete record of the call, encrypted, for a later request."""
        record = result.record(self._prompt_name, self.arguments)
        return seal(msgspec.json.encode(record).decode())


class SearchToolUse(ServerToolUse):
    def initial_block(self) -> ServerToolUseContent:
        return ServerToolUseContent(id=self.id, name="web_search", input={})

    def answer(self, result: ToolResult, seal: Seal) -> WebSearchAnswer:
        if result.failed:
            error = WebSearchError(error_code=_error_code(result, "unavailable"))
            return WebSearchAnswer(tool_use_id=self.id, content=error)
        titles = {source.url: source.title for source in result.sources}
        details = result.details
        action = details.action if isinstance(details, SearchDetails) else None
        shown = action.sources if isinstance(action, SearchAction) else None
        urls = dict.fromkeys([*(each.url for each in shown or ()), *titles])
        found = [
            WebSearchResult(
                url=url,
                title=titles.get(url) or url,
                encrypted_content="" if number else self._sealed(result, seal),
            )
            for number, url in enumerate(urls)
        ]
        return WebSearchAnswer(tool_use_id=self.id, content=found)


class FetchToolUse(ServerToolUse):
    """Opening a page, or searching one for a pattern."""

    def initial_block(self) -> ServerToolUseContent:
        return ServerToolUseContent(id=self.id, name="web_fetch", input={})

    def _input(self) -> dict[str, Any]:
        given = super()._input()
        if isinstance(given.get("id"), str):
            given["url"] = given.pop("id")
        return given

    def answer(self, result: ToolResult, seal: Seal) -> WebFetchAnswer:
        if result.failed:
            error = WebFetchError(error_code=_error_code(result, "url_not_accessible"))
            return WebFetchAnswer(tool_use_id=self.id, content=error)
        source = result.sources[0] if result.sources else None
        details = result.details
        action = details.action if isinstance(details, SearchDetails) else None
        url = getattr(action, "url", None) or (source.url if source else "")
        page = Document(
            source=TextSource(data=result.text), title=(source.title or None) if source else None
        )
        return WebFetchAnswer(
            tool_use_id=self.id,
            content=WebFetchResult(
                url=url, content=page, encrypted_content=self._sealed(result, seal)
            ),
        )


class CodeToolUse(ServerToolUse):
    def __init__(self, call_id: str, prompt_name: str, offered: AvailableTool) -> None:
        super().__init__(call_id, prompt_name, offered)
        self._reader = StringFieldReader("code")
        self._begun = False

    def initial_block(self) -> ServerToolUseContent:
        return ServerToolUseContent(id=self.id, name="code_execution", input={})

    def write(self, text: str) -> str:
        super().write(text)
        return self._code(self._reader.feed(text))

    def end(self) -> str:
        return self.cut() + ('"}' if self._begun else '{"code": ""}')

    def cut(self) -> str:
        return self._code(self._reader.finish())

    def _code(self, code: str) -> str:
        if not code:
            return ""
        head = "" if self._begun else '{"code": "'
        self._begun = True
        return head + json.dumps(code, ensure_ascii=False)[1:-1]

    def answer(self, result: ToolResult, seal: Seal) -> CodeAnswer:
        content: CodeResult | CodeError
        if result.fault is not None:
            content = CodeError(error_code=_error_code(result, "unavailable", time_limit=OVERDUE))
        else:
            content = CodeResult(
                stdout="" if result.failed else result.text,
                stderr=result.text if result.failed else "",
                return_code=int(result.failed),
            )
        return CodeAnswer(tool_use_id=self.id, content=content)


class ShellToolUse(ServerToolUse):
    def initial_block(self) -> ServerToolUseContent:
        return ServerToolUseContent(id=self.id, name="bash_code_execution", input={})

    def _input(self) -> dict[str, Any]:
        given = super()._input()
        commands = given.pop("commands", None)
        if isinstance(commands, str):
            return {"command": commands, **given}
        if isinstance(commands, list):
            return {"command": "\n".join(map(str, commands)), **given}
        return given

    def answer(self, result: ToolResult, seal: Seal) -> BashAnswer:
        content: BashResult | BashError
        if result.fault is not None:
            content = BashError(error_code=_error_code(result, "unavailable", time_limit=OVERDUE))
        elif result.failed:
            content = BashResult(stdout="", stderr=result.text, return_code=1)
        else:
            details = result.details
            output = details.output if isinstance(details, ShellDetails) else ()
            content = _command_result(output, result.text)
        return BashAnswer(tool_use_id=self.id, content=content)


class McpToolUse(ServerToolUse):
    def initial_block(self) -> McpToolUseContent:
        offered = self._offered
        return McpToolUseContent(
            id=self.id,
            name=offered.tool.definition.name,
            server_name=offered.server_label,
            input={},
        )

    def write(self, text: str) -> str:
        super().write(text)
        return text

    def end(self) -> str:
        return ""

    def cut(self) -> str:
        return ""

    def answer(self, result: ToolResult, seal: Seal) -> McpAnswer:
        return McpAnswer(
            tool_use_id=self.id, is_error=result.failed, content=[McpText(text=result.text)]
        )


def server_tool_call(
    prompt_name: str, offered: AvailableTool, new_id: Callable[[str], str]
) -> ServerToolUse:
    """A new call of `offered`, by the name shown to the model."""
    match offered.tool.item_type:
        case "web_search_call":
            kind = SearchToolUse if _searches(offered.tool) else FetchToolUse
            return kind(new_id("srvtoolu_"), prompt_name, offered)
        case "code_interpreter_call":
            return CodeToolUse(new_id("srvtoolu_"), prompt_name, offered)
        case "shell_call":
            return ShellToolUse(new_id("srvtoolu_"), prompt_name, offered)
        case _:
            return McpToolUse(new_id("mcptoolu_"), prompt_name, offered)


def _searches(tool: ServerTool) -> bool:
    """Whether the tool searches for pages, rather than within one."""
    return "query" in ((tool.definition.parameters or {}).get("properties") or {})


def _error_code(
    result: ToolResult, otherwise: ErrorCode, *, time_limit: ErrorCode | None = None
) -> ErrorCode:
    """The API's error code for a failure: `otherwise` if it has none, `time_limit` for a timeout. The codes of code
    execution include no `max_uses_exceeded`."""
    match result.fault:
        case "arguments":
            return "invalid_tool_input"
        case "time_limit":
            return time_limit or otherwise
        case "max_uses":
            return "too_many_requests" if time_limit == OVERDUE else "max_uses_exceeded"
        case "unavailable":
            return "unavailable"
        case None:
            return otherwise


def _command_result(output: Sequence[ShellOutput], text: str) -> BashResult:
    """The output of commands, concatenated, and the exit code of the last one that failed. A timeout has exit code
    124, as in shells."""
    if not output:
        return BashResult(stdout=text, stderr="", return_code=0)
    code = 0
    for each in output:
        outcome = each.outcome
        code = (124 if isinstance(outcome, ShellTimeout) else outcome.exit_code) or code
    return BashResult(
        stdout="".join(each.stdout for each in output),
        stderr="".join(each.stderr for each in output),
        return_code=code,
    )
