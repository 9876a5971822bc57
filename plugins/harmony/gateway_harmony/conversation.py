"""Items as Harmony messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from gateway.errors import InvalidRequest
from gateway.protocols.prompt import CallRecord, ToolDefinition
from gateway.tools.client_run import call_arguments
from gateway.tools.toolset import qualified_name
from gateway.wire import content as parts
from gateway.wire import items as wire
from gateway_harmony.calls import PYTHON, is_built_in, is_family_name
from gateway_harmony.messages import HarmonyMessage

_NOT_KEPT = "(What this call gave is not kept.)"
_SILENT = (
    wire.McpListTools,
    wire.AdditionalTools,
    wire.ConfigurationUpdate,
    wire.CompactionTrigger,
)
"""About the request, not for the model: the turn's tools and settings have them."""
_CALLS = (
    wire.FunctionCall,
    wire.CustomToolCall,
    wire.McpCall,
    wire.McpApprovalRequest,
    wire.WebSearchCall,
    wire.FileSearchCall,
    wire.CodeInterpreterCall,
    wire.LocalShellCall,
    wire.ShellCall,
    wire.ApplyPatchCall,
    wire.ToolSearchCall,
)


class Conversation:
    """Reads items in order. Raises `InvalidRequest`, naming `input[i]`, for what text cannot express."""

    def __init__(
        self, tools: Sequence[ToolDefinition], results: Mapping[str, CallRecord] = {}
    ) -> None:
        """`tools` are those offered now: a built-in call is told by the name that it has among them. `results` are the
        turn's."""
        self.messages: list[HarmonyMessage] = []
        self._tools: Mapping[str, ToolDefinition] = {tool.name: tool for tool in tools}
        self._results = results
        self._addresses: dict[str, str] = {}
        """Of the calls so far, by call id."""
        self._awaiting: dict[str, wire.McpApprovalRequest] = {}

    def read(self, items: Sequence[wire.Item], first: int = 0) -> None:
        """Append `items`; `first` is the index of the first in the request."""
        for index, item in enumerate(items):
            if isinstance(item, wire.Message) and item.role == "assistant":
                self._answer(item, items[index + 1 :])
            else:
                self._read(item, f"input[{first + index}]")

    def _answer(self, item: wire.Message, after: Sequence[wire.Item]) -> None:
        """An assistant's message. Where a client dropped its phase: what leads to a call is a preamble."""
        phase = item.phase
        if phase is UNSET:
            following = next((each for each in after if not isinstance(each, wire.Reasoning)), None)
            phase = "commentary" if isinstance(following, _CALLS) else "final_answer"
        text = "".join(
            part.refusal if isinstance(part, parts.Refusal) else part.text
            for part in item.content
            if isinstance(part, parts.OutputText | parts.Refusal)
        )
        self.messages.append(
            HarmonyMessage(
                author="assistant",
                channel="commentary" if phase == "commentary" else "final",
                text=text,
            )
        )

    def _read(self, item: wire.Item, param: str) -> None:
        match item:
            case wire.Message():
                author = "user" if item.role == "user" else "developer"
                self.messages.append(
                    HarmonyMessage(author=author, text=message_text(item.content, param))
                )
            case wire.Reasoning():
                thought = "" if item.content is UNSET else "".join(p.text for p in item.content)
                if thought:
                    self.messages.append(
                        HarmonyMessage(author="assistant", channel="analysis", text=thought)
                    )
            case wire.FunctionCall():
                name = qualified_name(item.name, item.namespace or None)
                self._call(item.call_id, name, item.arguments)
            case wire.CustomToolCall():
                name = qualified_name(item.name, item.namespace or None)
                self._call(item.call_id, name, _json({"input": item.input}))
            case wire.FunctionCallOutput() | wire.CustomToolCallOutput():
                self._result(item.call_id, _output(item.output, param), param)
            case wire.McpCall():
                self._ran(item.id, item.name, item.arguments, _mcp_result(item), param)
            case wire.McpApprovalRequest():
                self._awaiting[item.id] = item
            case wire.McpApprovalResponse():
                asked = self._awaiting.pop(item.approval_request_id, None)
                if asked is not None and not item.approve:
                    told = "The user did not approve this call."
                    told += f" Reason: {item.reason}" if item.reason else ""
                    self._ran(asked.id, asked.name, asked.arguments, told, param)
            case wire.CodeInterpreterCall():
                self._code(item, param)
            case wire.WebSearchCall():
                self._search(item, param)
            case wire.FileSearchCall():
                found = [result.text for result in item.results or () if result.text]
                self._served(
                    item.id,
                    "file_search",
                    _json({"queries": item.queries}),
                    "\n\n".join(found) or _NOT_KEPT,
                    param,
                )
            case _ if not isinstance(item, _SILENT):
                self._read_client_call(item, param)

    def _read_client_call(self, item: wire.Item, param: str) -> None:
        """The calls of the API's own tools that the client runs: functions to this model."""
        match item:
            case wire.LocalShellCall():
                self._call(item.call_id, "local_shell", _json(call_arguments(item)))
            case wire.LocalShellCallOutput():
                self._result(item.call_id or item.id, item.output, param)
            case wire.ShellCall():
                self._call(item.call_id, "shell", _json(call_arguments(item)))
            case wire.ShellCallOutput():
                self._result(item.call_id, "\n".join(map(_shell_output, item.output)), param)
            case wire.ApplyPatchCall():
                self._call(item.call_id, "apply_patch", _json(call_arguments(item)))
            case wire.ApplyPatchCallOutput():
                self._result(item.call_id, item.output or item.status, param)
            case wire.ToolSearchCall():
                call_id = item.call_id or item.id
                self._call(call_id, "tool_search", _json(call_arguments(item)))
            case wire.ToolSearchOutput():
                call_id = item.call_id or next(reversed(self._addresses), "")
                self._result(call_id, _json(msgspec.to_builtins(item.tools)), param)
            case _:
                kind = item.__struct_config__.tag
                raise InvalidRequest(
                    f"Items of type '{kind}' cannot be put into this model's prompt. Leave it out.",
                    param=param,
                )

    def _code(self, item: wire.CodeInterpreterCall, param: str) -> None:
        logs = [
            output.logs if isinstance(output, wire.InterpreterLogs) else "(an image)"
            for output in item.outputs or ()
        ]
        code = item.code or ""
        if PYTHON not in self._tools and "code_interpreter" in self._tools:
            self._served(item.id, "code_interpreter", _json({"code": code}), "\n".join(logs), param)
        elif (tool := self._tools.get(PYTHON)) is not None and not is_built_in(tool):
            self._served(item.id, PYTHON, _json({"code": code}), "\n".join(logs), param)
        else:
            self._served(item.id, PYTHON, code, "\n".join(logs), param)

    def _search(self, item: wire.WebSearchCall, param: str) -> None:
        """The call as the models know it, unless the tool offered now has another name."""
        action = item.action
        found = _NOT_KEPT
        match action:
            case wire.SearchAction():
                name = "browser.search"
                query = action.query or "\n".join(action.queries or ())
                arguments = {"query": query}
                found = "\n".join(each.url for each in action.sources or ()) or _NOT_KEPT
            case wire.OpenPageAction():
                name, arguments = "browser.open", {"id": action.url or ""}
            case wire.FindInPageAction():
                name, arguments = "browser.find", {"pattern": action.pattern}
        if name not in self._tools and "web_search" in self._tools:
            name, arguments = "web_search", msgspec.to_builtins(action)
        self._served(item.id, name, _json(arguments), found, param)

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        tool = self._tools.get(name)
        built_in = is_family_name(name) if tool is None else is_built_in(tool)
        address = name if built_in else f"functions.{name}"
        self._addresses[call_id] = address
        self.messages.append(
            HarmonyMessage(
                author="assistant",
                channel="analysis" if built_in else "commentary",
                recipient=address,
                content_type="code" if built_in and name == PYTHON else "json",
                text=arguments,
            )
        )

    def _result(self, call_id: str, text: str, param: str) -> None:
        address = self._addresses.get(call_id)
        if address is None:
            raise InvalidRequest(
                f"No tool call found for the output with call_id '{call_id}'. Send the call before its output.",
                param=f"{param}.call_id",
            )
        self.messages.append(
            HarmonyMessage(author=address, channel="commentary", recipient="assistant", text=text)
        )

    def _served(self, item_id: str, name: str, arguments: str, result: str, param: str) -> None:
        """A call that the gateway ran: as it was, where that is known and the model still has the tool."""
        known = self._results.get(item_id)
        if known is not None:
            result = known.result
            if known.name in self._tools:
                name, arguments = known.name, known.arguments
        self._ran(item_id, name, arguments, result, param)

    def _ran(self, call_id: str, name: str, arguments: str, result: str, param: str) -> None:
        call_id = call_id or f"call_{len(self._addresses)}"
        self._call(call_id, name, arguments)
        self._result(call_id, result, param)


