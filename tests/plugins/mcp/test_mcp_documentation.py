"""What docs/tools.md and the README of the plugin show works, and is all there is."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from gateway.plugins.loading import load_plugins
from gateway_mcp.config import McpConfig, McpServerConfig, RemoteServersConfig
from tests.markdown import blocks

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
MCP_PART = "".join(part for part in PAGE.split("\n## ") if part.startswith(("MCP", "Approval")))
README = (ROOT / "plugins" / "mcp" / "README.md").read_text(encoding="utf-8")


def test_the_functions_become_tools(
    gateway_server: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("gateway_calendar_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(blocks(PAGE, "python")[0], vars(module))
    scenario = tmp_path / "s.json"
    call = '{"call": {"name": "days_between", "arguments": {"first": "2026-01-01", "second": "2026-01-31"}}}'
    scenario.write_text(
        f'[{{"when": "how long", "pieces": [{call}]}}, {{"when": "30", "pieces": [{{"text": "Long."}}]}}]'
    )
    config = f'[models.m]\nengine = "scripted"\npath = "{scenario}"\n{blocks(PAGE, "toml")[0]}'
    with gateway_server(config, plugins=[module]).client() as client:
        response = client.responses.create(model="m", input="how long")
    assert response.output[0].output == "30"
    assert response.output_text == "Long."


@pytest.mark.slow
def test_the_mcp_examples_run(
    mcp_gateway: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    [table] = [each for each in blocks(PAGE, "toml") if "servers.example" in each]
    server = tomllib.loads(table)["tools"]["mcp"]["servers"]["example"]
    server["command"] = [sys.executable, str(Path(__file__).parent / server["command"][1]), "stdio"]
    gateway = mcp_gateway(servers={"example": server})
    with gateway.client() as client:
        for code in blocks(MCP_PART, "python"):
            exec(code, {"client": client})
    assert capsys.readouterr().out.split("\n") == [
        "mcp_list_tools",
        "mcp_call",
        "message",
        'add {"a": 2, "b": 3}',
        "It is five.",
        "",
    ]


@pytest.mark.parametrize("page", [PAGE, README], ids=["tools.md", "README"])
def test_each_table_of_toml_is_a_configuration(page: str) -> None:
    for table in blocks(page, "toml"):
        for name, config in tomllib.loads(table)["tools"].items():
            if name == "mcp":
                msgspec.convert(config, McpConfig)


def test_the_entry_of_a_remote_server_is_one() -> None:
    [entry] = blocks(MCP_PART, "json")
    from gateway.wire.tools import decode_tools

    decode_tools([msgspec.json.decode(entry)])


@pytest.mark.parametrize(
    ("heading", "struct"),
    [("[tools.mcp.servers.<label>]", McpServerConfig), ("[tools.mcp.remote]", RemoteServersConfig)],
)
def test_the_readme_has_each_key_with_its_default(heading: str, struct: type[Any]) -> None:
    section = README.split(f"## `{heading}`\n")[1].split("\n## ")[0]
    rows = {
        name: default
        for names, default in re.findall(r"^\| (`.*?`) \| (.*?) ?\|", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    fields = {field.encode_name: field for field in msgspec.structs.fields(struct)}
    assert set(rows) == set(fields)
    for name, shown in rows.items():
        if shown.strip("`").strip() and shown != "all":
            default = fields[name].default
            if default is msgspec.NODEFAULT:
                default = fields[name].default_factory()
            assert shown == f"`{msgspec.json.encode(default).decode()}`", name


def test_the_plugin_is_found_without_the_sdk() -> None:
    """Listing plugins does not import what is heavy."""
    import subprocess

    code = (
        "import sys; from gateway.plugins.loading import load_plugins; p = load_plugins(); "
        "assert any(o.name == 'mcp' for o in p.offers('tool')); print('mcp' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"command": ["x"], "url": "http://a"},
        {"url": "http://a", "transport": "stdio"},
        {"command": ["x"], "transport": "sse"},
        {"command": ["x"], "headers": {"a": "b"}},
        {"url": "http://a", "env": {"a": "b"}},
        {"url": "a.net"},
        {"command": ["x"], "time_limit": 0},
        {"command": ["x"], "timelimit": 1},
    ],
)
def test_a_server_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(wrong, McpServerConfig)


def test_the_plugin_loads() -> None:
    assert "mcp" in {offer.name for offer in load_plugins().offers("tool")}
