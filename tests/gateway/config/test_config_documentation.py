"""`docs/configuration.md` says what the Structs say: each key, its default and its meaning."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from gateway.config import (
    ApiKey,
    DocumentsConfig,
    MediaConfig,
    ModelConfig,
    PluginsConfig,
    Price,
    PromptConfig,
    RouteConfig,
    SamplingDefaults,
    SchemaLimits,
    ServerConfig,
    load_config,
)
from gateway.config.descriptions import descriptions

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "[server]": ServerConfig,
    "[server.schemas]": SchemaLimits,
    "[[server.api_keys]]": ApiKey,
    "[models.<name>]": ModelConfig,
    "[models.<name>.sampling]": SamplingDefaults,
    "[models.<name>.price]": Price,
    "[routes.<name>]": RouteConfig,
    "[prompts.<id>]": PromptConfig,
    "[plugins]": PluginsConfig,
    "[media]": MediaConfig,
    "[documents]": DocumentsConfig,
}


def default(field: msgspec.structs.FieldInfo) -> str:
    value = field.default
    if field.default_factory is not msgspec.NODEFAULT:
        value = field.default_factory()
    if isinstance(value, msgspec.Struct):
        value = {}
    if value is msgspec.NODEFAULT:
        return "required"
    return "" if value is None else f"`{msgspec.json.encode(value).decode()}`"


def rows(struct: type[msgspec.Struct]) -> list[str]:
    described = descriptions(struct)
    return [
        f"| `{field.name}` | {default(field)} | {described[field.name]} |"
        for field in msgspec.structs.fields(struct)
    ]


def sections(text: str) -> dict[str, list[str]]:
    """The table rows under each heading that is a TOML table's name."""
    found: dict[str, list[str]] = {}
    for title, body in re.findall(
        r"^## `(\[[^`]*\])`\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL
    ):
        found[title] = [line for line in body.splitlines() if line.startswith("| `")]
    return found


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_says_of_each_key_what_the_code_says(section: str) -> None:
    written = sections(PAGE.read_text(encoding="utf-8"))[section]
    assert written == rows(SECTIONS[section])


def test_the_page_has_no_other_table_of_keys() -> None:
    documented = {
        title for title, table in sections(PAGE.read_text(encoding="utf-8")).items() if table
    }
    assert documented == set(SECTIONS)


@pytest.mark.parametrize(
    "example", re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
)
def test_each_example_on_the_page_is_valid(example: str, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(example, encoding="utf-8")
    assert load_config(file).models
