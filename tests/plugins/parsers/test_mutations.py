"""However an output is cut, it is read the same: mutations of every recorded output, cut at random.

The fast test looks at a few, the slow ones at 50,000.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.plugins.protocols import (
    CallPiece,
    OutputFormat,
    ParserContext,
    Piece,
    ReasoningPiece,
    TextPiece,
    ToolDefinition,
)
from gateway_harmony import HarmonyFormat
from gateway_harmony.markers import MARKERS
from gateway_parsers import BY_NAME, FORMATS, MarkupFormat
from gateway_testing.mutations import cuttings, mutated
from gateway_testing.reading import Block, blocks, check_grammar, feed

DATA = Path(__file__).parents[2] / "data"
PARAMETERS = {
    "type": "object",
    "properties": {
        "a": {"type": "string"},
        "n": {"type": "integer"},
        "b": {"type": "boolean"},
        "o": {"type": "object"},
        "l": {"type": "array", "items": {"type": "string"}},
    },
}
UNION = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"a>b": {"type": "string"}, "v": {"type": kind}, "kind": {"const": kind}},
        }
        for kind in ("string", "integer")
    ]
}
"""Parameters whose types depend on one another, one with a `>` in its name."""
CALLS = (
    CallPiece(
        "f",
        '{"a": "he said \\"hi\\", <b>x</b>", "n": 3, "o": {"k": [1, null, {"x": "y"}]}}',
    ),
    CallPiece("g", '{"b": true, "l": ["p", "q, r"], "n": -2}'),
    CallPiece("stop_all", "{}"),
    CallPiece("free", '{"z": "w", "y": 1.5, "x": {"q": "a}b"}}'),
    CallPiece("patch", '{"input": "*** Begin Patch\\n+  {\\"a\\": 1}\\n*** End Patch"}'),
    CallPiece("pick", '{"a>b": "yes", "v": "12", "kind": "string"}'),
)


@cache
def formats() -> dict[str, OutputFormat]:
    found: dict[str, OutputFormat] = {spec.name: MarkupFormat(spec) for spec in FORMATS}
    return {**found, "harmony": HarmonyFormat()}


@cache
def tools() -> dict[str, ToolDefinition]:
    known: dict[str, Any] = json.loads((DATA / "reported_outputs.json").read_text("utf-8"))["tools"]
    known |= {"f": PARAMETERS, "g": PARAMETERS, "stop_all": None, "free": {}, "pick": UNION}
    found = {name: ToolDefinition(name=name, parameters=each) for name, each in known.items()}
    return {**found, "patch": ToolDefinition(name="patch", kind="custom")}


@cache
def markers(name: str) -> list[str]:
    spec = BY_NAME.get(name)
    if spec is None:
        return [*MARKERS]
    found = [*spec.hidden, *spec.frame_opens, "<|im_end|>"]
    if spec.reasoning is not None:
        found += (*spec.reasoning.opens, *spec.reasoning.closes)
    if spec.calls is not None:
        found += (*spec.calls.starts, *spec.calls.markup, *spec.calls.ends)
    return found


@cache
def recorded() -> list[tuple[str, str]]:
    """Outputs that were reported, and those that each format writes itself, with their formats."""
    reports = json.loads((DATA / "reported_outputs.json").read_text("utf-8"))["outputs"]
    found = [(each["format"], each["output"]) for each in reports]
    for path in sorted((DATA / "outputs").glob("*.json")):
        family = json.loads(path.read_text("utf-8"))
        found += [(family["format"], each["output"]) for each in family["outputs"]]
    named = [(BY_NAME[name].name if name in BY_NAME else name, output) for name, output in found]
    for name, output_format in formats().items():
        spec = BY_NAME.get(name)
        pieces: list[Piece] = [TextPiece('Hello, "you" <b>there</b>.')]
        if spec is None or spec.reasoning is not None:
            pieces.insert(0, ReasoningPiece("let me think\nof it"))
        calls = CALLS if spec is None or spec.calls is not None else ()
        for index in range(len(CALLS) - 1):
            written = output_format.write([*pieces, *calls[index : index + 2]], tail="text")
            named.append((name, written))
    return named


def read(
    name: str, parts: list[str], context: ParserContext, finish: Any
) -> tuple[list[Block], int]:
    parser = formats()[name].parser(context)
    deltas = feed(parser, parts, finish)
    check_grammar(deltas, "".join(parts))
    return blocks(deltas), parser.recoveries


def check(seed: int, rounds: int) -> None:
    random = Random(seed)
    for _ in range(rounds):
        name, output = random.choice(recorded())
        output = mutated(random, output, markers(name))
        context = ParserContext(
            tail=random.choice(["text", "text", "reasoning", "unknown"]),
            tools=random.choice([tools(), tools(), {}]),
        )
        finish = random.choice(["stop", "stop", "length"])
        at_once = read(name, [output], context, finish)
        said = f"{name}, {context.tail}, {finish}, {len(context.tools)} tools: {output!r}"
        for parts in cuttings(random, output):
            assert read(name, parts, context, finish) == at_once, said
        if name != "harmony":  # whose arguments are passed on as they are if they contain no object
            for block in at_once[0]:
                if block.kind == "call" and block.whole:
                    assert isinstance(json.loads(block.text), dict), said


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_a_mutated_output_reads_the_same_however_it_is_cut(seed: int) -> None:
    check(seed, 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 12))
def test_50_000_mutated_outputs_read_the_same_however_they_are_cut(seed: int) -> None:
    check(seed, 12_500)
