"""A model whose engine sees and whose prompts show no images: the start says so, and images are refused."""

from __future__ import annotations

import logging
from pathlib import Path

import httpx
import pytest

from gateway_testing.server import run_gateway

TEXT_ONLY = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.strip() }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize(
    ("media", "template", "told"),
    [
        (["image", "audio"], TEXT_ONLY, "takes audio and images"),
        (["image"], None, ""),
        ([], TEXT_ONLY, ""),
    ],
)
def test_the_start_says_that_images_are_not_shown(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    media: list[str],
    template: str | None,
    told: str,
) -> None:
    model = {"engine": "scripted", "scripted": {"media": media, "placeholders": "template"}}
    if template is not None:
        model["chat_template"] = template
    else:
        model["scripted"] = {"media": media}
    with (
        caplog.at_level(logging.WARNING, "gateway.startup"),
        run_gateway({"models": {"m": model}}, tmp_path) as gateway,
    ):
        lines = [each.getMessage() for each in caplog.records if each.name == "gateway.startup"]
        assert any("the prompts of its renderer show none" in line for line in lines) is bool(told)
        assert told in " ".join(lines)
        (listed,) = httpx.get(f"{gateway.base_url}/models").json()["data"]
        assert ("images" in listed["capabilities"]) is (bool(media) and not told)
