"""Checks of an engine: images in prompts."""

from __future__ import annotations

import struct
import zlib
from hashlib import sha256
from typing import Final

from gateway.sdk import (
    CountingEngine,
    EngineRequest,
    GatewayError,
    Media,
    PlacedMedia,
    TokensPrompt,
)
from gateway_doctor.checks.engine_probe import NotClaimed, Probe, require
from gateway_doctor.checks.generating import Generated, generate

_SIDE: Final = 64
_PARAM: Final = ("input", 0, "content", 0)


def _image(red: int, green: int, blue: int) -> Media:
    """An image of one color, as PNG."""
    head = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 2, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes((red, green, blue)) * _SIDE) * _SIDE)
    chunks = (_chunk(b"IHDR", head), _chunk(b"IDAT", pixels), _chunk(b"IEND", b""))
    return _media(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _media(data: bytes) -> Media:
    return Media(
        kind="image",
        data=data,
        media_type="image/png",
        sha256=sha256(data).hexdigest(),
        width=_SIDE,
        height=_SIDE,
    )


_RED: Final = _image(255, 0, 0)
_BLUE: Final = _image(0, 0, 255)


def _prompt(probe: Probe, *images: Media) -> TokensPrompt:
    """A prompt of the images, followed by the probe's prompt. Raises `NotClaimed` if the engine takes no images."""
    probe.needs("images")
    probe.needs("tokens")
    tokenizer = probe.engine.tokenizer
    assert tokenizer is not None
    by_template = probe.engine.info.placeholders == "template"
    if by_template and not probe.image_text:
        raise NotClaimed("what stands for an image in prompts of this model is not known here")
    token_ids: list[int] = []
    media: list[PlacedMedia] = []
    for image in images:
        written = tokenizer.encode(probe.image_text) if by_template else []
        at = len(token_ids) + probe.placeholder_index if by_template else 0
        media.append(PlacedMedia(media=image, at=at, param=_PARAM))
        token_ids += written
    token_ids += tokenizer.encode(probe.prompt)
    return TokensPrompt(token_ids=token_ids, media=media)


def _request(probe: Probe, *images: Media) -> EngineRequest:
    logprobs = 0 if probe.has("logprobs") else None
    return probe.request(prompt=_prompt(probe, *images), logprobs=logprobs)


def _differ(one: Generated, other: Generated) -> bool:
    """Whether the texts differ or, if they are equal, the log probabilities of the tokens."""
    ours, theirs = ([token.logprob for token in each.logprobs] for each in (one, other))
    return one.text != other.text or ours != theirs


async def images_are_seen(probe: Probe) -> None:
    """Two images lead to different answers, or to different log probabilities. The same image leads to the same
    answer."""
    red = await generate(probe.engine, _request(probe, _RED))
    blue = await generate(probe.engine, _request(probe, _BLUE))
    again = await generate(probe.engine, _request(probe, _RED))
    require(_differ(red, blue), f"a red and a blue image have the same answer, {red.text!r}")
    require(red.text == again.text, f"one image, two answers: {red.text!r}, then {again.text!r}")


async def images_are_in_order(probe: Probe) -> None:
    """The model sees two images of a prompt in their order."""
    request = _request(probe, _RED, _BLUE)
    await probe.accepted(request, "two images in a prompt")
    one = await generate(probe.engine, request)
    other = await generate(probe.engine, _request(probe, _BLUE, _RED))
    require(_differ(one, other), f"two images have the same answer in either order, {one.text!r}")


async def images_are_counted(probe: Probe) -> None:
    """`count` returns the number of prompt tokens that the outputs report. Images increase it."""
    engine, request = probe.engine, _request(probe, _RED)
    assert isinstance(request.prompt, TokensPrompt)
    require(isinstance(engine, CountingEngine), "it takes images, but is not a CountingEngine")
    assert isinstance(engine, CountingEngine)
    counted = await engine.count(request.prompt)
    done = await generate(engine, request)
    reported = {each.prompt_tokens for each in done.outputs if each.prompt_tokens is not None}
    require(reported == {counted}, f"it counts {counted} tokens, and its outputs say {reported}")
    text = _prompt(probe)
    without = await engine.count(text)
    require(without == len(text.token_ids), f"{without} for {len(text.token_ids)} tokens of text")
    require(counted > without, f"{counted} tokens with an image, {without} without")


async def a_broken_image_fails_alone(probe: Probe) -> None:
    """An image that cannot be decoded makes only its own request fail, if any. The engine continues to work."""
    request = _request(probe, _media(b"\x89PNG\r\n\x1a\nbroken"))
    for attempt in (probe.engine.check, lambda broken: generate(probe.engine, broken)):
        try:
            await attempt(request)
        except GatewayError:
            continue
    await probe.engine.health()
    done = await generate(probe.engine, _request(probe, _RED))
    require(done.finish is not None, "the next request did not finish")
