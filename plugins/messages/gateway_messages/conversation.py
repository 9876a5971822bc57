"""Converts messages with content blocks to the items that renderers take."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from gateway.sdk import CallRecord, InvalidRequest, ParamPath
from gateway.sdk.wire import content, items
from gateway_messages import blocks
from gateway_messages.run_calls import run_call

Unseal: TypeAlias = Callable[[str], str | None]
"""Returns the thinking text that a signature contains, or None if it contains none that can be decrypted here."""


_Part: TypeAlias = content.InputText | content.InputImage | content.InputFile


class MessageItems(Struct, frozen=True):
    """Items, and for each the path of the block it was made from."""

    items: list[items.Item]
    origins: list[ParamPath]
    results: Mapping[str, CallRecord]
    """What the model has read of server tool calls whose items do not contain it, by item id."""
    parts: Mapping[int, Sequence[ParamPath]] = {}
    """For messages and results, by the index of their item: the path of the block that each part was made from."""


def conversation(messages: Sequence[blocks.MessageParam], unseal: Unseal) -> MessageItems:
    """Convert `messages` to items, in the order of their blocks.

    Visible thinking is used as it is, also if another server wrote it; hidden thinking of other servers is left
    out. Server tool calls without a result were truncated and are left out. Raises `InvalidRequest` for results
    without a call and for client tool calls without a result.
    """
    reader = _Reader(unseal)
    for index, message in enumerate(messages):
        reader.read(message, ("messages", index))
    reader.end()
    return MessageItems(reader.items, reader.origins, reader.results, reader.part_origins)


class _Reader:
    def __init__(self, unseal: Unseal) -> None:
        self.items: list[items.Item] = []
        self.origins: list[ParamPath] = []
        self.part_origins: dict[int, Sequence[ParamPath]] = {}
        self.results: dict[str, CallRecord] = {}
        self._unseal = unseal
        self._served: dict[str, blocks.ServedBlock] = {}
        """Server tool calls without a result yet, by id."""
        self._awaited: dict[str, ParamPath] = {}
        """Client tool calls without a result: their paths, by id."""
        self._parts: list[content.MessageContent] = []
        """Adjacent texts and images, which become one message."""
        self._parts_at: list[ParamPath] = []

    def read(self, message: blocks.MessageParam, param: ParamPath) -> None:
        if message.role != "user":
            self._refuse_unanswered()
        for index, block in enumerate(message.content):
            self._block(block, message.role, (*param, "content", index))
        self._close(message.role)
        if message.role == "user":
            self._refuse_unanswered()

    def end(self) -> None:
        self._refuse_unanswered()

    def _refuse_unanswered(self) -> None:
        for call_id, param in self._awaited.items():
            raise InvalidRequest(
                f"The message after a 'tool_use' block must have its 'tool_result': there is none for '{call_id}'.",
                param=param,
            )

    def _block(self, block: blocks.Block, role: blocks.Role, param: ParamPath) -> None:
        match block:
            case blocks.TextBlock(text=text):
                if text:
                    made = content.OutputText if role == "assistant" else content.InputText
                    self._part(made(text=text), param)
            case blocks.ImageBlock():
                self._part(_image(block), param)
            case blocks.DocumentBlock():
                for part in _document(block):
                    self._part(part, param)
            case blocks.SearchResultBlock():
                self._part(_search_result(block), param)
            case blocks.ToolResultBlock():
                self._close(role)
                self._result(block, param)
            case blocks.ToolUseBlock():
                self._close(role)
                arguments = json.dumps(block.input, ensure_ascii=False)
                self._awaited[block.id] = param
                self._add(
                    items.FunctionCall(call_id=block.id, name=block.name, arguments=arguments),
                    param,
                )
            case blocks.ThinkingBlock(thinking=text, signature=signature):
                self._add_thinking(text or self._unseal(signature or ""), role, param)
            case blocks.RedactedThinkingBlock(data=data):
                self._add_thinking(self._unseal(data), role, param)
            case blocks.ServerToolUseBlock() | blocks.McpToolUseBlock():
                self._close(role)
                self._served[block.id] = block
            case blocks.ToolAnswerBlock():
                self._close(role)
                self._answered(block, param)
            case blocks.McpListingBlock():
                pass

    def _answered(self, block: blocks.AnswerBlock, param: ParamPath) -> None:
        call = self._served.pop(block.tool_use_id, None)
        if call is None:
            raise InvalidRequest(
                f"There is no call of a server's tool with the id '{block.tool_use_id}' before its answer.",
                param=(*param, "tool_use_id"),
            )
        run = run_call(call, block, self._unseal)
        for item in run.items:
            self._add(item, param)
        if run.record is not None:
            self.results[call.id] = run.record

    def _part(self, part: content.MessageContent, param: ParamPath) -> None:
        self._parts.append(part)
        self._parts_at.append(param)

    def _close(self, role: blocks.Role) -> None:
        if self._parts:
            message = items.Message(role=role, content=self._parts)
            self.part_origins[len(self.items)] = self._parts_at
            self._add(message, self._parts_at[0])
            self._parts, self._parts_at = [], []

    def _add(self, item: items.Item, param: ParamPath) -> None:
        self.items.append(item)
        self.origins.append(param)

    def _add_thinking(self, text: str | None, role: blocks.Role, param: ParamPath) -> None:
        if text:
            self._close(role)
            self._add(items.Reasoning(content=[content.ReasoningText(text=text)]), param)

    def _result(self, block: blocks.ToolResultBlock, param: ParamPath) -> None:
        if self._awaited.pop(block.tool_use_id, None) is None:
            raise InvalidRequest(
                f"There is no 'tool_use' block with the id '{block.tool_use_id}' in the message before.",
                param=(*param, "tool_use_id"),
            )
        parts, origins = _result_parts(block, param)
        output: str | list[content.ToolOutputContent] = parts
        if all(isinstance(part, content.InputText) for part in parts):
            output = "\n".join(part.text for part in parts if isinstance(part, content.InputText))
            if block.is_error:
                output = f"Error: {output}" if output else "Error"
        else:
            if block.is_error and isinstance(first := parts[0], content.InputText):
                parts[0] = content.InputText(text=f"Error: {first.text}")
            elif block.is_error:
                parts.insert(0, content.InputText(text="Error"))
                origins.insert(0, param)
            self.part_origins[len(self.items)] = origins
        self._add(items.FunctionCallOutput(call_id=block.tool_use_id, output=output), param)


def _result_parts(
    block: blocks.ToolResultBlock, param: ParamPath
) -> tuple[list[content.ToolOutputContent], list[ParamPath]]:
    """The parts of a result, and the path of the block that each was made from."""
    if block.content is None:
        return [], []
    if isinstance(block.content, str):
        return [content.InputText(text=block.content)], [param]
    parts: list[content.ToolOutputContent] = []
    origins: list[ParamPath] = []
    for index, each in enumerate(block.content):
        match each:
            case blocks.TextBlock(text=text):
                made: Sequence[_Part] = [content.InputText(text=text)]
            case blocks.ImageBlock():
                made = [_image(each)]
            case blocks.DocumentBlock():
                made = _document(each)
            case blocks.SearchResultBlock():
                made = [_search_result(each)]
            case blocks.ToolReferenceBlock(tool_name=name):
                # The definition of the tool is at the beginning of the prompt, with the others.
                made = [content.InputText(text=f"The tool {name} is available.")]
        parts += made
        origins += [(*param, "content", index)] * len(made)
    return parts, origins


def _image(block: blocks.ImageBlock) -> content.InputImage:
    match block.source:
        case blocks.Base64Source(media_type=media_type, data=data):
            return content.InputImage(image_url=f"data:{media_type};base64,{data}")
        case blocks.UrlSource(url=url):
            return content.InputImage(image_url=url)
        case blocks.FileSource(file_id=file_id):
            return content.InputImage(file_id=file_id)


def _document(block: blocks.DocumentBlock) -> Sequence[_Part]:
    head = "".join(f"{line}\n" for line in (block.title, block.context) if line)
    match block.source:
        case blocks.TextSource(data=text) | blocks.ContentSource(content=str(text)):
            return [content.InputText(text=head + text)]
        case blocks.ContentSource(content=list(inner)):
            parts = [
                content.InputText(text=each.text)
                if isinstance(each, blocks.TextBlock)
                else _image(each)
                for each in inner
            ]
            return [content.InputText(text=head.rstrip("\n")), *parts] if head else parts
        case blocks.Base64Source(media_type=media_type, data=data):
            file = content.InputFile(file_data=f"data:{media_type};base64,{data}")
        case blocks.UrlSource(url=url):
            file = content.InputFile(file_url=url)
        case blocks.FileSource(file_id=file_id):
            file = content.InputFile(file_id=file_id)
    if block.title:
        file = msgspec.structs.replace(file, filename=block.title)
    return [content.InputText(text=block.context), file] if block.context else [file]


def _search_result(block: blocks.SearchResultBlock) -> content.InputText:
    said = "\n".join(part.text for part in block.content)
    return content.InputText(text=f"{block.title}\n{block.source}\n{said}")
