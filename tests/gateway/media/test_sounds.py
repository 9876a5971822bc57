"""WAV files."""

from __future__ import annotations

import io
import struct
import wave

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.media.refused import MediaRefused
from gateway.media.sounds import read_sound


def wav(samples: bytes, *, channels: int = 1, width: int = 2, rate: int = 16_000) -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as sound:
        sound.setnchannels(channels)
        sound.setsampwidth(width)
        sound.setframerate(rate)
        sound.writeframes(samples)
    return written.getvalue()


def refusal(data: bytes, seconds: float = 60) -> str:
    with pytest.raises(MediaRefused) as refused:
        read_sound(data, seconds)
    assert refused.value.code == "invalid_value"
    return refused.value.message


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1000, 96_000), st.integers(1, 50))
def test_samples_are_kept_as_they_are(channels: int, width: int, rate: int, frames: int) -> None:
    samples = bytes(index % 251 for index in range(channels * width * frames))
    read, seconds = read_sound(wav(samples, channels=channels, width=width, rate=rate), 60)
    assert seconds == frames / rate
    with wave.open(io.BytesIO(read)) as sound:
        assert sound.getparams()[:4] == (channels, width, rate, frames)
        assert sound.readframes(frames) == samples


def test_other_chunks_are_dropped() -> None:
    plain = wav(b"\x01\x02" * 100)
    extra = b"LIST" + struct.pack("<I", 20) + b"INFOISFT" + b"x" * 12
    longer = (
        b"RIFF" + struct.pack("<I", len(plain) - 8 + len(extra)) + plain[8:36] + extra + plain[36:]
    )
    assert read_sound(longer, 60) == read_sound(plain, 60)
    assert b"INFO" not in read_sound(longer, 60)[0]


def test_a_streamed_file_with_no_length_in_its_header_is_read() -> None:
    plain = wav(b"\x01\x02" * 100)
    streamed = plain[:4] + b"\xff" * 4 + plain[8:40] + b"\xff" * 4 + plain[44:]
    assert read_sound(streamed, 60) == read_sound(plain, 60)


@given(st.integers(0, 243))
def test_a_truncated_file_is_refused(length: int) -> None:
    refusal(wav(b"\x01\x02" * 100)[:length])


def test_what_cannot_be_read_is_refused_with_the_reason() -> None:
    assert "not a WAV file" in refusal(b"ID3\x03 this is an mp3")
    assert "no samples" in refusal(wav(b""))
    assert "longer than 1 seconds" in refusal(wav(bytes(2 * 16_001)), 1)
    assert "1 channels of 2 bytes at 10 Hz" in refusal(wav(bytes(20), rate=10))
    floats = bytearray(wav(bytes(100)))
    floats[20] = 3  # the format of the samples
    assert "not PCM" in refusal(bytes(floats))


def test_a_header_that_promises_much_allocates_little() -> None:
    plain = bytearray(wav(b"\x01\x02" * 100))
    plain[40:44] = struct.pack("<I", 0xF000_0000)
    assert "truncated" in refusal(bytes(plain))
