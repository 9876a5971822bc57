"""Calls of the tools that the gateway runs, as this API shows them: what was called, with what, and what came of it.

Code and the arguments of MCP tools are shown while they are written. Of the others the API has forms of its own, which can
only be told when a call is whole.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from gateway.protocols import CallRecord, OfferedTool, ServedTool, ToolResult
from gateway.tools.string_field import StringFieldReader
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


class ServedCall(ABC):
    """A call, from its first delta to its answer."""

    def __init__(self, call_id: str, told: str, offered: OfferedTool) -> None:
        """`told` is the tool's name as the model knows it."""
        self.id = call_id
        self._told = told
        self._offered = offered
        self._arguments: list[str] = []

    @property
    def arguments(self) -> str:
        """As the model wrote them."""
        return "".join(self._arguments)

    @abstractmethod
    def begun(self) -> ServerToolUseContent | McpToolUseContent:
        """The block without its input."""

    def write(self, text: str) -> str:
        """More of the arguments; what is now known of the input, as JSON."""
        self._arguments.append(text)
        return ""

    def end(self) -> str:
        """All is written; the rest of the input."""
        return json.dumps(self._input(), ensure_ascii=False)

    def cut(self) -> str:
        """The output has ended before; what is left to be told of the input, which is no whole JSON."""
        return self.arguments

    def _input(self) -> dict[str, Any]:
        """The arguments as an object; {} where they are none."""
        try:
            value = msgspec.json.decode(self.arguments or "{}")
        except (msgspec.DecodeError, RecursionError):
            return {}
        return value if isinstance(value, dict) else {}

    @abstractmethod
    def answer(self, result: ToolResult, seal: Seal) -> ToolAnswer:
        """The block of its result."""

    def _sealed(self, result: ToolResult, seal: Seal) -> str:
        """All that the model knows of the call, for a later request."""
        record = CallRecord(
            name=self._told,
            arguments=self.arguments,
            result=result.text,
            sources=result.sources,
            files=result.files,
        )
        return seal(msgspec.json.encode(record).decode())


class SearchCall(ServedCall):
    def begun(self) -> ServerToolUseContent:
        return ServerToolUseContent(id=self.id, name="web_search", input={})

    def answer(self, result: ToolResult, seal: Seal) -> WebSearchAnswer:
        if result.failed:
            error = WebSearchError(error_code=_error_code(result, "unavailable"))
            return WebSearchAnswer(tool_use_id=self.id, content=error)
        titles = {source.url: source.title for source in result.sources}
        shown = result.details.get("action", {}).get("sources", ())
        urls = dict.fromkeys([*(each["url"] for each in shown), *titles])
        found = [
            WebSearchResult(
                url=url,
                title=titles.get(url) or url,
                encrypted_content="" if number else self._sealed(result, seal),
            )
            for number, url in enumerate(urls)
        ]
        return WebSearchAnswer(tool_use_id=self.id, content=found)


class FetchCall(ServedCall):
    """A page that is opened, or searched for a pattern."""

    def begun(self) -> ServerToolUseContent:
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
        url = result.details.get("action", {}).get("url") or (source.url if source else "")
        page = Document(
            source=TextSource(data=result.text), title=(source.title or None) if source else None
        )
        return WebFetchAnswer(
            tool_use_id=self.id,
            content=WebFetchResult(
                url=url, content=page, encrypted_content=self._sealed(result, seal)
            ),
        )


class CodeCall(ServedCall):
    def __init__(self, call_id: str, told: str, offered: OfferedTool) -> None:
        super().__init__(call_id, told, offered)
        self._reader = StringFieldReader("code")
        self._begun = False

    def begun(self) -> ServerToolUseContent:
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


class ShellCall(ServedCall):
    def begun(self) -> ServerToolUseContent:
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
            content = _ran(result.details.get("output", ()), result.text)
        return BashAnswer(tool_use_id=self.id, content=content)


class McpCall(ServedCall):
    def begun(self) -> McpToolUseContent:
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


def served_call(told: str, offered: OfferedTool, new_id: Callable[[str], str]) -> ServedCall:
    """A call of `offered` begins, by the name that the model is told."""
    match offered.tool.item_type:
        case "web_search_call":
            kind = SearchCall if _searches(offered.tool) else FetchCall
            return kind(new_id("srvtoolu_"), told, offered)
        case "code_interpreter_call":
            return CodeCall(new_id("srvtoolu_"), told, offered)
        case "shell_call":
            return ShellCall(new_id("srvtoolu_"), told, offered)
        case _:
            return McpCall(new_id("mcptoolu_"), told, offered)


def _searches(tool: ServedTool) -> bool:
    """Whether it looks for pages, rather than into one."""
    return "query" in ((tool.definition.parameters or {}).get("properties") or {})


def _error_code(
    result: ToolResult, otherwise: ErrorCode, *, time_limit: ErrorCode | None = None
) -> ErrorCode:
    """The API's word for a failure; `otherwise` where it has none, `time_limit` for that (code's, which knows no uses)."""
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


def _ran(output: Sequence[dict[str, Any]], text: str) -> BashResult:
    """What commands wrote, one after the other, and the exit code of the last that failed; 124, as shells say, for time."""
    if not output:
        return BashResult(stdout=text, stderr="", return_code=0)
    code = 0
    for each in output:
        outcome = each["outcome"]
        code = (124 if outcome["type"] == "timeout" else outcome["exit_code"]) or code
    return BashResult(
        stdout="".join(each["stdout"] for each in output),
        stderr="".join(each["stderr"] for each in output),
        return_code=code,
    )
