"""`docs/configuration.md` says what the Structs say: each key, its default and its meaning."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import msgspec
import pytest

from gateway.config import (
    ApiKey,
    DocumentsConfig,
    MediaConfig,
    ModelConfig,
    PluginsConfig,
    RouteConfig,
    SamplingDefaults,
    SchemaLimits,
    ServerConfig,
    load_config,
)

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
SECTIONS: dict[str, type[msgspec.Struct]] = {
    "[server]": ServerConfig,
    "[server.schemas]": SchemaLimits,
    "[[server.api_keys]]": ApiKey,
    "[models.<name>]": ModelConfig,
    "[models.<name>.sampling]": SamplingDefaults,
    "[routes.<name>]": RouteConfig,
    "[plugins]": PluginsConfig,
    "[media]": MediaConfig,
    "[documents]": DocumentsConfig,
}


def meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Each field's docstring, on one line."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(node, ast.ClassDef)
    found: dict[str, str] = {}
    for statement, following in zip(node.body, node.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(following, ast.Expr):
            assert isinstance(statement.target, ast.Name)
            assert isinstance(following.value, ast.Constant)
            found[statement.target.id] = " ".join(str(following.value.value).split())
    return found


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
    described = meanings(struct)
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
