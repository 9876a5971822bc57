#!/usr/bin/env python3
"""Builds the documentation as a site: `scripts/build_site.py [FOLDER]` writes it into FOLDER (default: build/site).

The pages are written for whoever reads them in the repository. Here they are copied into one folder, with the READMEs of the
packages beside them. Links are changed to match; one to a file that is no page becomes the file's path. Building needs
`pip install -r docs/requirements.txt`; `--pages` only writes the pages. A warning is an error.

With `--versioned` the site is one of several: it is written into a folder of FOLDER that is named after the version in `pyproject.toml`, the
others stay as they are, FOLDER's `index.html` leads to the newest, and each page has a selector of versions. The list of versions is `versions.json`,
in the form of mike, which the theme reads.
"""

from __future__ import annotations

import argparse
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "benchmarks/README.md": "benchmarks.md",
    "examples/deploy/README.md": "examples/deploy.md",
}
"""Pages that are not in `docs/`, and their places in the site."""
SDK = "docs/sdk.md"
"""The reference of the SDK, which `scripts/sdk_reference.py` makes. The repository does not have it."""
LINK = re.compile(r"(!?)\[((?:`[^`]*`|[^\[\]`]|\[[^\]]*\])+)\]\(([^)\s]+)\)")
FENCE = re.compile(r" *```")
KEYED = ("docs/configuration.md", "docs/parameters.md")
"""Pages whose tables explain names: each name gets an anchor, `HEADING-NAME`."""
ROW = re.compile(r"\| `([A-Za-z_][\w.]*)`")
LIST_ITEM = re.compile(r"( *)((?:[-*]|\d+\.) +)")


def sources() -> dict[str, str]:
    """The pages, by their paths in the repository: each one's path in the site."""
    found = {f"docs/{page.name}": page.name for page in sorted((ROOT / "docs").glob("*.md"))}
    for page in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        found[f"docs/decisions/{page.name}"] = f"decisions/{page.name}"
    for kind in ("plugins", "backends"):
        for page in sorted(ROOT.glob(f"{kind}/*/README.md")):
            found[page.relative_to(ROOT).as_posix()] = f"packages/{page.parent.name}.md"
    return found | ELSEWHERE | {SDK: "sdk.md"}


