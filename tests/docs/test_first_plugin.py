"""docs/first_plugin.md: the plugin that it writes is used by a server as its last steps say."""

from __future__ import annotations

import re
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.new import skeleton
from gateway_testing.server import run_gateway

PAGE = (Path(__file__).parents[2] / "docs" / "first_plugin.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_last_steps_use_the_tool(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = types.ModuleType("gateway_dice")
    exec(next(each for each in blocks("python") if "roll_dice" in each), plugin.__dict__)
    table = next(each for each in blocks("toml") if "[tools.dice]" in each)
    rules = [
        {"when": "20 sides", "pieces": [{"call": {"name": "roll_dice", "arguments": {"sides": 20}}}]},
        {"when": '"sides"', "pieces": [{"text": "It fell."}]},  # of the call, which has been made then
    ]  # fmt: skip
    config = {
        **tomllib.loads(table),
        "models": {"tiny": {"engine": "scripted", "scripted": {"rules": rules}}},
    }
    with run_gateway(config, tmp_path, plugins=[plugin]) as gateway:
        program = blocks("python")[-1].replace("http://127.0.0.1:8000/v1", gateway.base_url)
        assert gateway.base_url in program
        done: dict[str, Any] = {}
        exec(program, done)
        done["client"].close()
    assert capsys.readouterr().out == "It fell.\n"


def test_the_page_keeps_what_the_skeleton_has() -> None:
    """What it shows differs from what `gateway new` wrote by the function and its calls alone."""
    files = {str(path): text for path, text in skeleton("tool", "dice")}
    written = dict(re.findall(r"^<!-- file: gateway_dice/(\S+) -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))  # fmt: skip
    assert set(written) == {"gateway_dice/__init__.py", "tests/test_dice.py"}
    new = {
        line.strip()
        for path, text in written.items()
        for line in text.splitlines()
        if line not in files[path].splitlines()
    }
    assert {line for line in new if "dice" not in line} == {
        "import random",
        "return random.randint(1, sides)",
        '"""Throw one die."""',
        'assert result.text in ("1", "2")',
    }
