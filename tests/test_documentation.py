"""The pages of documentation: their links lead somewhere, and the paths that they name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for pattern in (
        "*.md",
        "docs/*.md",
        "docs/decisions/*.md",
        "plugins/*/README.md",
        "backends/*/README.md",
    )
    for page in ROOT.glob(pattern)
)
NAMED = ("README.md", "CONTRIBUTING.md", "docs/architecture.md", "docs/plugins.md")
"""Pages whose paths are those of this repository; others also name paths of whoever runs the gateway."""
FOLDERS = "gateway|plugins|backends|tests|scripts|benchmarks|examples|docs"


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(page))
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES)
def test_no_page_has_an_unsolved_conflict(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.search(r"^(<{7}|={7}|>{7})( |$)", text, re.MULTILINE)


def test_the_site_has_every_page() -> None:
    navigation = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = set(re.findall(r"- (?:[\w ]+: )?(\w+\.md)$", navigation, re.MULTILINE))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - listed == set()


@pytest.mark.parametrize("script", ["cli_reference.py", "parameters_page.py"])
def test_a_page_that_is_written_from_the_source_is_up_to_date(script: str) -> None:
    command = [sys.executable, str(ROOT / "scripts" / script), "--check"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("page", NAMED)
def test_paths_that_a_page_names_exist(page: str) -> None:
    for path in re.findall(rf"`((?:{FOLDERS})/[\w./-]*)", prose(page)):
        assert (ROOT / path).exists(), path
