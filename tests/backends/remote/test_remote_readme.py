"""The README names every key of the configuration, with its default."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from gateway_remote import RemoteConfig
from gateway_remote.dialects import DIALECTS

README = Path(__file__).parents[3] / "backends" / "remote" / "README.md"


def test_the_readme_names_every_key_and_none_that_is_not() -> None:
    table = README.read_text().split("| key of")[1]
    cells = [line.split("|")[1] for line in table.splitlines()[2:] if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    fields = {field.name for field in msgspec.structs.fields(RemoteConfig)}
    assert sorted([*named, "discovery_interval"]) == sorted(fields)


def test_the_readme_names_every_dialect() -> None:
    for name in DIALECTS:
        assert f"| `{name}` |" in README.read_text()
