"""`docs/architecture.md` names modules and objects that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PLACES = sorted(set(re.findall(r"`((?:gateway|tests|plugins|backends)/[^`]*)`", PAGE)))
MAX_TERMS = 40


def names_in(nodes: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module or a class defines, by name."""
    names: dict[str, ast.stmt] = {}
    for node in nodes:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names[node.target.id] = node
        elif isinstance(node, ast.Assign):
            names.update((each.id, node) for each in node.targets if isinstance(each, ast.Name))
    return names


def glossary() -> list[str]:
    """The terms of the glossary."""
    _, _, section = PAGE.partition("## Glossary\n")
    return [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")][
        1:
    ]


@pytest.mark.parametrize("place", PLACES)
def test_each_place_in_the_source_exists(place: str) -> None:
    path, _, dotted = place.partition(":")
    assert (ROOT / path).exists()
    if not dotted:
        return
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in dotted.split("."):
        node = names_in(body).get(name)
        assert node is not None, f"{path} has no {name}"
        body = getattr(node, "body", [])


def test_the_page_names_enough_places_to_be_worth_checking() -> None:
    assert len([place for place in PLACES if ":" in place]) > 50


def test_the_glossary_is_short_and_sorted() -> None:
    terms = glossary()
    assert 20 <= len(terms) <= MAX_TERMS
    assert terms == sorted(terms, key=str.lower)
