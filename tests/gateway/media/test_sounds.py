"""WAV and MP3 files."""

from __future__ import annotations

import array
import io
import itertools
import math
import struct
import sys
import wave
from importlib.util import find_spec
from pathlib import Path

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
    assert "neither a WAV nor an MP3 file" in refusal(b"OggS this is none")
    assert "no samples" in refusal(wav(b""))
    assert "longer than 1 seconds" in refusal(wav(bytes(2 * 16_001)), 1)
    assert "1 channels of 2 bytes at 10 Hz" in refusal(wav(bytes(20), rate=10))


def test_a_header_that_promises_much_allocates_little() -> None:
    plain = bytearray(wav(b"\x01\x02" * 100))
    plain[40:44] = struct.pack("<I", 0xF000_0000)
    assert "truncated" in refusal(bytes(plain))


needs_decoder = pytest.mark.skipif(
    find_spec("miniaudio") is None, reason="miniaudio has no wheel for this machine"
)
TONE = (Path(__file__).parents[2] / "data/sounds/tone.mp3").read_bytes()
"""440 Hz, half a second, 16,000 Hz; MPEG-2 audio, layer III, 32 kbit/s."""


def coded(tag: int, samples: bytes, width: int, *, channels: int = 1, rate: int = 16_000) -> bytes:
    """A WAV file whose samples have the format `tag`."""
    frame = channels * width
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * frame, frame, width * 8)
    return (
        b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + struct.pack("<I", 16) + form
        + b"data" + struct.pack("<I", len(samples)) + samples
    )  # fmt: skip


def decoded(data: bytes) -> tuple[int, list[int]]:
    """The rate and the samples of what `data` becomes: PCM of 16 bits with one channel."""
    read, seconds = read_sound(data, 60)
    with wave.open(io.BytesIO(read)) as sound:
        assert sound.getparams()[:2] == (1, 2)
        assert seconds == sound.getnframes() / sound.getframerate()
        samples = array.array("h", sound.readframes(sound.getnframes()))
        if sys.byteorder == "big":
            samples.byteswap()
        return sound.getframerate(), samples.tolist()


def crossings(samples: list[int]) -> int:
    """How often the samples rise above a level, which is once in a wave."""
    return sum(one <= 2000 < other for one, other in itertools.pairwise(samples))


@needs_decoder
def test_other_codecs_are_refused() -> None:
    assert "MP3 file is broken" in refusal(b"ID3\x03 this is none")
    assert "a format that is not read here" in refusal(coded(0x0161, bytes(100), 2))  # WMA
    assert "a format that is not read here" in refusal(coded(0x0055, bytes(100), 2))  # MP3


@needs_decoder
def test_mp3_is_decoded() -> None:
    rate, samples = decoded(TONE)
    assert rate == 16_000
    assert 8000 <= len(samples) <= 8000 + 4 * 576
    assert abs(crossings(samples) - 220) <= 2
    assert 11_000 < max(samples) < 13_000
    tagged = b"ID3\x04\0\0\0\0\0\x0a" + b"TIT2secret" + TONE
    assert decoded(tagged) == (rate, samples)


@needs_decoder
@pytest.mark.parametrize("channels", [1, 2])
def test_floating_point_samples_become_pcm(channels: int) -> None:
    wave_form = [math.sin(2 * math.pi * 440 * index / 16_000) / 2 for index in range(1600)]
    floats = struct.pack(
        f"<{1600 * channels}f", *(each for each in wave_form for _ in range(channels))
    )
    rate, samples = decoded(coded(3, floats, 4, channels=channels))
    assert (rate, len(samples)) == (16_000, 1600)
    assert all(
        abs(sample - each * 32767) <= 2 for sample, each in zip(samples, wave_form, strict=True)
    )


@needs_decoder
@pytest.mark.parametrize(("tag", "silence"), [(6, 0xD5), (7, 0xFF)])
def test_telephone_samples_become_pcm(tag: int, silence: int) -> None:
    rate, samples = decoded(coded(tag, bytes([silence]) * 800, 1, rate=8000))
    assert (rate, len(samples)) == (8000, 800)
    assert all(abs(each) <= 8 for each in samples)


@needs_decoder
def test_a_high_rate_is_converted() -> None:
    floats = struct.pack(
        "<9600f", *(math.sin(2 * math.pi * 440 * i / 96_000) / 2 for i in range(9600))
    )
    rate, samples = decoded(coded(3, floats, 4, rate=96_000))
    assert rate == 48_000
    assert abs(len(samples) - 4800) <= 2
    assert abs(crossings(samples) - 44) <= 1


@needs_decoder
def test_the_length_of_an_mp3_is_bounded() -> None:
    assert "longer than 0.4 seconds" in refusal(TONE, 0.4)
    frames = TONE[144:]  # without the first, which tells the number of the frames
    assert "longer than 5 seconds" in refusal(frames * 12, 5)


def test_without_the_decoder_only_pcm_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "miniaudio", None)
    assert "only WAV files with PCM samples" in refusal(TONE)
    assert read_sound(wav(bytes(200)), 60)[1] == 100 / 16_000


@given(st.data())
def test_damaged_mp3_files_are_sounds_or_refused(data: st.DataObject) -> None:
    file = bytearray(TONE)
    for place in data.draw(st.lists(st.integers(0, len(file) - 1), max_size=8)):
        file[place] = data.draw(st.integers(0, 255))
    del file[data.draw(st.integers(0, len(file))) :]
    try:
        read, seconds = read_sound(bytes(file), 5)
    except MediaRefused:
        return
    assert 0 < seconds <= 5
    with wave.open(io.BytesIO(read)) as sound:
        assert sound.getnframes() == round(seconds * sound.getframerate())
