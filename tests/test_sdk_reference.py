"""The reference of the SDK, which is made from the source."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = subprocess.run(
    [sys.executable, str(ROOT / "scripts" / "sdk_reference.py")],
    capture_output=True,
    encoding="utf-8",
    check=True,
).stdout
MODULES = sorted(
    "gateway.sdk" if file.stem == "__init__" else f"gateway.sdk.{file.stem}"
    for file in (ROOT / "gateway" / "sdk").glob("*.py")
)


@pytest.mark.parametrize("module", MODULES)
def test_it_has_every_name_of_a_module(module: str) -> None:
    section = PAGE.partition(f"\n## {module}\n")[2].partition("\n## ")[0]
    if module == "gateway.sdk.grammars":
        pytest.importorskip("xgrammar")
    if module == "gateway.sdk.forms":
        pytest.importorskip("multipart")
    assert [
        name for name in import_module(module).__all__ if f"\n### `{name}`\n" not in section
    ] == []


def test_it_has_what_help_does_not_show() -> None:
    section = PAGE.partition("\n### `EngineRequest`\n")[2].partition("\n### ")[0]
    assert "| `priority` | `int` | `0` | Lower runs earlier, as in vLLM. |" in section
