"""Converting the tool calls and results of a conversation to the function calls that a model reads."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from gateway.base.errors import InvalidRequest, ParamPath
from gateway.plugins.protocols import CallRecord
from gateway.tools.client_functions import qualified_name
from gateway.tools.client_run import call_arguments
from gateway.tools.listed_names import qualified
from gateway.wire import items
from gateway.wire.content import InputImage

NOT_STORED = "(What this call gave is not kept.)"
"""Text in place of a result that the call's item does not contain."""

IMAGE_GENERATION: Final = "image_generation"
IMAGE_MADE: Final = "An image was made."


class CallHistory:
    """Reads items in order. A renderer implements `add_call` and `add_result`, and may override `add_images`,
    `read_search` and `read_code`.

    `param` is the position of an item in the request, for errors.
    """

    def __init__(self, tool_names: Collection[str], results: Mapping[str, CallRecord]) -> None:
        """`tool_names` are the tools that are offered now. `results` are the known results of the turn, by item id."""
        self.tool_names = tool_names
        self.names: dict[str, str] = {}
        """Tool names of earlier calls, by call id."""
        self._unanswered: dict[str, deque[str]] = {}
        """The names of the calls of each id that have no result yet."""
        self._results = results
        self._awaiting: dict[str, items.McpApprovalRequest] = {}

    def add_call(self, call_id: str, name: str, arguments: str, param: ParamPath) -> None:
        """Add a call. `arguments` are JSON, or the text that `read_code` passes."""
        raise NotImplementedError

    def add_result(self, call_id: str, text: str, param: ParamPath) -> None:
        """Add the result of the call with the id `call_id`, which may be unknown."""
        raise NotImplementedError

    def add_images(self, images: Sequence[InputImage], param: ParamPath) -> None:
        """Add the images of the result that was added last. By default they are left out; the text of the result
        mentions them."""

    def read_call(self, item: items.Item, param: ParamPath) -> None:
        """Add the calls and results of an item that is not a message, reasoning, or output of a function.

        Adds nothing for items that set tools or settings: the turn already contains these. Raises `InvalidRequest` for
        items that cannot be shown to a model.
        """
        match item:
            case items.FunctionCall():
                name = qualified_name(item.name, item.namespace or None)
                self.call(item.call_id, name, item.arguments, param)
            case items.CustomToolCall():
                name = qualified_name(item.name, item.namespace or None)
                self.call(item.call_id, name, json_text({"input": item.input}), param)
            case items.McpCall():
                name = self._offered_name(item.server_label, item.name)
                self._add_result(item.id, name, item.arguments, _mcp_result(item), param)
            case items.McpApprovalRequest():
                self._awaiting[item.id] = item
            case items.McpApprovalResponse():
                asked = self._awaiting.pop(item.approval_request_id, None)
                if asked is not None and not item.approve:
                    model_text = "The user did not approve this call."
                    model_text += f" Reason: {item.reason}" if item.reason else ""
                    name = self._offered_name(asked.server_label, asked.name)
                    self._add_result(asked.id, name, asked.arguments, model_text, param)
            case items.WebSearchCall():
                self.read_search(item, param)
            case items.FileSearchCall():
                found = [result.text for result in item.results or () if result.text]
                arguments = json_text({"queries": item.queries})
                model_text = "\n\n".join(found) or NOT_STORED
                self.server_call(item.id, "file_search", arguments, model_text, param)
            case items.ImageGenerationCall():
                prompt = json_text({"prompt": item.revised_prompt or ""})
                made = IMAGE_MADE if item.result else "No image was made."
                self.server_call(item.id, IMAGE_GENERATION, prompt, made, param)
            case items.CodeInterpreterCall():
                logs = [
                    output.logs if isinstance(output, items.InterpreterLogs) else "(an image)"
                    for output in item.outputs or ()
                ]
                self.read_code(item, "\n".join(logs), param)
            case items.LocalShellCall():
                model_text = json_text(call_arguments(item))
                self.call(item.call_id, "local_shell", model_text, param)
            case items.LocalShellCallOutput():
                self.add_result(item.call_id or item.id, item.output, param)
            case items.ShellCall():
                self.call(item.call_id, "shell", json_text(call_arguments(item)), param)
            case items.ShellCallOutput():
                self.add_result(item.call_id, "\n".join(map(_shell_output, item.output)), param)
            case items.ApplyPatchCall():
                model_text = json_text(call_arguments(item))
                self.call(item.call_id, "apply_patch", model_text, param)
            case items.ApplyPatchCallOutput():
                self.add_result(item.call_id, item.output or item.status, param)
            case items.ToolSearchCall():
                model_text = json_text(call_arguments(item))
                self.call(item.call_id or item.id, "tool_search", model_text, param)
            case items.ToolSearchOutput():
                call_id = item.call_id or next(reversed(self.names), "")
                self.add_result(call_id, json_text(msgspec.to_builtins(item.tools)), param)
            case (
                items.McpListTools()
                | items.AdditionalTools()
                | items.ConfigurationUpdate()
                | items.CompactionTrigger()
            ):
                pass
            case _:
                raise InvalidRequest(
                    f"Items of type '{item.__struct_config__.tag}' cannot be put into this model's prompt. Leave it out.",
                    param=param,
                )

    def _offered_name(self, label: str, name: str) -> str:
        """The name by which the model sees the tool of a listed server in this turn."""
        full = qualified(label, name)
        return full if full in self.tool_names else name

    def read_search(self, item: items.WebSearchCall, param: ParamPath) -> None:
        """Add a search call and its result."""
        arguments = msgspec.to_builtins(item.action)
        sources = arguments.pop("sources", None) or []
        found = "\n".join(source["url"] for source in sources) or NOT_STORED
        self.server_call(item.id, "web_search", json_text(arguments), found, param)

    def read_code(self, item: items.CodeInterpreterCall, output: str, param: ParamPath) -> None:
        """Add a call that ran code, and its output."""
        names = ("code_interpreter", "python")
        name = next((name for name in names if name in self.tool_names), names[0])
        self.server_call(item.id, name, json_text({"code": item.code or ""}), output, param)

    def call(self, call_id: str, name: str, arguments: str, param: ParamPath) -> None:
        """Add a call, and note its name."""
        self.names[call_id] = name
        self._unanswered.setdefault(call_id, deque()).append(name)
        self.add_call(call_id, name, arguments, param)

    def answered(self, call_id: str) -> str | None:
        """The name of the tool whose call the next result answers: the first call with this id that has no result yet.
        None if there is no such call."""
        waiting = self._unanswered.get(call_id)
        return waiting.popleft() if waiting else self.names.get(call_id)

    def server_call(
        self, item_id: str, name: str, arguments: str, result: str, param: ParamPath
    ) -> None:
        """Add a call that the gateway ran: the original call if it is known and the tool is still offered."""
        known = self._results.get(item_id)
        if known is not None:
            result = known.result
            if known.name in self.tool_names:
                name, arguments = known.name, known.arguments
        self._add_result(item_id, name, arguments, result, param)

    def _add_result(
        self, call_id: str, name: str, arguments: str, result: str, param: ParamPath
    ) -> None:
        known = self._results.get(call_id)
        call_id = call_id or f"call_{len(self.names)}"
        self.call(call_id, name, arguments, param)
        self.add_result(call_id, result, param)
        if known is not None and known.images:
            self.add_images(known.images, param)


def json_text(value: object) -> str:
    """`value` as JSON with spaces after commas and colons, as in the data that models were trained on."""
    return json.dumps(value, ensure_ascii=False)


def _mcp_result(call: items.McpCall) -> str:
    error = call.error
    if error is None or call.output:
        return call.output or ""
    if isinstance(error, items.McpToolExecutionError):
        content = error.content
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, dict)]
            model_text = "\n".join(text for text in texts if isinstance(text, str))
        else:
            model_text = content if isinstance(content, str) else json_text(content)
    else:
        model_text = error if isinstance(error, str) else error.message
    return f"The call failed: {model_text}"


def _shell_output(output: items.ShellOutput) -> str:
    match output.outcome:
        case items.ShellTimeout():
            end = "(timed out)"
        case items.ShellExit(exit_code=code):
            end = f"(exit code {code})"
    return "\n".join(text for text in (output.stdout, output.stderr, end) if text)
