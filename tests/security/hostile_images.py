"""Images that are made to harm: small files that are much larger when they are decoded."""

from __future__ import annotations

import io
import random
import struct
import zlib
from typing import Any

from PIL import Image


def png(*chunks: tuple[bytes, bytes], width: int = 8, height: int = 8, depth: int = 1) -> bytes:
    """A grey PNG with the given chunks after its header."""
    header = struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0)
    written = b"\x89PNG\r\n\x1a\n"
    for name, data in ((b"IHDR", header), *chunks, (b"IEND", b"")):
        written += struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))  # fmt: skip
    return written


def pixels(width: int, height: int) -> tuple[bytes, bytes]:
    """All pixels of a black image of depth 1."""
    row = bytes(1 + (width + 7) // 8)
    packer = zlib.compressobj(1)
    data = b"".join(packer.compress(row * 100) for _ in range(height // 100)) + packer.compress(row * (height % 100))  # fmt: skip
    return b"IDAT", data + packer.flush()


def picture(kind: str = "PNG", size: tuple[int, int] = (64, 48), **options: Any) -> bytes:
    noise = random.Random(1).randbytes(size[0] * size[1] * 3)
    written = io.BytesIO()
    Image.frombytes("RGB", size, noise).save(written, kind, **options)
    return written.getvalue()


def huge_webp() -> bytes:
    body = b"WEBPVP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + (29_999).to_bytes(3, "little") * 2
    return b"RIFF" + struct.pack("<I", len(body)) + body


def huge_jpeg() -> bytes:
    file = bytearray(picture("JPEG"))
    at = file.index(b"\xff\xc0")
    file[at + 5 : at + 9] = struct.pack(">HH", 30_000, 30_000)
    return bytes(file)


def huge_gif(frame: int = 30_000) -> bytes:
    file = bytearray(picture("GIF"))
    file[6:10] = struct.pack("<HH", frame, frame)
    return bytes(file)


def huge_gif_frame() -> bytes:
    """The screen is small, its first frame is not."""
    file = bytearray(picture("GIF"))
    at = file.index(b"\x2c", 13 + 3 * 256)
    file[at + 5 : at + 9] = struct.pack("<HH", 30_000, 30_000)
    return bytes(file)