def text_of(source: str) -> str:
    """The text of the page `source`."""
    if source != SDK:
        return (ROOT / source).read_text(encoding="utf-8")
    command = [sys.executable, str(ROOT / "scripts" / "sdk_reference.py")]
    return subprocess.run(command, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout


def site_page(source: str, text: str, places: dict[str, str]) -> str:
    """The text of the page `source` in the site."""
    here = posixpath.dirname(places[source])

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", path):
            return match[0]
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if image:
            to = inside.removeprefix("docs/")
        elif inside == "README.md":
            to = "index.md"
        elif inside in places or f"{inside}/README.md" in places:
            to = places.get(inside) or places[f"{inside}/README.md"]
        else:
            return label if inside in label else f"{label} (`{inside}`)"
        return (
            f"{image}[{label}]({posixpath.relpath(to, here or '.')}{'#' if anchor else ''}{anchor})"
        )

    prose: list[str] = []
    pieces: list[str] = []
    fenced = False
    heading = ""
    used: set[str] = set()
    for line in _indented(text.splitlines()):
        fence = FENCE.match(line)
        if not fenced and line.startswith("#"):
            heading = _anchor(line)
        if source in KEYED and not fenced and (row := ROW.match(line)):
            anchor = f"{heading}-{row[1].lower()}"
            if anchor not in used:
                used.add(anchor)
                line = f'| <span id="{anchor}"></span>{line[2:]}'
        if fence and not fenced:
            pieces.append(LINK.sub(link, "\n".join(prose)))
            prose = []
        if not fenced and line.startswith("#") and "<" in line:
            line += (
                f" {{#{_anchor(line)}}}"  # Python-Markdown would leave out what looks like a tag
            )
        (pieces if fenced or fence else prose).append(line)
        fenced ^= bool(fence)
    pieces.append(LINK.sub(link, "\n".join(prose)))
    return "\n".join(pieces) + "\n"


def _anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def _indented(lines: list[str]) -> Iterator[str]:
    """The lines with the contents of list items indented by four spaces for each level, and an empty line before each list:
    what Python-Markdown needs, and GitHub does not."""
    levels: list[int] = []  # the columns at which the contents of the open items begin
    fenced = False
    before = ""
    for line in lines:
        if not line.strip():
            yield ""
            before = ""
            continue
        column = len(line) - len(line.lstrip(" "))
        while levels and column < levels[-1]:
            levels.pop()
        inner = line[levels[-1] if levels else 0 :]
        item = None if fenced else LIST_ITEM.match(inner)
        if item and before and not levels and not LIST_ITEM.match(before):
            yield ""
        yield " " * (4 * len(levels)) + inner
        if item:
            levels.append((levels[-1] if levels else 0) + len(item[0]))
        fenced ^= bool(FENCE.match(line))
        before = line if not levels or item else before


def write_pages(folder: Path, *, versioned: bool = False) -> None:
    """Write all pages, images and the configuration into `folder`, which must not exist."""
    places = sources()
    pages = folder / "docs"
    shutil.copytree(ROOT / "docs" / "images", pages / "images")
    shutil.copy(ROOT / "docs" / "site.css", pages)
    for source, place in places.items():
        (pages / place).parent.mkdir(parents=True, exist_ok=True)
        (pages / place).write_text(site_page(source, text_of(source), places), encoding="utf-8")
    settings = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    for name in ("Packages", "Decisions"):
        listed = sorted(each for each in places.values() if each.startswith(f"{name.lower()}/"))
        lines = "".join(f"\n          - {place}" for place in listed)
        settings = settings.replace(f"{name}: []", f"{name}:{lines}")
    if versioned:
        settings += "extra:\n  version:\n    provider: mike\n"
    (folder / "mkdocs.yml").write_text(settings, encoding="utf-8")


def this_version() -> str:
    """The version of the gateway, by its first two numbers."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return ".".join(project["version"].split(".")[:2])


def list_versions(folder: Path) -> None:
    """Write what leads to the versions in `folder`, each of which is a folder named by two numbers."""
    found = [each.name for each in folder.iterdir() if re.fullmatch(r"\d+\.\d+", each.name)]
    found.sort(key=lambda name: [int(number) for number in name.split(".")], reverse=True)
    listed = [
        {"version": name, "title": name, "aliases": ["latest"] if name == found[0] else []}
        for name in found
    ]
    (folder / "versions.json").write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>Litegate</title>\n'
        f'<meta http-equiv="refresh" content="0; url={found[0]}/index.html">\n'
        f'<a href="{found[0]}/index.html">Litegate {found[0]}</a>\n</html>\n',
        encoding="utf-8",
    )


def main() -> int | str:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--pages", action="store_true", help="only write the pages, into FOLDER")
    parser.add_argument(
        "--versioned",
        action="store_true",
        help="write into a folder of FOLDER, beside other versions",
    )
    arguments = parser.parse_args()
    # Beside this Python, whose environment need not be the active one.
    builder = Path(sys.executable).with_name("zensical")
    if not (arguments.pages or builder.exists()):
        return f"{builder} is missing: {sys.executable} -m pip install -r docs/requirements.txt"
    site: Path = arguments.folder.absolute()
    target = site / this_version() if arguments.versioned else site
    pages = target if arguments.pages else target.with_name(f"{target.name}-pages")
    for folder in {target, pages}:
        shutil.rmtree(folder, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_pages(pages, versioned=arguments.versioned)
    if arguments.pages:
        return 0
    command = [
        str(builder),
        "build",
        "--strict",
        "--clean",
        "--config-file",
        str(pages / "mkdocs.yml"),
    ]
    built = subprocess.run(command, cwd=pages, check=False)
    if built.returncode == 0:
        shutil.move(pages / "site", target)
        shutil.rmtree(pages)
        if arguments.versioned:
            list_versions(site)
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
