"""What docs/tools.md and the README of the plugin show works, and is all there is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway_file_search.config import FileSearchConfig
from tests.markdown import blocks

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8").split("## File search\n")[1]
SECTION = SECTION.split("\n## ")[0]
README = (ROOT / "plugins" / "file_search" / "README.md").read_text(encoding="utf-8")


def test_the_example_uploads_searches_and_cites(
    gateway_server: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    call = {"name": "file_search", "arguments": {"queries": ["tower height"]}}
    rules = [
        {"when": "How high is the tower?", "pieces": [{"call": call}]},
        {"when": "【0:0†tower.md】", "pieces": [{"text": "It has 312 metres 【0:0†tower.md】."}]},
    ]
    models = {
        "m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}},
        "bge": {
            "engine": "scripted",
            "scripted": {"task": "embed", "synonyms": [["tall", "height"]]},
        },
    }
    gateway = gateway_server({"models": models, "tools": {"file_search": {"embeddings": "bge"}}})
    with gateway.client() as client:
        names = {"client": client}
        for example in blocks(SECTION, "python"):
            exec(example, names)
    assert capsys.readouterr().out.split("\n") == [
        "['tower height'] tower.md",
        "It has 312 metres.",
        "tower.md It has 312 metres",
        "tower.md {'language': 'en'}",
        "",
    ]


@pytest.mark.parametrize("page", [SECTION, README], ids=["tools.md", "README"])
def test_each_table_of_toml_is_a_configuration(page: str) -> None:
    tables = [tomllib.loads(table)["tools"]["file_search"] for table in blocks(page, "toml")]
    assert tables
    for table in tables:
        msgspec.convert(table, FileSearchConfig)


def test_the_readme_has_each_key_with_its_default() -> None:
    section = README.split("## `[tools.file_search]`\n")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", section, re.MULTILINE))
    fields = msgspec.structs.fields(FileSearchConfig)
    assert rows == {
        field.encode_name: f"`{msgspec.json.encode(field.default).decode()}`" for field in fields
    }


def test_the_plugin_is_found_without_what_is_heavy() -> None:
    code = (
        "import sys; from gateway.plugins.loading import load_plugins; p = load_plugins(); "
        "assert any(o.name == 'file_search' for o in p.offers('tool')); "
        "print({'lxml', 'pypdfium2', 'sqlite3', 'gateway_file_search.library'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
