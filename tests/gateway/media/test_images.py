"""Images of all formats come out upright, opaque, bounded and always the same."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from gateway.media.images import read_image
from gateway.media.refused import MediaRefused

CORNERS = ((220, 30, 30), (30, 200, 30), (30, 30, 220), (230, 230, 40))
"""Top left, top right, bottom left, bottom right."""
STORED_AS = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""By EXIF orientation: how an upright image is turned to be stored under it."""
LOTS = 10_000_000


def corners(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """An image with one colour in each quarter."""
    image = Image.new("RGB", (width, height))
    for index, colour in enumerate(CORNERS):
        left, top = (index % 2) * (width // 2), (index // 2) * (height // 2)
        image.paste(colour, (left, top, width, height))
    return image.quantize(8) if mode == "P" else image.convert(mode)


def file_of(image: Image.Image, kind: str, **options: Any) -> bytes:
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def colours(image: Image.Image) -> list[Any]:
    """The colours in the middle of each quarter."""
    width, height = image.size
    return [
        image.getpixel((width * (1 + 2 * (index % 2)) // 4, height * (1 + 2 * (index // 2)) // 4))
        for index in range(4)
    ]


def near(found: Any, expected: Any, tolerance: int = 45) -> bool:
    return all(abs(a - b) <= tolerance for a, b in zip(found, expected, strict=True))


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "PNG": ("PNG", {}),
    "JPEG": ("JPEG", {"quality": 90}),
    "progressive JPEG": ("JPEG", {"quality": 90, "progressive": True}),
    "WebP": ("WEBP", {"quality": 90}),
    "lossless WebP": ("WEBP", {"lossless": True}),
    "GIF": ("GIF", {}),
}
MODES = {"PNG": ["RGB", "RGBA", "P"], "GIF": ["RGB", "P"], "JPEG": ["RGB", "CMYK"], "WEBP": ["RGB", "RGBA"]}  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_images_of_all_formats_come_out_right(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(KINDS)))
    kind, options = KINDS[name]
    mode = data.draw(st.sampled_from(MODES[kind]))
    width, height = data.draw(st.integers(32, 300)), data.draw(st.integers(32, 300))
    # A quarter of what comes out has 6 pixels or more: in fewer the colours of its neighbours are mixed with it.
    narrowest = -(-12 * max(width, height) // min(width, height))
    side = data.draw(st.integers(narrowest, max(320, narrowest)))
    orientation = data.draw(st.integers(1, 8)) if kind != "GIF" else 1
    stored = corners(width, height, mode)
    if (turn := STORED_AS[orientation]) is not None:
        stored = stored.transpose(turn)
    exif = Image.Exif()
    exif[0x0112] = orientation
    if kind != "GIF":
        options = {**options, "exif": exif}
    file = file_of(stored, kind, **options)

    read, media_type, new_width, new_height = read_image(file, LOTS, side)

    image = opened(read)
    assert image.size == (new_width, new_height)
    assert media_type == f"image/{image.format.lower() if image.format else ''}"
    assert image.mode == "RGB"
    longer = max(width, height)
    if longer <= side:
        assert image.size == (width, height)
    else:
        assert max(image.size) == side
        assert abs(min(image.size) - min(width, height) * side / longer) <= 1
        assert (new_width > new_height) == (width > height) or abs(width - height) <= longer // side
    for found, expected in zip(colours(image), CORNERS, strict=True):
        assert near(found, expected), (name, mode, orientation)
    assert not image.info.get("exif")
    assert read_image(file, LOTS, side)[0] == read, "equal files give equal hashes"


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_what_is_transparent_becomes_white(kind: str) -> None:
    image = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (10, 0, 20, 20))
    image.paste((0, 0, 0, 128), (0, 10, 10, 20))
    read = opened(read_image(file_of(image, kind, lossless=True), LOTS, 100)[0])
    assert colours(read)[:2] == [(255, 255, 255), (0, 0, 255)]
    assert near(colours(read)[2], (127, 127, 127), 2)


def test_a_transparent_colour_of_a_palette_becomes_white() -> None:
    image = Image.new("P", (20, 20), 0)
    image.putpalette([0, 0, 0, 0, 255, 0])
    image.paste(1, (10, 0, 20, 20))
    for kind in ("PNG", "GIF"):
        read = opened(read_image(file_of(image, kind, transparency=0), LOTS, 100)[0])
        assert colours(read)[:2] == [(255, 255, 255), (0, 255, 0)]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "I;16"])
