"""Outputs collected from the tests of other servers (tests/data/outputs), read at once and under cuttings.

An output with a `policy` is a matter of choice: other servers read it otherwise, and the table of policies in the
plugin's README says why this one does not. The goal is 98 % of the others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from gateway.plugins.protocols import OutputFormat, ParserContext, ToolDefinition
from gateway_harmony import HarmonyFormat
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_testing.mutations import cuttings
from gateway_testing.reading import blocks, check_grammar, feed

DATA = Path(__file__).parents[2] / "data" / "outputs"
README = Path(__file__).parents[3] / "plugins" / "parsers" / "README.md"
GOAL = 0.98


class Case(msgspec.Struct, forbid_unknown_fields=True):
    """One output, and what the source expects."""

    output: str
    source: str
    tail: Any = "text"
    finish: Any = "stop"
    reasoning: str = ""
    content: str = ""
    calls: list[tuple[str, Any]] = []
    policy: str = ""


class Family(msgspec.Struct, forbid_unknown_fields=True):
    """The outputs of one format, for requests that offer `tools`."""

    format: str
    tools: dict[str, dict[str, Any]]
    outputs: list[Case]


def families() -> list[Family]:
    paths = sorted(DATA.glob("*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Family) for path in paths]


FAMILIES = families()


def format_of(name: str) -> OutputFormat:
    return HarmonyFormat() if name == "harmony" else MarkupFormat(BY_NAME[name])


def read(family: Family, case: Case, parts: list[str]) -> tuple[str, str, list[tuple[str, Any]]]:
    """Reasoning, text and complete calls, without white space in the first two."""
    tools = {
        name: ToolDefinition(name=name, parameters=schema) for name, schema in family.tools.items()
    }
    parser = format_of(family.format).parser(ParserContext(tail=case.tail, tools=tools))
    deltas = feed(parser, parts, case.finish)
    check_grammar(deltas, case.output)
    found = blocks(deltas)
    calls = [
        (each.name, json.loads(each.text)) for each in found if each.kind == "call" and each.whole
    ]
    said = {
        kind: "".join("".join(each.text for each in found if each.kind == kind).split())
        for kind in ("reasoning", "text")
    }
    return said["reasoning"], said["text"], calls


def expected(case: Case) -> tuple[str, str, list[tuple[str, Any]]]:
    return "".join(case.reasoning.split()), "".join(case.content.split()), case.calls


def cases(*, policy: bool) -> Iterator[tuple[Family, Case]]:
    for family in FAMILIES:
        for case in family.outputs:
            if bool(case.policy) is policy:
                yield family, case


@pytest.mark.parametrize("family", FAMILIES, ids=[family.format for family in FAMILIES])
def test_no_cutting_changes_what_is_read(family: Family) -> None:
    random = Random(1)
    for case in family.outputs:
        at_once = read(family, case, [case.output])
        for _ in range(3):
            for parts in cuttings(random, case.output):
                assert read(family, case, parts) == at_once


def test_the_share_of_outputs_read_as_their_source_expects() -> None:
    every = list(cases(policy=False))
    missed = [
        f"{family.format}: {case.output!r}: {read(family, case, [case.output])}"
        for family, case in every
        if read(family, case, [case.output]) != expected(case)
    ]
    assert len(missed) <= (1 - GOAL) * len(every), "\n".join(missed)


def test_matters_of_policy_are_read_otherwise_and_stand_in_the_readme() -> None:
    readme = README.read_text("utf-8")
    for family, case in cases(policy=True):
        assert read(family, case, [case.output]) != expected(case), case.output
        assert f"| {case.policy} |" in readme, case.policy
