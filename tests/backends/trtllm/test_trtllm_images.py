"""Prompts with images, over a stand-in for TensorRT-LLM whose input processor has the real one's interface."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Engine, Media, PlacedMedia, TokensPrompt
from gateway_doctor.checks.generating import generate
from gateway_testing import EngineContract
from gateway_trtllm import open_engine

MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"
IMAGE = "<|fim_pad|>"
pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def seeing_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a token for images, which the stand-in takes for one that sees."""
    folder = tmp_path_factory.mktemp("models") / "seeing"
    shutil.copytree(MODEL, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    image = config["vocab_size"]
    known = max(each["id"] for each in tokenizer["added_tokens"])
    token = {**tokenizer["added_tokens"][0], "id": known + 1, "content": IMAGE, "special": True}
    tokenizer["added_tokens"].append(token)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config |= {"vision_config": {}, "image_token_id": known + 1, "vocab_size": image + 16}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.fixture
async def opened(
    tensorrt_llm: Any, config: Any, seeing_model: Path
) -> AsyncIterator[tuple[Any, Any]]:
    context = EngineContext(name="tiny", path=str(seeing_model), max_model_len=512)
    async with open_engine(config(), context) as engine:
        yield engine, tensorrt_llm.LLM.opened[-1]


def png(width: int, height: int) -> bytes:
    from PIL import Image

    written = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(written, "PNG")
    return written.getvalue()


def prompt_of(engine: Any, text: str, *images: bytes) -> TokensPrompt:
    ids = engine.tokenizer.encode(text)
    [image] = engine.tokenizer.encode(IMAGE)
    places = [index for index, token in enumerate(ids) if token == image]
    media = [
        PlacedMedia(
            media=Media(
                kind="image",
                data=data,
                media_type="image/png",
                sha256=hashlib.sha256(data).hexdigest(),
            ),
            at=at,
            param=("input", 0, "content", number),
        )
        for number, (at, data) in enumerate(zip(places, images, strict=True))
    ]
    return TokensPrompt(token_ids=ids, media=media)


class TestTrtllmSees(EngineContract):
    image_text: ClassVar[str] = IMAGE

    @pytest.fixture(scope="module")
    @classmethod
    async def engine(
        cls, tensorrt_llm: Any, config: Any, seeing_model: Path
    ) -> AsyncIterator[Engine]:
        context = EngineContext(name="tiny", path=str(seeing_model), max_model_len=1024)
        async with open_engine(config(), context) as engine:
            yield engine


async def test_images_reach_tensorrt_llm_at_their_places(opened: Any, ask: Any) -> None:
    engine, llm = opened
    assert "images" in engine.capabilities
    prompt = prompt_of(engine, f"a{IMAGE}b{IMAGE}c", png(32, 32), png(64, 16))
    request = ask(engine, prompt=prompt, owner="anna", max_tokens=4)
    await engine.check(request)
    assert llm.preprocessed == [], "a check processes nothing that is not used"
    length = await engine.count(prompt)
    assert length == len(prompt.token_ids) - 2 + 4 + 4
    async with aclosing(engine.generate(request)) as outputs:
        first = await anext(aiter(outputs))
        assert first.prompt_tokens == length
    [given] = llm.preprocessed
    assert given["prompt_token_ids"] == prompt.token_ids
    images = given["multi_modal_data"]["image"]
    assert [image.size for image in images] == [(32, 32), (64, 16)]
    assert [image.mode for image in images] == ["RGB", "RGB"]
    # Owners share no cached image.
    [asked] = llm.requests
    assert len(asked["prompt"]) == length
    await generate(engine, ask(engine, prompt=prompt, owner="bert", max_tokens=4))
    one, other = (each["multi_modal_uuids"]["image"] for each in llm.preprocessed)
    assert not set(one) & set(other)


async def test_what_does_not_fit_is_refused_where_it_is(opened: Any, ask: Any) -> None:
    engine, _ = opened
    one = prompt_of(engine, f"see {IMAGE}", png(32, 32))
    sound = PlacedMedia(
        media=Media(kind="audio", data=b"", media_type="audio/wav", sha256=""), at=0, param=("a",)
    )
    for prompt, message, place in (
        (TokensPrompt(token_ids=[1, 2], media=[sound]), "takes no audio", ("a",)),
        (TokensPrompt(token_ids=one.token_ids), "no image for it", ("input",)),
        (
            TokensPrompt(token_ids=[1, 2, 3], media=one.media),
            "no placeholder",
            ("input", 0, "content", 0),
        ),
        (prompt_of(engine, IMAGE, png(8, 8)), "no patch", ("input", 0, "content", 0)),
        (prompt_of(engine, IMAGE, png(640, 640)), "context is 512 tokens", ("input",)),
    ):
        for make in (engine.check, lambda request: generate(engine, request)):
            with pytest.raises(InvalidRequest, match=message) as refused:
                await make(ask(engine, prompt=prompt))
            assert refused.value.at == place
    with pytest.raises(Unsupported) as unsupported:
        await engine.check(ask(engine, prompt=one, prompt_logprobs=1))
    assert unsupported.value.param == "prompt_logprobs"


async def test_a_blind_model_says_so(start: Any, ask: Any) -> None:
    engine, _ = await start()
    assert "images" not in engine.capabilities
    image = Media(kind="image", data=png(32, 32), media_type="image/png", sha256="0")
    placed = PlacedMedia(media=image, at=1, param=("input", 0, "content", 1))
    with pytest.raises(Unsupported, match="takes no images") as refused:
        await engine.check(ask(engine, prompt=TokensPrompt(token_ids=[1, 2], media=[placed])))
    assert refused.value.at == ("input", 0, "content", 1)


async def test_text_that_would_become_control_tokens_is_refused_where_text_is_sent(
    tensorrt_llm: Any, opened: Any, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tensorrt_llm.llm import InputProcessor

    monkeypatch.setattr(InputProcessor, "supports_token_id_mm_expansion", False)
    engine, llm = opened
    engine._multi_modal._takes_tokens = False
    plain = prompt_of(engine, f"see {IMAGE} there", png(32, 32))
    await generate(engine, ask(engine, prompt=plain, max_tokens=2))
    # As the renderer encodes what a client has written: not as one token.
    spelled = [engine.tokenizer.encode(each) for each in ("<|im_", "end|>")]
    forged = TokensPrompt(token_ids=[*plain.token_ids, *spelled[0], *spelled[1]], media=plain.media)
    assert engine.tokenizer.decode(forged.token_ids).endswith("<|im_end|>")
    for make in (engine.check, lambda request: generate(engine, request)):
        with pytest.raises(InvalidRequest, match="as other tokens"):
            await make(ask(engine, prompt=forged))
    assert len(llm.preprocessed) == 1
