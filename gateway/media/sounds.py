"""Decoding sounds and encoding them again. Runs in helper processes with limits on memory and time."""

from __future__ import annotations

import io
import wave
from typing import Final

from gateway.media.refused import INVALID_SOUND, MediaRefused

MAX_RATE: Final = 48_000
"""Maximum number of samples per second of sounds that were not PCM. Sounds with a higher rate are converted to it."""
DECODED_WIDTH: Final = 2
"""Bytes per sample of sounds that were not PCM. They have one channel."""
_MAX_CHANNELS: Final = 8
_RATES: Final = range(1000, 384_001)
_UNKNOWN_LENGTH: Final = 0xFFFF_0000
"""Lengths from this one on are not the real length: servers that stream a WAV file write such lengths into its
header."""
_CHUNK_FRAMES: Final = 1 << 16


def read_sound(data: bytes, max_seconds: float) -> tuple[bytes, float]:
    """Decode a WAV or MP3 file, and write only its samples into a new WAV file.

    The samples of a WAV file with PCM are not changed. Other samples become PCM of 16 bits with one channel, at
    `MAX_RATE` or less. The format is recognised by the first bytes of the file.

    Returns the new file and its length in seconds. Equal arguments give equal bytes. Raises `MediaRefused`.
    """
    if data.startswith(b"RIFF") and data[8:12] == b"WAVE":
        pcm = _read_pcm(data, max_seconds)
        return _decode(data, "WAV", max_seconds) if pcm is None else pcm
    if _begins_like_mp3(data):
        return _decode(data, "MP3", max_seconds)
    raise _refused(
        "The data is neither a WAV nor an MP3 file. Send a WAV file (PCM, floating point, A-law, mu-law, ADPCM) or an MP3 "
        "file."
    )


def _begins_like_mp3(data: bytes) -> bool:
    """Whether `data` begins with an ID3 tag, or with the header of an MPEG audio frame of layer III."""
    return data.startswith(b"ID3") or (
        len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2 and data[1] & 0x18 != 0x08
    )


def _read_pcm(data: bytes, max_seconds: float) -> tuple[bytes, float] | None:
    """Do the work of `read_sound` for a WAV file with PCM. Returns None if the samples have another format."""
    try:
        with wave.open(io.BytesIO(data)) as sound:
            channels, width, rate = sound.getnchannels(), sound.getsampwidth(), sound.getframerate()
            frame, claimed = channels * width, sound.getnframes()
            samples = sound.readframes(min(claimed, len(data) // frame + 1))
    except wave.Error as error:
        if str(error).startswith("unknown"):  # the error of `wave` for all formats other than PCM
            return None
        raise _broken("WAV") from None
    except Exception:  # `wave` raises undocumented errors for broken files
        raise _broken("WAV") from None
    _check_form(channels, width, rate)
    samples = samples[: len(samples) // frame * frame]
    if len(samples) < claimed * frame < _UNKNOWN_LENGTH:
        raise _refused("The WAV file is truncated. Send the whole file.")
    seconds = len(samples) / frame / rate
    _check_length(seconds, max_seconds)
    return _written(samples, channels, width, rate), seconds


def _decode(data: bytes, form: str, max_seconds: float) -> tuple[bytes, float]:
    """Do the work of `read_sound` for formats that the package miniaudio decodes."""
    try:
        import miniaudio  # type: ignore[import-untyped]
    except ImportError:
        raise _refused(
            "This server reads only WAV files with PCM samples. Send one of these, or have the package miniaudio installed "
            "beside the server."
        ) from None
    info = miniaudio.wav_get_info if form == "WAV" else miniaudio.mp3_get_info
    try:
        header = info(data)
        channels, own_rate, claimed = header.nchannels, header.sample_rate, header.num_frames
    except Exception:  # miniaudio raises other errors too, for unknown formats of samples
        raise _broken(form) from None
    _check_form(channels, DECODED_WIDTH, own_rate)
    if claimed > max_seconds * own_rate:
        raise _too_long(max_seconds)
    rate = min(own_rate, MAX_RATE)
    samples = bytearray()
    most = int(max_seconds * rate) * DECODED_WIDTH
    try:
        for chunk in miniaudio.stream_memory(
            data,
            output_format=miniaudio.SampleFormat.SIGNED16,
            nchannels=1,
            sample_rate=rate,
            frames_to_read=_CHUNK_FRAMES,
        ):
            samples += chunk.tobytes()
            if len(samples) > most + _CHUNK_FRAMES * DECODED_WIDTH:
                break
    except miniaudio.MiniaudioError:
        raise _broken(form) from None
    if not samples:  # an unsupported format of samples
        raise _broken(form)
    seconds = len(samples) / DECODED_WIDTH / rate
    _check_length(seconds, max_seconds)
    return _written(bytes(samples), 1, DECODED_WIDTH, rate), seconds


def _check_form(channels: int, width: int, rate: int) -> None:
    if not (1 <= channels <= _MAX_CHANNELS and rate in _RATES and width <= 4):
        raise _refused(
            f"A sound with {channels} channels of {width} bytes at {rate} Hz cannot be read here. Send one with at "
            f"most {_MAX_CHANNELS} channels of 4 bytes, at {_RATES.start} to {_RATES.stop - 1} Hz."
        )


def _check_length(seconds: float, max_seconds: float) -> None:
    if not seconds:
        raise _refused("The file contains no samples.")
    if seconds > max_seconds:
        raise _too_long(max_seconds)


def _written(samples: bytes, channels: int, width: int, rate: int) -> bytes:
    """A WAV file with these samples."""
    written = io.BytesIO()
    with wave.open(written, "wb") as new:
        frames = len(samples) // (channels * width)
        new.setparams((channels, width, rate, frames, "NONE", "not compressed"))
        new.writeframes(samples)
    return written.getvalue()


def _broken(form: str) -> MediaRefused:
    return _refused(
        f"The {form} file is broken, or its samples have a format that is not read here. Convert it to WAV with PCM samples."
    )


def _too_long(max_seconds: float) -> MediaRefused:
    return _refused(
        f"The sound is longer than {max_seconds:g} seconds, the limit of this server. Send a shorter one."
    )


def _refused(message: str) -> MediaRefused:
    return MediaRefused(INVALID_SOUND, message)
