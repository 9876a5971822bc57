"""Prompts with images, by vLLM on the CPU: the tiny model that sees."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.plugins.protocols import EngineRequest, Media, PlacedMedia, Sampling, TokensPrompt

TOKENS = 16
"""Tokens of one picture."""
IMAGE = "<image>"
BEFORE = "<|im_start|>user\n"
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"


def prompt_of(served: Any, text: str, *pictures: bytes) -> TokensPrompt:
    """A user's message, with `<image>` for each picture."""
    ids = served.engine.tokenizer.encode(BEFORE + text + AFTER)
    [image] = served.engine.tokenizer.encode(IMAGE)
    places = [index for index, token in enumerate(ids) if token == image]
    media = [
        PlacedMedia(
            media=Media(
                kind="image",
                data=png,
                media_type="image/png",
                sha256=hashlib.sha256(png).hexdigest(),
            ),
            at=at,
            param=("input", 0, "content", number),
        )
        for number, (at, png) in enumerate(zip(places, pictures, strict=True))
    ]
    return TokensPrompt(token_ids=ids, media=media)


def request_of(prompt: TokensPrompt, **settings: str) -> EngineRequest:
    sampling = Sampling(temperature=0.0, max_tokens=40)
    return EngineRequest(request_id="test", prompt=prompt, sampling=sampling, **settings)


def test_it_says_what_is_in_a_picture(seeing: Any, pictures: Mapping[str, bytes]) -> None:
    assert "images" in seeing.engine.capabilities
    assert seeing.engine.info.placeholders == "template"
    for said, png in pictures.items():
        prompt = prompt_of(seeing, IMAGE + "What is in this image?", png)
        length = len(prompt.token_ids) - 1 + TOKENS
        assert seeing.run(seeing.engine.count(prompt)) == length
        seeing.check(request_of(prompt))
        outputs = seeing.generate(request_of(prompt, owner="anna"))
        assert "".join(output.text for output in outputs) == said
        assert outputs[0].prompt_tokens == length


def test_what_does_not_fit_is_refused_where_it_is(
    seeing: Any, pictures: Mapping[str, bytes]
) -> None:
    png = next(iter(pictures.values()))
    one = prompt_of(seeing, IMAGE, png)
    sound = PlacedMedia(
        media=Media(kind="audio", data=b"", media_type="audio/wav", sha256=""), at=0, param=("a",)
    )
    with pytest.raises(Unsupported, match="takes no audio") as refused:
        seeing.check(request_of(TokensPrompt(token_ids=[1, 2], media=[sound])))
    assert refused.value.at == ("a",)
    with pytest.raises(InvalidRequest, match="no image for it"):
        seeing.check(request_of(TokensPrompt(token_ids=one.token_ids)))
    with pytest.raises(InvalidRequest, match="no placeholder for this image") as refused:
        seeing.check(request_of(TokensPrompt(token_ids=[1, 2, 3], media=one.media)))
    assert refused.value.at == ("input", 0, "content", 0)
    with pytest.raises(InvalidRequest, match="context is 1024 tokens") as refused:
        seeing.check(request_of(prompt_of(seeing, IMAGE * 64, *[png] * 64)))
    assert refused.value.code == "context_length_exceeded"
    answer = seeing.generate(request_of(prompt_of(seeing, "What color is the sky?")))
    assert "".join(output.text for output in answer) == "The sky is blue."


def test_arguments_of_the_processor_reach_it(seeing: Any, pictures: Mapping[str, bytes]) -> None:
    assert "mm_processor_kwargs" in seeing.engine.capabilities
    said, png = next(iter(pictures.items()))
    request = request_of(prompt_of(seeing, IMAGE + "What is in this image?", png))
    given = msgspec.structs.replace(request, mm_processor_kwargs={"do_rescale": True})
    seeing.check(given)
    assert "".join(output.text for output in seeing.generate(given)) == said
    wrong = msgspec.structs.replace(request, mm_processor_kwargs={"size": "large"})
    with pytest.raises(InvalidRequest):
        seeing.check(wrong)
