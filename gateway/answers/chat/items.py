"""Conversion of chat messages to items, which all renderers take as input."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, Struct

from gateway.base.errors import Unsupported
from gateway.media.encoded import is_data_url
from gateway.tools.call_history import IMAGE_GENERATION, IMAGE_MADE
from gateway.wire import chat_messages as chat
from gateway.wire import content, items
from gateway.wire.common import JsonObject


class ChatItems(Struct, frozen=True):
    """Items, and for each item the index of its message."""

    items: list[items.Item]
    origins: list[int]


def items_of(messages: Sequence[chat.Message]) -> ChatItems:
    """Convert `messages` to items. An assistant message becomes a reasoning item, a message and calls, in this order.
    The message is left out if it has no text, unless its calls would then seem to belong to a preceding assistant
    message with text.

    Images that the assistant made become the result of a call before the message's own calls. Audio is replaced by its
    transcript. Raises `Unsupported` for audio without a transcript, because audio is not stored.
    """
    reader = _Reader()
    for index, message in enumerate(messages):
        if type(message) is chat.UserMessage and type(message.content) is str:  # the common case
            part = content.InputText(text=message.content)
            reader.items.append(items.Message(role="user", content=[part]))
            reader.origins.append(index)
        else:
            reader.read(message, index)
    return ChatItems(reader.items, reader.origins)


class _Reader:
    def __init__(self) -> None:
        self.items: list[items.Item] = []
        self.origins: list[int] = []
        self._custom: set[str] = set()
        """Ids of calls of custom tools."""
        self._functions: list[tuple[str, str]] = []
        """Names and generated ids of legacy calls that have no result yet."""

    def read(self, message: chat.Message, index: int) -> None:
        match message:
            case chat.AssistantMessage():
                self._assistant(message, index)
            case chat.UserMessage(content=said):
                self._add(items.Message(role="user", content=_user_content(said)), index)
            case chat.SystemMessage(content=said):
                self._add(items.Message(role="system", content=_texts(said)), index)
            case chat.DeveloperMessage(content=said):
                self._add(items.Message(role="developer", content=_texts(said)), index)
            case chat.ToolMessage(content=said, tool_call_id=call_id):
                self._result(call_id, said, index)
            case chat.FunctionMessage(name=name, content=said):
                call_id = next((made for called, made in self._functions if called == name), name)
                self._functions = [pair for pair in self._functions if pair[1] != call_id]
                self._result(call_id, said or "", index)

    def _add(self, item: items.Item, index: int) -> None:
        self.items.append(item)
        self.origins.append(index)

    def _assistant(self, message: chat.AssistantMessage, index: int) -> None:
        if reasoning := message.reasoning_content or message.reasoning:
            part = content.ReasoningText(text=reasoning)
            self._add(items.Reasoning(content=[part]), index)
        parts = _assistant_content(message)
        if message.audio is not None and not parts:
            parts.append(content.OutputText(text=_transcript(message.audio, index)))
        calls = message.tool_calls or ()
        follows = bool(self.items) and _is_answer(self.items[-1])
        if parts or follows or not (calls or message.function_call or message.images or reasoning):
            self._add(items.Message(role="assistant", content=parts), index)
        if message.images:
            self._made(message.images, index)
        for call in calls:
            match call:
                case chat.FunctionToolCall(id=call_id, function=called):
                    self._add(
                        items.FunctionCall(
                            call_id=call_id, name=called.name, arguments=called.arguments
                        ),
                        index,
                    )
                case chat.ChatCustomToolCall(id=call_id, custom=custom):
                    self._custom.add(call_id)
                    self._add(
                        items.CustomToolCall(call_id=call_id, name=custom.name, input=custom.input),
                        index,
                    )
        if (legacy := message.function_call) is not None:
            call_id = f"call_{index}"
            self._functions.append((legacy.name, call_id))
            self._add(
                items.FunctionCall(call_id=call_id, name=legacy.name, arguments=legacy.arguments),
                index,
            )

    def _made(self, images: Sequence[chat.MadeImage], index: int) -> None:
        """Add images that the assistant made, as the result of a call. Images are not fetched: one that is not a data
        URL is shown as its address."""
        call_id = f"call_image_{index}"
        call = items.FunctionCall(call_id=call_id, name=IMAGE_GENERATION, arguments="{}")
        self._add(call, index)
        output: list[content.ToolOutputContent] = [
            content.InputImage(image_url=url, detail=image.image_url.detail)
            if is_data_url(url := image.image_url.url)
            else content.InputText(text=f"{IMAGE_MADE} It is at {url}")
            for image in images
        ]
        self._add(items.FunctionCallOutput(call_id=call_id, output=output), index)

    def _result(self, call_id: str, said: str | list[chat.ToolPart], index: int) -> None:
        output: str | list[content.ToolOutputContent]
        output = said if isinstance(said, str) else [_shared_part(part) for part in said]
        if call_id in self._custom:
            self._add(items.CustomToolCallOutput(call_id=call_id, output=output), index)
        else:
            self._add(items.FunctionCallOutput(call_id=call_id, output=output), index)


def _transcript(audio: JsonObject, index: int) -> str:
    """Return the transcript of earlier audio of the assistant. Raises `Unsupported` if there is none."""
    said = audio.get("transcript")
    if not isinstance(said, str) or not said:
        raise Unsupported(
            "Earlier audio output is not stored on this server. Send its transcript as content.",
            param=("messages", index, "audio"),
        )
    return said


def _is_answer(item: items.Item) -> bool:
    """Whether `item` is a message of the assistant with text."""
    return type(item) is items.Message and item.role == "assistant" and bool(item.content)


def _texts(said: str | list[chat.TextPart]) -> list[content.MessageContent]:
    texts = [said] if isinstance(said, str) else [part.text for part in said]
    return [content.InputText(text=text) for text in texts]


def _user_content(said: str | list[chat.UserPart]) -> list[content.MessageContent]:
    if isinstance(said, str):
        return [content.InputText(text=said)]
    return [_user_part(part) for part in said]


def _user_part(part: chat.UserPart) -> content.MessageContent:
    match part:
        case chat.AudioPart(input_audio=audio):
            return content.InputAudio(input_audio=audio)
        case _:
            return _shared_part(part)


def _shared_part(
    part: chat.ToolPart,
) -> content.InputText | content.InputImage | content.InputFile:
    """Convert a part that messages of users and of tools may contain."""
    match part:
        case chat.TextPart(text=text):
            return content.InputText(text=text)
        case chat.ImagePart(image_url=image):
            return content.InputImage(image_url=image.url, detail=image.detail)
        case chat.FilePart(file=file):
            return content.InputFile(
                filename=file.filename or UNSET,
                file_data=file.file_data or UNSET,
                file_id=file.file_id or UNSET,
            )


def _assistant_content(message: chat.AssistantMessage) -> list[content.MessageContent]:
    said = message.content
    parts: list[content.MessageContent] = []
    if isinstance(said, str):
        if said:
            parts.append(content.OutputText(text=said))
    else:
        for part in said or ():
            match part:
                case chat.TextPart(text=text):
                    parts.append(content.OutputText(text=text))
                case chat.RefusalPart(refusal=refusal):
                    parts.append(content.Refusal(refusal=refusal))
    if message.refusal:
        parts.append(content.Refusal(refusal=message.refusal))
    return parts
