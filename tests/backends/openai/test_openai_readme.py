"""The README names every key of the configuration."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import msgspec

from gateway_openai import OpenAIConfig, UpstreamFeatures
from gateway_openai.config import Extension, Hint

README = Path(__file__).parents[3] / "backends" / "openai" / "README.md"


def test_the_readme_names_every_key_and_none_that_is_not() -> None:
    rows = [line.split("|") for line in README.read_text().splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[1])]
    assert sorted(named) == sorted(field.name for field in msgspec.structs.fields(OpenAIConfig))


def test_the_readme_names_every_word_of_the_lists() -> None:
    words = set(re.findall(r"`(\w+)`", README.read_text()))
    takes = {field.name for field in msgspec.structs.fields(UpstreamFeatures)}
    assert {*get_args(Extension), *get_args(Hint), *takes} <= words
