"""Base64 data and `data:` URLs."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.media.encoded import data_start, decode_base64, is_data_url
from gateway.media.refused import MediaRefused

CHUNK = 1 << 18


@given(st.binary(min_size=1, max_size=200), st.text(max_size=10))
def test_base64_is_decoded(data: bytes, before: str) -> None:
    text = base64.b64encode(data).decode()
    assert decode_base64(text, 200) == data
    assert decode_base64(before + text, 200, len(before)) == data


@pytest.mark.parametrize("extra", range(-4, 5))
def test_long_base64_is_decoded_in_chunks(extra: int) -> None:
    data = bytes(range(256)) * 1536
    data = data[: CHUNK // 4 * 3 + extra]
    assert decode_base64(base64.b64encode(data).decode(), len(data)) == data


@pytest.mark.parametrize(
    "text",
    ["A", "AA", "AAA", "AA=", "=AAA", "A=AA", "AA==AAAA", "AAAA\n", "AA AA", "AA-_", "AAÄA", "AAAA====", "AAA=="],
)  # fmt: skip
def test_what_is_not_strictly_base64_is_refused(text: str) -> None:
    with pytest.raises(MediaRefused) as refused:
        decode_base64(text, 1000)
    assert refused.value.code == "invalid_base64_image"


@pytest.mark.parametrize("ending", ["AA==", "AAA="])
def test_padding_at_the_end_of_a_chunk_is_not_the_end_of_the_data(ending: str) -> None:
    text = "A" * (CHUNK - 4) + ending
    assert len(decode_base64(text, CHUNK)) == CHUNK // 4 * 3 - ending.count("=")
    with pytest.raises(MediaRefused):
        decode_base64(text + "AAAA", CHUNK)


@given(st.integers(1, 100), st.integers(1, 100))
def test_the_size_is_bounded_to_the_byte(size: int, limit: int) -> None:
    text = base64.b64encode(bytes(size)).decode()
    if size <= limit:
        assert len(decode_base64(text, limit)) == size
    else:
        with pytest.raises(MediaRefused) as refused:
            decode_base64(text, limit)
        assert refused.value.code == "image_file_too_large"


def test_what_is_too_large_is_not_looked_at() -> None:
    with pytest.raises(MediaRefused) as refused:
        decode_base64("not base64 at all" * 1000, 100)
    assert refused.value.code == "image_file_too_large"


@pytest.mark.parametrize(
    "head",
    ["data:image/png;base64", "DATA:image/jpeg;BASE64", "data:;base64", "data:image/png;name=a.png;base64", "data:application/octet-stream;base64"],
)  # fmt: skip
def test_the_data_of_a_url_is_what_follows_its_head(head: str) -> None:
    assert is_data_url(f"{head},AAAA")
    assert f"{head},AA,AA"[data_start(f"{head},AA,AA") :] == "AA,AA"


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("data:", "invalid_image_url"),
        ("data:image/png", "invalid_image_url"),
        ("data:image/png;base64", "invalid_image_url"),
        ("data:image/png,%89PNG", "invalid_image_url"),
        ("data:,AAAA", "invalid_image_url"),
        ("data:image/png;base32,AAAA", "invalid_image_url"),
        ("data:" + "x" * 300 + ";base64,AAAA", "invalid_image_url"),
        ("data:text/html;base64,AAAA", "unsupported_image_media_type"),
        ("data:application/pdf;base64,AAAA", "unsupported_image_media_type"),
        ("data:imagepng;base64,AAAA", "unsupported_image_media_type"),
    ],
)
def test_a_malformed_data_url_is_refused(url: str, code: str) -> None:
    with pytest.raises(MediaRefused) as refused:
        data_start(url)
    assert refused.value.code == code


def test_the_text_of_a_refusal_is_bounded() -> None:
    with pytest.raises(MediaRefused) as refused:
        data_start(f"data:{'x' * 240};base64,AAAA")
    assert len(refused.value.message) < 200
