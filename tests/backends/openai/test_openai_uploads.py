"""Uploaded files of a gateway whose model is behind an upstream: the upstream gets their content, never their ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI

from gateway_testing.server import run_gateway
from tests.e2e.media.documents import TOWER, file, marked
from tests.media_files import BLUE, asked, seen

MODELS = ["chat", "responses"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """Of a front with files, whose upstream has none."""
    scripted = {"engine": "scripted", "scripted": {"media": ["image"]}}
    with run_gateway({"models": {"m": scripted}}, tmp_path_factory.mktemp("up")) as upstream:

        def behind(api: str, **takes: bool) -> dict[str, Any]:
            told = {"base_url": upstream.base_url, "api": api, "model": "m", "takes": takes}
            return {"engine": "openai", "openai": told}

        config = {
            "models": {
                **{api: behind(api) for api in MODELS},
                **{f"{api}-text": behind(api, files=False) for api in MODELS},
                "blind": behind("chat", files=False, images=False),
            },
            "resources": {"files": {}},
            "documents": {"max_bytes": 100_000, "max_total_bytes": 150_000},
        }
        with (
            run_gateway(config, tmp_path_factory.mktemp("front")) as front,
            front.client() as made,
        ):
            yield made


def image(client: OpenAI) -> dict[str, Any]:
    stored = client.files.create(file=("blue.bin", BLUE), purpose="vision")
    return {"type": "input_image", "file_id": stored.id, "detail": "auto"}


def document(client: OpenAI) -> dict[str, Any]:
    stored = client.files.create(file=("tower.pdf", TOWER), purpose="user_data")
    return {"type": "input_file", "file_id": stored.id}


@pytest.mark.parametrize("model", [*MODELS, "chat-text", "responses-text"])
def test_ids_become_content(client: OpenAI, model: str) -> None:
    given = asked("see", image(client))
    assert seen(client.responses.create(model=model, input=given).output_text) == ["40x30"]
    response = client.responses.create(model=model, input=asked("read", document(client)))
    assert response.output_text.removeprefix("read").strip() == marked("tower.pdf")
    chained = client.responses.create(
        model=model, input=asked(document(client)), previous_response_id=response.id
    )
    assert chained.output_text == marked("tower.pdf")


@pytest.mark.parametrize("model", ["chat-text", "responses-text"])
def test_pages_are_images_for_an_upstream_that_sees(client: OpenAI, model: str) -> None:
    given = asked("read", file(TOWER, detail="high"))
    response = client.responses.create(model=model, input=given)
    assert seen(response.output_text) == ["1187x1536", "1187x1536"]
    blind = client.responses.create(model="blind", input=given)
    assert blind.output_text.removeprefix("read").strip() == marked("tower.pdf")


@pytest.mark.parametrize("model", MODELS)
def test_unknown_ids_and_large_files_are_refused_by_their_place(client: OpenAI, model: str) -> None:
    for kind in ("input_image", "input_file"):
        given = asked("a", {"type": kind, "file_id": "file-of-another"})
        with pytest.raises(openai.BadRequestError, match="no file with this id") as caught:
            client.responses.create(model=model, input=given)
        assert caught.value.param == "input[0].content[1].file_id"
    big = client.files.create(file=("a.txt", b"a" * 100_001), purpose="user_data")
    given = asked({"type": "input_file", "file_id": big.id})
    with pytest.raises(openai.BadRequestError, match="larger than 100000 bytes"):
        client.responses.create(model=model, input=given)
    two = [
        client.files.create(file=("a.txt", letter * 90_000), purpose="user_data")
        for letter in (b"a", b"b")
    ]
    given = asked(*({"type": "input_file", "file_id": each.id} for each in two))
    with pytest.raises(openai.BadRequestError, match="larger than 60000 bytes") as caught:
        client.responses.create(model=model, input=given)
    assert caught.value.param == "input[0].content[1].file_id"
    text = client.files.create(file=("a.png", b"text"), purpose="vision")
    given = asked({"type": "input_image", "file_id": text.id})
    with pytest.raises(openai.BadRequestError, match="not a PNG") as caught:
        client.responses.create(model=model, input=given)
    assert caught.value.code == "invalid_image_format"
