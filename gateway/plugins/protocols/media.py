"""Images and sounds in prompts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from gateway.base.errors import ParamPath
from gateway.wire.content import InputAudio, InputImage

MediaKind: TypeAlias = Literal["image", "audio"]


class MediaSource(Struct, frozen=True, kw_only=True):
    """The image or sound that a part of a request refers to. Parts with equal sources have equal media."""

    kind: MediaKind
    url: str = ""
    """A URL, also a `data:` URL."""
    file_id: str = ""
    data: str = ""
    """The content in base64."""
    detail: str = ""
    """The `detail` of an image, or the `format` of a sound."""


def media_source(part: InputImage | InputAudio) -> MediaSource:
    """The source of a part."""
    if isinstance(part, InputAudio):
        sound = part.input_audio
        return MediaSource(kind="audio", data=sound.data, detail=sound.format)
    return MediaSource(
        kind="image", url=part.image_url or "", file_id=part.file_id or "", detail=part.detail
    )


class Media(Struct, frozen=True, kw_only=True):
    """One image or sound, decoded and encoded again by the gateway. Never contains the bytes that a client sent."""

    kind: MediaKind
    data: bytes
    """The encoded file: PNG or JPEG for images, WAV for audio."""
    media_type: str
    """The media type, such as `image/png`."""
    sha256: str
    """SHA-256 of `data` in hexadecimal digits. The same source gives the same hash."""
    width: int = 0
    """Width in pixels, for images, after the orientation in the file's metadata was applied."""
    height: int = 0
    seconds: float = 0.0
    """Length in seconds, for audio."""


class PlacedMedia(Struct, frozen=True, kw_only=True):
    """An image or sound at its position in a prompt of tokens."""

    media: Media
    at: int
    """The index in `token_ids`. If the model's chat template writes a placeholder token for each image
    (`ModelInfo.placeholders`), this is the placeholder's index; otherwise the image stands before the token of this
    index, and `len(token_ids)` is the end of the prompt."""
    param: ParamPath
    """The path of the part of the request that it comes from, for errors."""
