"""The documentation as a site of several versions. That it is built without warnings is a stage of `.ci/run`."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "build_site.py"


@pytest.fixture
def build_site() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_site", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_newest_version_is_the_first_page(build_site: ModuleType, tmp_path: Path) -> None:
    for name in ("0.9", "0.10", "0.2", "pages"):
        (tmp_path / name).mkdir()
    build_site.list_versions(tmp_path)
    listed = json.loads((tmp_path / "versions.json").read_text())
    assert [each["version"] for each in listed] == ["0.10", "0.9", "0.2"]
    assert [each["aliases"] for each in listed] == [["latest"], [], []]
    assert 'href="0.10/index.html"' in (tmp_path / "index.html").read_text()


def test_a_site_of_one_version_has_no_selector(build_site: ModuleType, tmp_path: Path) -> None:
    build_site.write_pages(tmp_path / "one")
    build_site.write_pages(tmp_path / "several", versioned=True)
    one = (tmp_path / "one" / "mkdocs.yml").read_text()
    assert "provider" not in one
    assert (tmp_path / "several" / "mkdocs.yml").read_text().startswith(one)


def test_a_builder_that_is_missing_is_named(tmp_path: Path) -> None:
    """In place of a traceback: it is looked for beside the Python that runs the script, also where no environment is active."""
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    done = subprocess.run(
        [python, SCRIPT, tmp_path / "site"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == f"{tmp_path}/zensical is missing: {python} -m pip install -r docs/requirements.txt\n"  # fmt: skip
    assert not (tmp_path / "site").exists()


def test_each_setting_has_an_anchor(build_site: ModuleType, tmp_path: Path) -> None:
    build_site.write_pages(tmp_path / "site")
    page = (tmp_path / "site/docs/configuration.md").read_text()
    anchors = re.findall(r'<span id="([^"]+)"></span>`', page)
    assert len(anchors) == len(set(anchors)) > 100
    assert "server-max_body_bytes" in anchors
    assert (tmp_path / "site/docs/site.css").exists()


def test_the_version_is_that_of_the_gateway(build_site: ModuleType) -> None:
    assert version("litegate").startswith(build_site.this_version() + ".")
