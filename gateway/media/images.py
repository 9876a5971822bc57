"""Decoding images and encoding them again. Runs in helper processes with limits on memory and time."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from PIL import Image

from gateway.media.encoded import format_of
from gateway.media.refused import INVALID_IMAGE, PARSE_ERROR, TOO_LARGE, WRONG_FORMAT, MediaRefused

_ORIENTATION: Final = 0x0112
"""The EXIF tag for the orientation."""
_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Maps EXIF orientations to the operation that turns an image upright."""
_SMALL: Final = 512 * 512
"""Number of pixels up to which images are encoded without loss, whatever the format of their file."""
_LARGEST_PNG: Final = 8 << 20
"""Size in bytes above which a PNG is replaced by a JPEG."""


def read_image(data: bytes, max_pixels: int, max_side: int) -> tuple[bytes, str, int, int]:
    """Decode a PNG, JPEG, WebP or GIF file, and encode its first frame again.

    The result is upright, in RGB, without transparency (on white), and its longer side has at most `max_side` pixels.
    Equal arguments give equal bytes. Returns the new file, its media type, its width and its height. Raises
    `MediaRefused`. Files with more than `max_pixels` pixels are refused by their header, before they are decoded.
    """
    kind = format_of(data)
    if kind is None:
        raise MediaRefused(
            WRONG_FORMAT,
            "The file is not a PNG, JPEG, WebP or GIF image. Convert it to one of these.",
        )
    with _at_most(max_pixels):
        try:
            with Image.open(io.BytesIO(data), formats=[kind]) as image:
                _check_pixels(image, max_pixels)
                return encoded_image(_upright(image, max_side), lossless=_is_lossless(kind, data))
        except MediaRefused:
            raise
        except MemoryError:
            raise MediaRefused(
                INVALID_IMAGE, "Decoding the image takes more memory than this server allows."
            ) from None
        except Image.DecompressionBombError:
            raise _too_many_pixels(max_pixels) from None
        except Exception:  # Pillow raises various errors for broken files
            raise MediaRefused(
                PARSE_ERROR, f"The {kind} image is broken or truncated. Send the whole file."
            ) from None


def _is_lossless(kind: str, data: bytes) -> bool:
    return kind in ("PNG", "GIF") or (kind == "WEBP" and data[12:16] == b"VP8L")


@contextmanager
def _at_most(max_pixels: int) -> Iterator[None]:
    """Within the context, Pillow raises `DecompressionBombError` for images with more than `max_pixels` pixels, also
    while it opens a file."""
    before = Image.MAX_IMAGE_PIXELS
    Image.MAX_IMAGE_PIXELS = -(-max_pixels // 2)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        Image.MAX_IMAGE_PIXELS = before


def _check_pixels(image: Image.Image, max_pixels: int) -> None:
    if image.width * image.height > max_pixels:
        raise _too_many_pixels(max_pixels)


def _too_many_pixels(max_pixels: int) -> MediaRefused:
    return MediaRefused(
        TOO_LARGE,
        f"The image has more than {max_pixels} pixels, the limit of this server. Send a smaller one.",
    )


def _upright(image: Image.Image, max_side: int) -> Image.Image:
    size = _fitting(image.size, max_side)
    if size != image.size:
        image.draft(None, size)  # JPEG: decodes a fraction of the pixels
    image.load()
    turn = _UPRIGHT.get(_orientation(image))
    flat = _opaque(image)
    if flat.size != size:
        flat = flat.resize(size, Image.Resampling.LANCZOS, reducing_gap=2.0)
    return flat if turn is None else flat.transpose(turn)


def _fitting(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    longer = max(size)
    if longer <= max_side:
        return size
    width, height = (max(1, round(side * max_side / longer)) for side in size)
    return width, height


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    except Exception:  # the metadata is broken, and the pixels are not
        return 1


def _opaque(image: Image.Image) -> Image.Image:
    """`image` in RGB, on white."""
    if image.mode.startswith("I"):  # 16 bits
        high = [value >> 8 for value in range(1 << 16)]
        return image.convert("I").point(high, "L").convert("RGB")
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    layer = image if image.mode == "RGBA" else image.convert("RGBA")
    flat = Image.new("RGB", layer.size, "white")
    flat.paste(layer, mask=layer.getchannel("A"))
    return flat


def encoded_image(image: Image.Image, *, lossless: bool) -> tuple[bytes, str, int, int]:
    """Encode `image`. Returns the file, its media type, its width and its height. If `lossless`, the file is a PNG
    unless that would exceed `_LARGEST_PNG`."""
    width, height = image.size
    if lossless or width * height <= _SMALL:
        png = io.BytesIO()
        image.save(png, "PNG", compress_level=1)
        if png.tell() <= _LARGEST_PNG:
            return png.getvalue(), "image/png", width, height
    jpeg = io.BytesIO()
    image.save(jpeg, "JPEG", quality=95, subsampling=0)
    return jpeg.getvalue(), "image/jpeg", width, height