def message_text(content: Sequence[parts.MessageContent], param: str) -> str:
    """The text of a message's parts; those that a client sent apart have a line break between."""
    texts: list[str] = []
    for index, part in enumerate(content):
        match part:
            case parts.InputText() | parts.OutputText():
                texts.append(part.text)
            case parts.Refusal():
                texts.append(part.refusal)
            case _:
                kind = {"input_image": "images", "input_file": "files"}.get(_type(part), "audio")
                raise InvalidRequest(
                    f"This model takes no {kind}. Send the content as text.",
                    param=f"{param}.content[{index}].type",
                )
    return "\n".join(texts)


def _type(part: parts.MessageContent | parts.ToolOutputContent) -> str:
    return str(part.__struct_config__.tag)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _output(output: str | list[parts.ToolOutputContent], param: str) -> str:
    if isinstance(output, str):
        return output
    texts: list[str] = []
    for index, part in enumerate(output):
        match part:
            case parts.InputText():
                texts.append(part.text)
            case parts.InputImage():
                # An agent whose tool has shown an image could go on with no request otherwise.
                texts.append("(An image, which this model cannot see.)")
            case _:
                raise InvalidRequest(
                    "This model takes only text as the output of a tool.",
                    param=f"{param}.output[{index}].type",
                )
    return "\n".join(texts)


def _mcp_result(call: wire.McpCall) -> str:
    error = call.error
    if error is None:
        return call.output or ""
    if call.output:
        return call.output
    if isinstance(error, wire.McpToolExecutionError):
        content = error.content
        if isinstance(content, list):
            said = [part.get("text") for part in content if isinstance(part, dict)]
            told = "\n".join(text for text in said if isinstance(text, str))
        else:
            told = content if isinstance(content, str) else _json(content)
    else:
        told = error if isinstance(error, str) else error.message
    return f"The call failed: {told}"


def _shell_output(output: wire.ShellOutput) -> str:
    match output.outcome:
        case wire.ShellTimeout():
            end = "(timed out)"
        case wire.ShellExit(exit_code=code):
            end = f"(exit code {code})"
    return "\n".join(text for text in (output.stdout, output.stderr, end) if text)
