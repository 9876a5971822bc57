"""The parts of a conversation that are images or sounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from gateway.base.errors import ParamPath
from gateway.plugins.protocols import CallRecord, MediaSource
from gateway.plugins.protocols.media import media_source
from gateway.wire.content import AnyContent, InputAudio, InputImage
from gateway.wire.items import CustomToolCallOutput, FunctionCallOutput, Item, Message


class MediaPart(Struct, frozen=True, kw_only=True):
    """A part that is an image or a sound."""

    source: MediaSource
    param: ParamPath
    """Path of the part, such as `("input", 3, "content", 0)`."""

    @property
    def value_param(self) -> ParamPath:
        """Path of the value that names or contains the image or sound."""
        if self.source.kind == "audio":
            return (*self.param, "input_audio", "data")
        by_id = self.source.file_id and not self.source.url
        return (*self.param, "file_id" if by_id else "image_url")


def result_images(items: Sequence[Item], results: Mapping[str, CallRecord]) -> Iterator[MediaPart]:
    """The images in results of the gateway's tools. `results` are the results of the turn, by item id."""
    if not any(record.images for record in results.values()):
        return
    for index, item in enumerate(items):
        record = results.get(item.id) if item.id else None
        for image in () if record is None else record.images:
            yield MediaPart(source=media_source(image), param=("input", index))


def media_parts(items: Sequence[Item], start: int = 0) -> Iterator[MediaPart]:
    """The images and sounds in messages and in outputs of the client's tools, from the item with index `start` on."""
    for index in range(start, len(items)):
        match items[index]:
            case Message(content=content):
                yield from _among(content, ("input", index, "content"))
            case (
                FunctionCallOutput(output=list(content))
                | CustomToolCallOutput(output=list(content))
            ):
                yield from _among(content, ("input", index, "output"))
            case _:
                pass


def _among(content: Sequence[AnyContent], param: ParamPath) -> Iterator[MediaPart]:
    for index, part in enumerate(content):
        if isinstance(part, InputImage | InputAudio):
            yield MediaPart(source=media_source(part), param=(*param, index))
