"""Converts items to Harmony messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from gateway.sdk import CallRecord, InvalidRequest, ParamPath, ToolDefinition
from gateway.sdk.tools import NOT_STORED, CallHistory, json_text
from gateway.sdk.wire import content as parts
from gateway.sdk.wire import items as wire
from gateway_harmony.calls import PYTHON, is_built_in, is_family_name
from gateway_harmony.messages import HarmonyMessage

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


def _is_passed_over(item: wire.Item) -> bool:
    """Whether this stands between a preamble and its call: reasoning, or a message without content."""
    if isinstance(item, wire.Message):
        return item.role == "assistant" and not item.content
    return isinstance(item, wire.Reasoning)


class HarmonyConverter(CallHistory):
    """Converts items in order. Raises `InvalidRequest`, naming `input[i]`, for items that cannot be expressed as
    text."""

    def __init__(
        self, tools: Sequence[ToolDefinition], results: Mapping[str, CallRecord] = {}
    ) -> None:
        """`tools` are the tools of this request; built-in calls are shown under their name among them. `results` are
        the turn's."""
        self._tools: Mapping[str, ToolDefinition] = {tool.name: tool for tool in tools}
        super().__init__(self._tools, results)
        self.messages: list[HarmonyMessage] = []

    def read(self, items: Sequence[wire.Item], first: int = 0) -> None:
        """Convert `items`. `first` is the index of the first one in the request."""
        for index, item in enumerate(items):
            if isinstance(item, wire.Message) and item.role == "assistant":
                self._answer(item, items[index + 1 :])
            else:
                self._read(item, ("input", first + index))

    def _answer(self, item: wire.Message, after: Sequence[wire.Item]) -> None:
        """Add an assistant message. If its phase is missing, a message that precedes a call is a preamble."""
        phase = item.phase
        following = next((each for each in after if not _is_passed_over(each)), None)
        if not item.content and isinstance(following, _CALLS):
            return  # it only says that the calls are a message of their own, as they are here in any case
        if phase is UNSET:
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

    def _read(self, item: wire.Item, param: ParamPath) -> None:
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
            case wire.FunctionCallOutput() | wire.CustomToolCallOutput():
                self.add_result(item.call_id or "", _output(item.output, param), param)
            case _:
                self.read_call(item, param)

    def read_code(self, item: wire.CodeInterpreterCall, output: str, param: ParamPath) -> None:
        """Add the call in the models' own form, unless the tool offered now is a function."""
        name, arguments = PYTHON, item.code or ""
        tool = self._tools.get(PYTHON)
        if tool is None and "code_interpreter" in self._tools:
            name, arguments = "code_interpreter", json_text({"code": arguments})
        elif tool is not None and not is_built_in(tool):
            arguments = json_text({"code": arguments})
        self.server_call(item.id, name, arguments, output, param)

    def read_search(self, item: wire.WebSearchCall, param: ParamPath) -> None:
        """Add a search call in the models' own form, unless the tool offered now has another name."""
        action = item.action
        found = NOT_STORED
        match action:
            case wire.SearchAction():
                name = "browser.search"
                query = action.query or "\n".join(action.queries or ())
                arguments = {"query": query}
                found = "\n".join(each.url for each in action.sources or ()) or NOT_STORED
            case wire.OpenPageAction():
                name, arguments = "browser.open", {"id": action.url or ""}
            case wire.FindInPageAction():
                name, arguments = "browser.find", {"pattern": action.pattern}
        if name not in self._tools and "web_search" in self._tools:
            name, arguments = "web_search", msgspec.to_builtins(action)
        self.server_call(item.id, name, json_text(arguments), found, param)

    def add_call(self, call_id: str, name: str, arguments: str, param: ParamPath) -> None:
        address = self._address(name)
        built_in = address == name
        self.messages.append(
            HarmonyMessage(
                author="assistant",
                channel="analysis" if built_in else "commentary",
                recipient=address,
                content_type="code" if built_in and name == PYTHON else "json",
                text=arguments,
            )
        )

    def add_result(self, call_id: str, text: str, param: ParamPath) -> None:
        name = self.answered(call_id)
        if name is None:
            raise InvalidRequest(
                f"No tool call found for the output with call_id '{call_id}'. Send the call before its output.",
                param=(*param, "call_id"),
            )
        self.messages.append(
            HarmonyMessage(
                author=self._address(name), channel="commentary", recipient="assistant", text=text
            )
        )

    def _address(self, name: str) -> str:
        """The recipient of calls of a tool."""
        tool = self._tools.get(name)
        built_in = is_family_name(name) if tool is None else is_built_in(tool)
        return name if built_in else f"functions.{name}"


def message_text(content: Sequence[parts.MessageContent], param: ParamPath) -> str:
    """The text of a message's parts. Separate parts are joined by a line break."""
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
                    param=(*param, "content", index, "type"),
                )
    return "\n".join(texts)


def _type(part: parts.MessageContent | parts.ToolOutputContent) -> str:
    return str(part.__struct_config__.tag)


def _output(output: str | list[parts.ToolOutputContent], param: ParamPath) -> str:
    if isinstance(output, str):
        return output
    texts: list[str] = []
    for index, part in enumerate(output):
        match part:
            case parts.InputText():
                texts.append(part.text)
            case parts.InputImage():
                # Rejecting it would block every later request of an agent whose tool has returned an image.
                texts.append("(An image, which this model cannot see.)")
            case _:
                raise InvalidRequest(
                    "This model takes only text as the output of a tool.",
                    param=(*param, "output", index, "type"),
                )
    return "\n".join(texts)
