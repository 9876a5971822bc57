"""docs/first_plugin.md: the plugin that it writes is used by a server as its last steps say."""

from __future__ import annotations

import re
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

from gateway.testing.server import run_gateway

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
