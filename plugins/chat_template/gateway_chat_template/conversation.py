"""Items as a conversation of few kinds of entries: what somebody said, what the model did, what a tool gave back."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from gateway.errors import InvalidRequest
from gateway.protocols import CallRecord
from gateway.tools.client_run import call_arguments
from gateway.tools.toolset import qualified_name
from gateway.wire import content as parts
from gateway.wire import items as wire


class Image(Struct, frozen=True):
    """An image of a message, by URL."""

    url: str
    param: str
    """Which part it is, for messages about it."""


class Said(Struct, frozen=True):
    """A message of a user, a developer or the system."""

    role: Literal["user", "system", "developer"]
    content: list[str | Image]
    """Texts to be joined as they are, and images. Parts of text that a client sent apart have a line break between."""
    param: str
    """Which item it is, for messages about it."""


class Call(Struct, frozen=True):
    call_id: str
    name: str
    arguments: str
    """JSON, as the model wrote it."""


class Done(Struct):
    """What the model did in one go: reasoning, text, calls."""

    reasoning: list[str]
    text: list[str]
    calls: list[Call]
    param: str


class Result(Struct, frozen=True):
    """What a call gave back."""

    call_id: str
    name: str
    text: str
    param: str


Entry: TypeAlias = Said | Done | Result

_SHOWN_BELOW = "(The image follows.)"
_UNSEEN = "(An image, which this model cannot see.)"
_NOT_KEPT = "(What this call gave is not kept.)"


def conversation(
    items: Sequence[wire.Item],
    tool_names: Collection[str],
    results: Mapping[str, CallRecord] = {},
    *,
    sees_images: bool = True,
) -> list[Entry]:
    """The entries that `items` come to, in order.

    A call that the gateway or a client's shell ran is a call and its result, like any other. `tool_names` are the
    tools offered now: built-in calls are told by the name among them. `results` are the turn's. Where the model does not
    see images, those that tools gave are told as such: an agent that has looked at one would be refused ever after. Raises
    `InvalidRequest`, naming `input[i]`, for items that text cannot express.
    """
    reader = _Reader(tool_names, results, sees_images)
    for index, item in enumerate(items):
        reader.read(item, f"input[{index}]")
    reader.show_images()
    return reader.entries


class _Reader:
    def __init__(
        self, tool_names: Collection[str], results: Mapping[str, CallRecord], sees_images: bool
    ) -> None:
        self.entries: list[Entry] = []
        self._sees_images = sees_images
        self._tool_names = tool_names
        self._results = results
        self._names: dict[str, str] = {}
        """Of the calls so far, by call id."""
        self._awaiting: dict[str, wire.McpApprovalRequest] = {}
        self._images: list[Image] = []
        """Of the latest results, to be shown after all of them: results are text to templates."""

    def read(self, item: wire.Item, param: str) -> None:
        if not isinstance(item, wire.FunctionCallOutput | wire.CustomToolCallOutput):
            self.show_images()
        match item:
            case wire.Message(role="assistant"):
                self._done(param).text.append(_assistant_text(item))
            case wire.Message(role="user" | "system" | "developer" as role):
                self.entries.append(Said(role, _content(item.content, param), param))
            case wire.Reasoning():
                if item.content is not UNSET:
                    self._done(param).reasoning += [part.text for part in item.content if part.text]
            case wire.FunctionCall():
                name = qualified_name(item.name, item.namespace or None)
                self._call(item.call_id, name, item.arguments, param)
            case wire.CustomToolCall():
                name = qualified_name(item.name, item.namespace or None)
                self._call(item.call_id, name, _json({"input": item.input}), param)
            case wire.FunctionCallOutput() | wire.CustomToolCallOutput():
                text, images = _output(item.output, param)
                if images and not self._sees_images:
                    text, images = "\n".join([*filter(None, [text]), _UNSEEN]), []
                elif images and not text:
                    text = _SHOWN_BELOW
                self._images += images
                self._result(item.call_id, text, param)
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
            case _:
                self._read_builtin(item, param)

    def show_images(self) -> None:
        """What results have shown so far, as a message of the user."""
        if self._images:
            param = self._images[0].param.partition(".")[0]
            self.entries.append(Said("user", [*self._images], param))
            self._images = []

    def _read_builtin(self, item: wire.Item, param: str) -> None:
        match item:
            case wire.WebSearchCall():
                arguments = msgspec.to_builtins(item.action)
                sources = arguments.pop("sources", None) or []
                found = "\n".join(source["url"] for source in sources) or _NOT_KEPT
                name = self._builtin("web_search")
                self._served(item.id, name, _json(arguments), found, param)
            case wire.FileSearchCall():
                results = [result.text for result in item.results or () if result.text]
                name = self._builtin("file_search")
                arguments = {"queries": item.queries}
                told = "\n\n".join(results) or _NOT_KEPT
                self._served(item.id, name, _json(arguments), told, param)
            case wire.CodeInterpreterCall():
                logs = [
                    output.logs if isinstance(output, wire.InterpreterLogs) else "(an image)"
                    for output in item.outputs or ()
                ]
                name = self._builtin("code_interpreter", "python")
                arguments = _json({"code": item.code or ""})
                self._served(item.id, name, arguments, "\n".join(logs), param)
            case wire.LocalShellCall():
                told = _json(call_arguments(item))
                self._call(item.call_id, self._builtin("local_shell"), told, param)
            case wire.LocalShellCallOutput():
                self._result(item.call_id or item.id, item.output, param)
            case wire.ShellCall():
                told = _json(call_arguments(item))
                self._call(item.call_id, self._builtin("shell"), told, param)
            case wire.ShellCallOutput():
                self._result(item.call_id, "\n".join(map(_shell_output, item.output)), param)
            case wire.ApplyPatchCall():
                told = _json(call_arguments(item))
                self._call(item.call_id, self._builtin("apply_patch"), told, param)
            case wire.ApplyPatchCallOutput():
                self._result(item.call_id, item.output or item.status, param)
            case wire.ToolSearchCall():
                told = _json(call_arguments(item))
                call_id = item.call_id or item.id
                self._call(call_id, self._builtin("tool_search"), told, param)
            case wire.ToolSearchOutput():
                told = _json(msgspec.to_builtins(item.tools))
                self._result(item.call_id or self._last_call(), told, param)
            case (
                wire.McpListTools()
                | wire.AdditionalTools()
                | wire.ConfigurationUpdate()
                | wire.CompactionTrigger()
            ):
                pass  # about the request, not for the model: the turn's tools and settings have them
            case _:
                raise InvalidRequest(
                    f"Items of type '{_type(item)}' cannot be put into this model's prompt. Leave it out.",
                    param=param,
                )

    def _builtin(self, *names: str) -> str:
        return next((name for name in names if name in self._tool_names), names[0])

    def _last_call(self) -> str:
        return next(reversed(self._names), "")

    def _done(self, param: str) -> Done:
        last = self.entries[-1] if self.entries else None
        if isinstance(last, Done):
            return last
        done = Done([], [], [], param)
        self.entries.append(done)
        return done

    def _call(self, call_id: str, name: str, arguments: str, param: str) -> None:
        self._names[call_id] = name
        self._done(param).calls.append(Call(call_id, name, arguments))

    def _result(self, call_id: str, text: str, param: str) -> None:
        self.entries.append(Result(call_id, self._names.get(call_id, ""), text, param))

    def _served(self, item_id: str, name: str, arguments: str, result: str, param: str) -> None:
        """A call that the gateway ran: as it was, where that is known and the model still has the tool."""
        known = self._results.get(item_id)
        if known is not None:
            result = known.result
            if known.name in self._tool_names:
                name, arguments = known.name, known.arguments
        self._ran(item_id, name, arguments, result, param)

    def _ran(self, call_id: str, name: str, arguments: str, result: str, param: str) -> None:
        call_id = call_id or f"call_{len(self._names)}"
        self._call(call_id, name, arguments, param)
        self._result(call_id, result, param)


def _type(item: wire.Item) -> str:
    return str(item.__struct_config__.tag)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _assistant_text(message: wire.Message) -> str:
    texts = []
    for part in message.content:
        match part:
            case parts.OutputText():
                texts.append(part.text)
            case parts.Refusal():
                texts.append(part.refusal)
    return "".join(texts)


def _content(content: Sequence[parts.MessageContent], param: str) -> list[str | Image]:
    found: list[str | Image] = []
    for index, part in enumerate(content):
        where = f"{param}.content[{index}]"
        match part:
            case parts.InputText() | parts.OutputText() | parts.Refusal():
                if found and isinstance(found[-1], str):
                    found.append("\n")
                found.append(part.refusal if isinstance(part, parts.Refusal) else part.text)
            case parts.InputImage(image_url=str(url)):
                found.append(Image(url, f"{where}.type"))
            case parts.InputImage():
                raise InvalidRequest(
                    "An image has to be given by 'image_url' here: files are not kept.",
                    param=f"{where}.file_id",
                )
            case parts.InputFile() | parts.InputAudio():
                kind = "files" if isinstance(part, parts.InputFile) else "audio"
                raise InvalidRequest(
                    f"This model's prompt takes no {kind}. Send the content as text.",
                    param=f"{where}.type",
                )
    return found


def _output(output: str | list[parts.ToolOutputContent], param: str) -> tuple[str, list[Image]]:
    """The text of a result, and the images in it."""
    if isinstance(output, str):
        return output, []
    texts = []
    images = []
    for index, part in enumerate(output):
        where = f"{param}.output[{index}]"
        match part:
            case parts.InputText():
                texts.append(part.text)
            case parts.InputImage(image_url=str(url)):
                images.append(Image(url, f"{where}.type"))
            case _:
                raise InvalidRequest(
                    "This model's prompt takes only text, and images by 'image_url', as the output of a tool.",
                    param=f"{where}.type",
                )
    return "\n".join(texts), images


def _mcp_result(call: wire.McpCall) -> str:
    error = call.error
    if error is None:
        return call.output or ""
    told = call.output
    if not told and isinstance(error, wire.McpToolExecutionError):
        content = error.content
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            told = "\n".join(text for text in texts if isinstance(text, str))
        else:
            told = content if isinstance(content, str) else _json(content)
    elif not told:
        assert not isinstance(error, str | wire.McpToolExecutionError), "a string is converted"
        told = error.message
    return f"The call failed: {told}" if call.output is None else told or ""


def _shell_output(output: wire.ShellOutput) -> str:
    match output.outcome:
        case wire.ShellTimeout():
            end = "(timed out)"
        case wire.ShellExit(exit_code=code):
            end = f"(exit code {code})"
    return "\n".join(text for text in (output.stdout, output.stderr, end) if text)
