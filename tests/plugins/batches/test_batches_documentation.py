"""The example and the tables of docs/batches.md."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from gateway_batches.config import BatchesConfig
from gateway_testing.server import run_gateway

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "batches.md").read_text(encoding="utf-8")
README = (ROOT / "plugins" / "batches" / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The page's first block of code in a language."""
    return PAGE.split(f"```{language}\n")[1].split("```")[0]


@pytest.mark.parametrize("text", [PAGE, README], ids=["docs", "README"])
def test_the_documented_settings_are_those_that_exist(text: str) -> None:
    documented = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", text, re.MULTILINE))
    defaults = BatchesConfig()
    assert documented == {
        name: str(getattr(defaults, name)) for name in BatchesConfig.__struct_fields__
    }


def test_the_documented_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tomllib.loads(block("toml"))
    config["resources"]["files"]["path"] = str(tmp_path / "files")
    config["models"] = {"tiny": {"engine": "scripted", "parser": "qwen3"}}
    with run_gateway(config, tmp_path) as gateway:
        example = block("python").replace("http://127.0.0.1:8000/v1", gateway.base_url)
        names: dict[str, object] = {}
        exec(example, names)
        names["client"].close()  # type: ignore[attr-defined]
    assert re.fullmatch(r"(text-[012] [1-8]\n){3}", capsys.readouterr().out)


def test_the_documented_results_are_json() -> None:
    for line in block("json").splitlines():
        assert set(json.loads(line)) == {"id", "custom_id", "response", "error"}
