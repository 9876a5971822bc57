"""Images and sounds in prompts."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from gateway.errors import ParamPath
from gateway.wire.content import InputAudio, InputImage

MediaKind: TypeAlias = Literal["image", "audio"]


class MediaSource(Struct, frozen=True, kw_only=True):
    """What a part of a request says about its image or sound. Parts with equal sources have equal media."""

    kind: MediaKind
    url: str = ""
    """Also a `data:` URL."""
    file_id: str = ""
    data: str = ""
    """Base64."""
    detail: str = ""
    """The `detail` of an image, the `format` of a sound."""


def media_source(part: InputImage | InputAudio) -> MediaSource:
    """The source of a part."""
    if isinstance(part, InputAudio):
        sound = part.input_audio
        return MediaSource(kind="audio", data=sound.data, detail=sound.format)
    return MediaSource(
        kind="image", url=part.image_url or "", file_id=part.file_id or "", detail=part.detail
    )


class Media(Struct, frozen=True, kw_only=True):
    """One image or sound, decoded and encoded anew by the gateway: never the bytes that a client sent."""

    kind: MediaKind
    data: bytes
    """The encoded file: PNG or JPEG for images, WAV for audio."""
    media_type: str
    """Such as `image/png`."""
    sha256: str
    """Of `data`, in hexadecimal digits. The same source gives the same hash."""
    width: int = 0
    """In pixels, for images; the orientation that the file's metadata tells has been applied."""
    height: int = 0
    seconds: float = 0.0
    """The length, for audio."""


class PlacedMedia(Struct, frozen=True, kw_only=True):
    """An image or sound at its place in a prompt of tokens."""

    media: Media
    at: int
    """The index in `token_ids`. If the model's chat template writes a placeholder token for each image
    (`ModelInfo.placeholders`), this is the placeholder's index; otherwise the image stands before the token of this
    index, and `len(token_ids)` is the end of the prompt."""
    param: ParamPath
    """The part of the request that it comes from, for errors."""
