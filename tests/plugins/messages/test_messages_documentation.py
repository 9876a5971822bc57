"""The plugin's README says what its configuration is."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gateway_messages.config import MessagesConfig
from gateway_messages.generation_request import HIGH_BUDGET, MEDIUM_BUDGET

README = (Path(__file__).parents[3] / "plugins" / "messages" / "README.md").read_text("utf-8")


def test_each_key_is_in_the_readme_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| `([^`]*)` \|", README, re.MULTILINE))
    assert rows == {
        field.name: str(field.default) for field in msgspec.structs.fields(MessagesConfig)
    }


def test_the_readme_names_the_budgets_that_count() -> None:
    assert f"budget below {MEDIUM_BUDGET} tokens is low, below {HIGH_BUDGET}" in README
