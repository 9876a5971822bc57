"""Media that are made to harm, over HTTP: refused by their place, and the server goes on."""

from __future__ import annotations

import base64
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.media_files import RED, asked, data_url, seen, sound
from tests.security.hostile_images import huge_jpeg, huge_webp, pixels, png

CONFIG = """
[server]
port = {port}

[media]
allow_hosts = ["*"]

[models.seeing]
engine = "scripted"
[models.seeing.scripted]
media = ["image", "audio"]
"""


@pytest.fixture(scope="module")
def server(start_server: Any) -> Any:
    return start_server(CONFIG)


def url(data: bytes) -> dict[str, Any]:
    return {"type": "input_image", "image_url": data_url(data), "detail": "auto"}


def audio(data: bytes, form: str = "wav") -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    return {"type": "input_audio", "input_audio": {"data": encoded, "format": form}}


def unknown_codec() -> bytes:
    """A WAV file whose samples are said to be Windows Media Audio."""
    file = bytearray(base64.b64decode(sound()))
    file[20:22] = b"\x61\x01"
    return bytes(file)


def linked(address: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"http://{address}/a.png", "detail": "auto"}


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    "30,000 x 30,000 PNG": (url(png(pixels(30_000, 30_000), width=30_000, height=30_000)), "image_url", "pixels"),
    "30,000 x 30,000 JPEG": (url(huge_jpeg()), "image_url", "pixels"),
    "30,000 x 30,000 WebP": (url(huge_webp()), "image_url", "pixels"),
    "broken MP3": (audio(b"ID3\x03 this is none", "mp3"), "input_audio.data", "MP3 file is broken|only WAV"),
    "Opus": (audio(b"OggS" + bytes(60)), "input_audio.data", "Send a WAV file"),
    "unknown codec": (audio(unknown_codec()), "input_audio.data", "not read here|only WAV"),
    "this machine": (linked("127.0.0.1:9"), "image_url", "not fetched"),
    "private network": (linked("10.0.0.1"), "image_url", "not fetched"),
    "metadata service": (linked("169.254.169.254"), "image_url", "not fetched"),
    "no host": (linked("a..example.com"), "image_url", "could not be downloaded"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_it_is_refused_and_the_server_goes_on(client: OpenAI, name: str) -> None:
    part, field, message = BAD[name]
    given: Any = [{"role": "user", "content": [{"type": "input_text", "text": "see"}, part]}]
    for make in (client.responses.create, client.responses.input_tokens.count):
        with pytest.raises(openai.BadRequestError, match=message) as caught:
            make(model="seeing", input=given)  # type: ignore[operator]
        assert caught.value.param == f"input[0].content[1].{field}"
    assert seen(client.responses.create(model="seeing", input=asked(RED)).output_text) == ["4x3"]