def test_images_without_colours_keep_their_brightness(mode: str) -> None:
    if mode == "I;16":
        image = Image.new("I;16", (20, 20), 200 * 257)
    else:
        image = Image.new("L", (20, 20), 200 if mode != "1" else 255).convert(mode)
    read = opened(read_image(file_of(image, "PNG"), LOTS, 100)[0])
    expected = 255 if mode == "1" else 200
    assert near(colours(read)[0], (expected,) * 3, 1)


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_the_first_frame_is_taken(kind: str) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "green")]
    file = file_of(frames[0], kind, save_all=True, append_images=frames[1:], lossless=True)
    assert opened(file).n_frames == 3  # type: ignore[attr-defined]
    assert colours(opened(read_image(file, LOTS, 100)[0]))[0] == (255, 0, 0)


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(16, 100))
@settings(max_examples=20, deadline=None)
@example(3000, 1, 16)
@example(1, 3000, 16)
@example(1, 1, 16)
def test_no_side_is_longer_than_the_bound_and_none_vanishes(
    width: int, height: int, side: int
) -> None:
    file = file_of(Image.new("L", (width, height)), "PNG")
    _, _, new_width, new_height = read_image(file, LOTS, side)
    assert min(new_width, new_height) >= 1
    assert max(new_width, new_height) <= side or (new_width, new_height) == (width, height)
    assert max(new_width, new_height) == min(side, max(width, height))


def test_photographs_stay_jpeg_and_drawings_png() -> None:
    photograph = Image.effect_noise((600, 600), 80).convert("RGB")
    assert read_image(file_of(photograph, "JPEG"), LOTS, 600)[1] == "image/jpeg"
    assert read_image(file_of(photograph, "WEBP"), LOTS, 600)[1] == "image/jpeg"
    assert read_image(file_of(photograph, "JPEG"), LOTS, 500)[1] == "image/png", "small"
    assert read_image(file_of(photograph, "PNG"), LOTS, 600)[1] == "image/png"
    assert read_image(file_of(photograph, "WEBP", lossless=True), LOTS, 600)[1] == "image/png"


def test_a_png_that_would_be_large_becomes_a_jpeg() -> None:
    noise = Image.frombytes("RGB", (1800, 1800), random.Random(1).randbytes(1800 * 1800 * 3))  # fmt: skip
    read, media_type, *_ = read_image(file_of(noise, "PNG", compress_level=0), LOTS, 2000)
    assert media_type == "image/jpeg"
    assert len(read) < 8 << 20


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_that_does_not_exist_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = file_of(corners(60, 40), "JPEG", exif=exif)
    assert colours(opened(read_image(file, LOTS, 100)[0]))[0][0] > 150
    assert read_image(file, LOTS, 100)[2:] == (60, 40)


def test_broken_metadata_does_not_matter() -> None:
    file = file_of(corners(60, 40), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 100)
    assert read_image(file, LOTS, 100)[2:] == (60, 40)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"hello, I am no image", "invalid_image_format"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "invalid_image_format"),
        (b"BM" + bytes(100), "invalid_image_format"),
        (b"II*\0" + bytes(100), "invalid_image_format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n", "invalid_image_format"),
        (b"\x89PNG\r\n\x1a\n", "image_parse_error"),
        (b"\xff\xd8\xff\xe0", "image_parse_error"),
        (b"GIF89a", "image_parse_error"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "image_parse_error"),
    ],
)
def test_other_formats_and_bare_headers_are_refused(data: bytes, code: str) -> None:
    with pytest.raises(MediaRefused) as refused:
        read_image(data, LOTS, 100)
    assert refused.value.code == code


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_a_pixel_too_many_is_too_many(kind: str) -> None:
    exact = file_of(corners(40, 25), kind)
    assert read_image(exact, 1000, 100)[2:] == (40, 25)
    for width, height in ((41, 25), (77, 13)):
        with pytest.raises(MediaRefused) as refused:
            read_image(file_of(corners(width, height), kind), 1000, 100)
        assert refused.value.code == "image_too_large"
        assert "1000 pixels" in refused.value.message


def test_pillows_own_limit_is_left_as_it_was() -> None:
    before = Image.MAX_IMAGE_PIXELS
    with pytest.raises(MediaRefused):
        read_image(file_of(corners(200, 200), "PNG"), 100, 100)
    assert before == Image.MAX_IMAGE_PIXELS
