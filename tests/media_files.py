"""Small images and sounds, requests that have them, and what the scripted engine says of them."""

from __future__ import annotations

import base64
import io
import re
import struct
import wave
import zlib
from typing import Any


def png(width: int, height: int, color: tuple[int, int, int]) -> bytes:
    """A PNG file of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(color) * width) * height
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + data


def data_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


RED, BLUE = png(4, 3, (255, 0, 0)), png(40, 30, (0, 0, 255))
IMAGE = re.compile(r"\[image (\d+x\d+) ([0-9a-f]{8})\]")


def sound() -> str:
    """A second of silence: a WAV file in base64."""
    file = io.BytesIO()
    with wave.open(file, "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(8000)
        made.writeframes(bytes(8000))
    return base64.b64encode(file.getvalue()).decode()


def asked(*parts: str | bytes | dict[str, Any]) -> list[Any]:
    """A user message of Responses: texts, PNG files, and parts as they are."""
    return [{"type": "message", "role": "user", "content": [*map(_part, parts)]}]


def _part(given: str | bytes | dict[str, Any]) -> dict[str, Any]:
    match given:
        case str():
            return {"type": "input_text", "text": given}
        case bytes():
            return {"type": "input_image", "image_url": data_url(given), "detail": "auto"}
        case _:
            return given


def seen(text: str) -> list[str]:
    """The sizes of the images in an answer."""
    return [found[1] for found in IMAGE.finditer(text)]
