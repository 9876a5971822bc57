"""Decoding sounds and encoding them anew. Runs in helper processes with limits on memory and time."""

from __future__ import annotations

import io
import wave
from typing import Final

from gateway.media.refused import INVALID_SOUND, MediaRefused

_MOST_CHANNELS: Final = 8
_RATES: Final = range(1000, 384_001)
_UNKNOWN_LENGTH: Final = 0xFFFF_0000
"""Servers that stream a WAV file write a length near the largest one into its header."""


def read_sound(data: bytes, max_seconds: float) -> tuple[bytes, float]:
    """Decode a WAV file with PCM samples, and write the samples into a new one, without any other chunks.

    Returns the new file and its length in seconds. Equal arguments give equal bytes. Raises `MediaRefused`.
    """
    if not (data.startswith(b"RIFF") and data[8:12] == b"WAVE"):
        raise _refused("The data is not a WAV file. Send a WAV file with PCM samples.")
    try:
        with wave.open(io.BytesIO(data)) as sound:
            channels, width, rate = sound.getnchannels(), sound.getsampwidth(), sound.getframerate()
            frame, claimed = channels * width, sound.getnframes()
            samples = sound.readframes(min(claimed, len(data) // frame + 1))
    except Exception:  # of broken files, `wave` raises more than it documents
        raise _refused(
            "The WAV file is broken, or its samples are not PCM. Convert it to PCM."
        ) from None
    if not (channels <= _MOST_CHANNELS and rate in _RATES and width <= 4):
        raise _refused(
            f"A WAV file with {channels} channels of {width} bytes at {rate} Hz cannot be read here. Send one with at "
            f"most {_MOST_CHANNELS} channels of 4 bytes, at {_RATES.start} to {_RATES.stop - 1} Hz."
        )
    samples = samples[: len(samples) // frame * frame]
    if len(samples) < claimed * frame < _UNKNOWN_LENGTH:
        raise _refused("The WAV file is truncated. Send the whole file.")
    seconds = len(samples) / frame / rate
    if not samples:
        raise _refused("The WAV file contains no samples.")
    if seconds > max_seconds:
        raise _refused(
            f"The sound is longer than {max_seconds:g} seconds, the limit of this server. Send a shorter one."
        )
    written = io.BytesIO()
    with wave.open(written, "wb") as new:
        new.setparams((channels, width, rate, len(samples) // frame, "NONE", "not compressed"))
        new.writeframes(samples)
    return written.getvalue(), seconds


def _refused(message: str) -> MediaRefused:
    return MediaRefused(INVALID_SOUND, message)
