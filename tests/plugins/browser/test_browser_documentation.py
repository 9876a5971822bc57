"""What docs/tools.md and the README of the plugin show works, and is all there is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from gateway_browser.config import BrowserConfig
from tests.markdown import blocks

ROOT = Path(__file__).parents[3]
SECTION = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8").split("## Web search\n")[1]
SECTION = SECTION.split("\n## ")[0]
README = (ROOT / "plugins" / "browser" / "README.md").read_text(encoding="utf-8")


def scenario(*, found: str) -> list[dict[str, Any]]:
    search = {"name": "web_search", "arguments": {"query": "tower height"}}
    return [
        {"when": "How high is the tower?", "pieces": [{"call": search}]},
        {"when": found, "pieces": [{"call": {"name": "open_page", "arguments": {"id": 0}}}]},
        {"when": "[1] Tower", "pieces": [{"text": "It has 312 metres【1†L0】."}]},
        {"when": "cannot be opened", "pieces": [{"text": "Look there【0†L0】."}]},
    ]


def test_the_example_searches_and_cites(
    gateway_server: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tower.html").write_text("<title>Tower</title><p>It has 312 metres.</p>")
    browser = {
        "provider": "local",
        "local": {"path": str(tmp_path), "base_url": "https://towers.example/"},
    }
    rules = scenario(found="Search results for: tower height")
    models = {"m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}}
    gateway = gateway_server({"models": models, "tools": {"browser": browser}})
    with gateway.client() as client:
        exec(blocks(SECTION, "python")[0], {"client": client})
    link = "([towers.example](https://towers.example/tower.html))"
    assert capsys.readouterr().out.split("\n") == [
        "search ",
        "open_page https://towers.example/tower.html",
        f"It has 312 metres {link}.",
        f"Tower {link}",
        "",
    ]


def test_the_provider_of_the_page_finds(
    gateway_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("my_search")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(blocks(SECTION, "python")[1], vars(module))
    browser = {"provider": "my_search:open_search", "allow_hosts": []}
    rules = scenario(found="【0†Towers†towers.example】")
    models = {"m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}}
    gateway = gateway_server({"models": models, "tools": {"browser": browser}})
    with gateway.client() as client:
        response = client.responses.create(
            model="m", input="How high is the tower?", tools=[{"type": "web_search"}]
        )
    assert response.output_text == "Look there ([towers.example](https://towers.example/))."


@pytest.mark.parametrize("page", [SECTION, README], ids=["tools.md", "README"])
def test_each_table_of_toml_is_a_configuration(page: str) -> None:
    tables = [tomllib.loads(table)["tools"]["browser"] for table in blocks(page, "toml")]
    assert tables
    for table in tables:
        msgspec.convert(table, BrowserConfig)


def test_the_readme_has_each_key_with_its_default() -> None:
    section = README.split("## `[tools.browser]`\n")[1].split("\n| provider |")[0]
    rows = {
        name: default
        for names, default in re.findall(r"^\| (`.*?`) \| (.*?) ?\|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    fields = {field.encode_name: field for field in msgspec.structs.fields(BrowserConfig)}
    assert set(rows) == set(fields)
    for name, shown in rows.items():
        if shown.strip():
            default = fields[name].default
            if default is msgspec.NODEFAULT:
                default = fields[name].default_factory()  # type: ignore[operator,misc]
            assert shown == f"`{msgspec.json.encode(default).decode()}`", name
    for provider in ("searxng", "brave", "exa", "local"):
        [kind] = [each for each in fields[provider].type.__args__ if each is not type(None)]
        [row] = re.findall(rf"^\| `{provider}` \| (.*?) \|$", README, re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) - {"json"} == set(kind.__struct_fields__)


def test_the_plugin_is_found_without_what_is_heavy() -> None:
    code = (
        "import sys; from gateway.plugins.loading import load_plugins; p = load_plugins(); "
        "assert any(o.name == 'browser' for o in p.offers('tool')); "
        "print({'lxml', 'gateway_browser.fetching'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"
