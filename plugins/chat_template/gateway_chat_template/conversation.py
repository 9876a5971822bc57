"""Converts items to a conversation with few kinds of entries: messages, model output and tool results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import UNSET, Struct

from gateway.sdk import (
    CallRecord,
    InvalidRequest,
    Media,
    MediaSource,
    ParamPath,
    PlacedMedia,
    media_source,
)
from gateway.sdk.tools import CallHistory
from gateway.sdk.wire import content as parts
from gateway.sdk.wire import items as wire


class MessageMedia(Struct, frozen=True):
    """An image or sound in a message."""

    media: Media
    param: ParamPath
    """Parameter path of the part, for error messages."""

    def placed(self, at: int) -> PlacedMedia:
        return PlacedMedia(media=self.media, at=at, param=self.param)


class MessageEntry(Struct, frozen=True):
    """A message of a user, a developer or the system."""

    role: Literal["user", "system", "developer"]
    content: list[str | MessageMedia]
    """Parts as the client sent them, without empty texts if there are others."""
    param: ParamPath
    """Parameter path of the item, for error messages."""


class CallEntry(Struct, frozen=True):
    call_id: str
    name: str
    arguments: str
    """JSON as the model wrote it."""


class OutputEntry(Struct):
    """One run of model output: reasoning, text and calls."""

    reasoning: list[str]
    text: list[list[str]]
    """The parts of each message, without empty ones."""
    calls: list[CallEntry]
    param: ParamPath


class ResultEntry(Struct, frozen=True):
    """The result of a call."""

    call_id: str
    name: str
    text: str
    param: ParamPath


Entry: TypeAlias = MessageEntry | OutputEntry | ResultEntry

_OUTPUTS = (wire.FunctionCallOutput, wire.CustomToolCallOutput)

_SHOWN_BELOW = "(The image follows.)"
_UNSEEN = "(An image, which this model cannot see.)"


def conversation(
    items: Sequence[wire.Item],
    tool_names: Collection[str],
    results: Mapping[str, CallRecord] = {},
    media: Mapping[MediaSource, Media] = {},
) -> list[Entry]:
    """Convert `items` to entries, in order.

    Calls run by the gateway or a client's shell become calls with results. `tool_names` are the tools offered now;
    built-in calls use the names among them. `results` are the turn's. `media` are the images and sounds that the prompt
    can show. Another image from a tool is replaced by a note, because rejecting it would block all later requests of an
    agent. Raises `InvalidRequest`, naming `input[i]`, for items that the prompt cannot express.
    """
    reader = _Reader(tool_names, results, media)
    for index, item in enumerate(items):
        reader.read(item, ("input", index))
    reader.show_images()
    return reader.entries


class _Reader(CallHistory):
    def __init__(
        self,
        tool_names: Collection[str],
        results: Mapping[str, CallRecord],
        media: Mapping[MediaSource, Media],
    ) -> None:
        super().__init__(tool_names, results)
        self.entries: list[Entry] = []
        self._media = media
        self._images: list[MessageMedia] = []
        """Images of the latest results, shown after all of them because results are text in templates."""

    def read(self, item: wire.Item, param: ParamPath) -> None:
        if self._images and not isinstance(item, _OUTPUTS):
            self.show_images()
        match item:
            case wire.Message():
                role = item.role
                if role == "assistant":
                    self._open_output(param, begins=True).text.append(_assistant_texts(item))
                else:
                    self.entries.append(
                        MessageEntry(role, self._content(item.content, param), param)
                    )
            case wire.Reasoning():
                if item.content is not UNSET:
                    self._open_output(param, begins=True).reasoning += [
                        part.text for part in item.content if part.text
                    ]
            case wire.FunctionCallOutput() | wire.CustomToolCallOutput():
                text, images = self._output(item.output, param)
                if images and not text:
                    text = _SHOWN_BELOW
                self._images += images
                self.add_result(item.call_id or "", text, param)
            case _:
                self.read_call(item, param)

    def show_images(self) -> None:
        """Add the images of the latest results as a user message."""
        if self._images:
            param = self._images[0].param[:2]
            self.entries.append(MessageEntry("user", [*self._images], param))
            self._images = []

    def _content(
        self, content: Sequence[parts.MessageContent], param: ParamPath
    ) -> list[str | MessageMedia]:
        if len(content) == 1 and type(only := content[0]) is parts.InputText:
            return [only.text]
        found: list[str | MessageMedia] = []
        for index, part in enumerate(content):
            where = (*param, "content", index)
            match part:
                case parts.InputText() | parts.OutputText() | parts.Refusal():
                    text = part.refusal if isinstance(part, parts.Refusal) else part.text
                    if text:
                        found.append(text)
                case parts.InputImage() | parts.InputAudio():
                    found.append(self._media_of(part, where))
                case parts.InputFile():
                    raise _unsupported_part("files", where)
        return found

    def _media_of(
        self, part: parts.InputImage | parts.InputAudio, param: ParamPath
    ) -> MessageMedia:
        media = self._media.get(media_source(part)) if self._media else None
        if media is not None:
            return MessageMedia(media, param)
        if isinstance(part, parts.InputAudio):
            raise _unsupported_part("audio", param)
        raise InvalidRequest("This model takes no images. Send text.", param=(*param, "type"))

    def _output(
        self, output: str | list[parts.ToolOutputContent], param: ParamPath
    ) -> tuple[str, list[MessageMedia]]:
        """The text of a result and its images."""
        if isinstance(output, str):
            return output, []
        texts = []
        images = []
        unseen = False
        for index, part in enumerate(output):
            where = (*param, "output", index)
            match part:
                case parts.InputText():
                    texts.append(part.text)
                case parts.InputImage():
                    media = self._media.get(media_source(part)) if self._media else None
                    if media is not None:
                        images.append(MessageMedia(media, where))
                    else:
                        unseen = True
                case _:
                    raise InvalidRequest(
                        "This model's prompt takes only text and images as the output of a tool.",
                        param=(*where, "type"),
                    )
        if unseen:
            texts = [*filter(None, texts), _UNSEEN]
        return "\n".join(texts), images

    def _open_output(self, param: ParamPath, *, begins: bool = False) -> OutputEntry:
        """The entry of the output that is being read. `begins`: reasoning or text comes, which after another text without calls is
        a message of its own."""
        last = self.entries[-1] if self.entries else None
        if isinstance(last, OutputEntry) and not (begins and last.text and not last.calls):
            return last
        done = OutputEntry([], [], [], param)
        self.entries.append(done)
        return done

    def add_call(self, call_id: str, name: str, arguments: str, param: ParamPath) -> None:
        self._open_output(param).calls.append(CallEntry(call_id, name, arguments))

    def add_result(self, call_id: str, text: str, param: ParamPath) -> None:
        self.entries.append(ResultEntry(call_id, self.answered(call_id) or "", text, param))

    def add_images(self, images: Sequence[parts.InputImage], param: ParamPath) -> None:
        found = (self._media.get(media_source(image)) for image in images)
        self._images += [MessageMedia(media, param) for media in found if media is not None]


def _assistant_texts(message: wire.Message) -> list[str]:
    """The texts of the parts of a message that are not empty."""
    texts = []
    for part in message.content:
        match part:
            case parts.OutputText():
                texts.append(part.text)
            case parts.Refusal():
                texts.append(part.refusal)
    return [*filter(None, texts)]


def _unsupported_part(what: str, param: ParamPath) -> InvalidRequest:
    return InvalidRequest(
        f"This model's prompt takes no {what}. Send the content as text.", param=(*param, "type")
    )
