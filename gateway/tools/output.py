"""Preparing tool results for the model: text, notes in place of images, images that the model sees, and limits."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Final

from gateway.plugins.protocols import ToolImage
from gateway.wire.content import InputImage

_SEEN_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "image/gif")
_MAX_SEEN: Final = 8
"""Maximum number of images of one result that a model sees."""
_MAX_SEEN_BYTES: Final = 8_388_608
"""Maximum total size of these images in bytes. They are stored with the response."""


def seen_images(images: Sequence[ToolImage]) -> tuple[list[ToolImage], list[InputImage]]:
    """The images that a model can see, and the parts that show them."""
    seen: list[ToolImage] = []
    left = _MAX_SEEN_BYTES
    for image in images:
        if image.media_type in _SEEN_TYPES and len(image.data) <= left and len(seen) < _MAX_SEEN:
            left -= len(image.data)
            seen.append(image)
    urls = (f"data:{each.media_type};base64,{b64encode(each.data).decode()}" for each in seen)
    return seen, [InputImage(image_url=url) for url in urls]


def with_notes(text: str, images: Sequence[ToolImage], seen: Sequence[ToolImage] = ()) -> str:
    """`text`, with a note for each image. `seen` are the images that the model sees."""
    parts: list[str] = []
    after: list[str] = []
    end = 0
    for image in sorted(images, key=lambda each: len(text) if each.place is None else each.place):
        note = image.note
        what = f"{image.media_type}, {len(image.data)} bytes"
        if note != "" and any(image is each for each in seen):
            note = f"[{what}]"
        elif note is None:
            note = f"[{what}: cannot be shown here]"
        if not note:
            continue
        if image.place is None or image.place >= len(text):
            after.append(note)
        else:
            place = max(image.place, 0)
            parts += text[end:place], note, "\n"
            end = place
    return "\n".join(filter(None, ["".join([*parts, text[end:]]), *after]))


def cut(text: str, max_bytes: int) -> str:
    """`text`, truncated to `max_bytes` bytes of UTF-8 with a note if it is longer.

    The result can always be encoded: lone surrogates are replaced by question marks.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return data.decode()
    kept = data[:max_bytes].decode("utf-8", "ignore")
    return f"{kept}\n[Cut off: the tool gave {len(data)} bytes, of which these are the first {max_bytes}.]"
