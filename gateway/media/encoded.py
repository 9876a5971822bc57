"""Base64 data, `data:` URLs, and formats of files. Sizes are checked before anything is decoded."""

from __future__ import annotations

import binascii
from typing import Final

from gateway.media.refused import (
    EMPTY_FILE,
    FILE_TOO_LARGE,
    INVALID_BASE64,
    INVALID_URL,
    WRONG_MEDIA_TYPE,
    MediaRefused,
)

_LONGEST_HEAD: Final = 256
"""Maximum length of a `data:` URL up to its comma."""
_CHUNK: Final = 1 << 18
"""Number of characters decoded by one call, a multiple of 4. Decoding holds the interpreter's lock."""
_UNTYPED: Final = ("", "application/octet-stream", "binary/octet-stream")


def is_data_url(url: str) -> bool:
    return url[:5].lower() == "data:"


def check_media_type(media_type: str) -> None:
    """Raise `MediaRefused` if a media type is not that of an image. Nothing else depends on the media type: formats are
    recognised by the first bytes of the file."""
    name = media_type.partition(";")[0].strip().lower()
    if not name.startswith("image/") and name not in _UNTYPED:
        raise MediaRefused(
            WRONG_MEDIA_TYPE,
            f"The media type {name[:80]!r} is not that of an image. Send a PNG, JPEG, WebP or GIF file.",
        )


def data_start(url: str) -> int:
    """The index at which the base64 data of a `data:` URL begins. Raises `MediaRefused`."""
    comma = url.find(",", 5, _LONGEST_HEAD)
    head = url[5:comma] if comma >= 0 else ""
    media_type, semicolon, encoding = head.rpartition(";")
    if comma < 0 or not semicolon or encoding.strip().lower() != "base64":
        raise MediaRefused(
            INVALID_URL,
            "This data: URL is not valid. Write it as data:image/png;base64,<data>.",
        )
    check_media_type(media_type)
    return comma + 1


def format_of(data: bytes) -> str | None:
    """The format of an image, by the first bytes of its file. None if it is unknown."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "WEBP"
    return None


def decode_base64(text: str, max_bytes: int, start: int = 0) -> bytes:
    """Decode standard base64 with padding, from the index `start` on. Raises `MediaRefused`.

    Long texts take milliseconds: run in a thread. The lock of the interpreter is released between chunks.
    """
    length = len(text) - start
    if length // 4 * 3 > max_bytes + 2:
        raise MediaRefused(FILE_TOO_LARGE, too_large(max_bytes))
    decoded = bytearray()
    try:
        for at in range(start, len(text), _CHUNK):
            chunk = text[at : at + _CHUNK].encode("ascii")
            decoded += binascii.a2b_base64(chunk, strict_mode=True)
    except (binascii.Error, UnicodeEncodeError):
        decoded.clear()
    # Padding is allowed at the end of the text, not of each chunk.
    padding = text[max(start, len(text) - 4) :].count("=")
    if length % 4 or padding > 2 or len(decoded) != length // 4 * 3 - padding:
        raise MediaRefused(
            INVALID_BASE64,
            "The data is not valid base64. Use the standard alphabet with padding, and no line breaks.",
        )
    if len(decoded) > max_bytes:
        raise MediaRefused(FILE_TOO_LARGE, too_large(max_bytes))
    if not decoded:
        raise MediaRefused(EMPTY_FILE, "The data is empty. Send the content of a file.")
    return bytes(decoded)


def too_large(max_bytes: int) -> str:
    """The error message for a file that exceeds the limit of `max_bytes`."""
    return (
        f"The file is larger than {max_bytes} bytes, the limit of this server. Send a smaller one."
    )
