"""JSON that models write: valid JSON comes out as it was, what is nearly JSON comes out as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_parsers.kit.json_value import JsonValue
from gateway_parsers.kit.markers import Marker, MarkerSet
from gateway_testing.reading import cut

STOPS = MarkerSet((Marker("</tool_call>", "stop"), Marker("[TOOL_CALLS]", "stop")))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.sampled_from("ab\"'\\\n\t{}[]:,<>/*`“”’ é🙂"), max_size=12) | st.just("</tool_call>"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
OBJECTS = st.dictionaries(st.text(max_size=4), VALUES, max_size=4)
PLACES = st.lists(st.integers(0, 500), max_size=12)
GARBAGE = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"', "'", "\\", "\\u00e", " ", "\n", "a", "true", "None", "007", "-", "</tool",
         "</tool_call>", '"a": ', "x y", "`", "//", "/*", "*/", "“", "”", "‘", "’", '""', "\x00", "\ud800"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


def read(parts: list[str]) -> tuple[str, JsonValue, str]:
    """What a value in these parts says, the value, and what came behind it."""
    value = JsonValue(STOPS)
    said: list[str] = []
    held = ""
    for index, part in enumerate(["", *parts, ""]):
        held += part
        if value.done or value.interrupted:
            continue
        end, piece = value.read(held, 0, final=index > len(parts))
        said.append(piece)
        held = held[end:]
    return "".join(said), value, held


@settings(max_examples=300, deadline=None)
@given(value=OBJECTS, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans(), places=PLACES)
def test_valid_json_comes_out_as_it_was(
    value: Any, indent: int | None, ascii_only: bool, places: list[int]
) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    said, reader, rest = read(cut(written + "</tool_call>", places))
    assert (said, reader.done, reader.repairs, rest) == (written, True, 0, "</tool_call>")


@settings(max_examples=500, deadline=None)
@given(garbage=GARBAGE, places=PLACES)
def test_whatever_is_read_is_json_and_does_not_depend_on_the_cutting(
    garbage: str, places: list[int]
) -> None:
    written = "{" + garbage
    said, value, rest = read([written])
    again, other, other_rest = read(list(written))
    third, _, _ = read(cut(written, places))
    assert (again, other.repairs, other.done, other_rest) == (said, value.repairs, value.done, rest)
    assert third == said
    if value.done or value.may_close:
        json.loads(said + ("" if value.done else value.closing()))


NEARLY = [
    ('{"a": 1,}', {"a": 1}),
    ('{"a": [1, 2,],}', {"a": [1, 2]}),
    ('{"a": 1,, "b": 2}', {"a": 1, "b": 2}),
    ("{'a': 'it\\'s', 'b': \"x\", 'c': 'don't', 'd': 'say \"x\"'}", {"a": "it's", "b": "x", "c": "don't", "d": 'say "x"'}),
    ('{"a": True, "b": False, "c": None}', {"a": True, "b": False, "c": None}),
    ('{a: 1, b_c: "x"}', {"a": 1, "b_c": "x"}),
    ('{"a": 007, "b": .5, "c": +1}', {"a": 7, "b": 0.5, "c": 1}),
    ('{"a": Oslo, "b": New York}', {"a": "Oslo", "b": "New York"}),
    ('{"a": "he said "hi" to me", "b": 1}', {"a": 'he said "hi" to me', "b": 1}),
    ('{"a": "x "y", z", "b": 1}', {"a": 'x "y", z', "b": 1}),
    ('{"a": "x"\n"b": 2}', {"a": "x", "b": 2}),
    ('{"a": 1 "b": 2}', {"a": 1, "b": 2}),
    ('{"a": }', {"a": None}),
    ('{"a": "C:\\users\\d"}', {"a": "C:\\users\\d"}),
    ('{"a": "x\ny\tz"}', {"a": "x\ny\tz"}),
    ('{"a": [1, 2}', {"a": [1, 2]}),
    ('{"a": {"b": 1}', {"a": {"b": 1}}),
    ('{"a": "x"</tool_call>', {"a": "x"}),
    ('{"a": "x", </tool_call>', {"a": "x"}),
    ('{"a":</tool_call>', {"a": None}),
    ('{"a": "</tool_call>"}', {"a": "</tool_call>"}),
    ('{{"a": 1}', {"a": 1}),
    ('{"a" 1}', {"a": 1}),
    ('{"a": "x" "b": 2}', {"a": "x", "b": 2}),
    ('{"a": "x", b": 2}', {"a": "x", "b": 2}),
    ('{a: "x", b: 2}', {"a": "x", "b": 2}),
    ('{"a":: 1}', {"a": 1}),
    ('{“a”: “x”, “b”: 1}', {"a": "x", "b": 1}),
    ('{"a": “say "hi", you”, "b": ‘it’s’}', {"a": 'say "hi", you', "b": "it’s"}),
    ('{"a": `x, y`, "b": [`p`, “q”]}', {"a": "x, y", "b": ["p", "q"]}),
    ('{"a": “x", "b": 1}', {"a": "x", "b": 1}),
    ('{"a": """x\n"y", z""", "b": 1}', {"a": 'x\n"y", z', "b": 1}),
    ("{'a': \'\'\'it's\'\'\'}", {"a": "it's"}),
    ('{"a": """"""}', {"a": ""}),
    ('{"a": ""x" y"}', {"a": '"x" y'}),
    ('{"a": 1, // the first, "c": 2\n "b": 2 /* last */}', {"a": 1, "b": 2}),
    ('{\n  // "c": 2\n  "a": "x", /* y, }\n ] */ "b": [1, // one\n 2 # two\n]}', {"a": "x", "b": [1, 2]}),
    ('{"a": 1 // one\n}', {"a": 1}),
    ('{"a": 1, // one</tool_call>', {"a": 1}),
    ('{"a": "http://x", "b": /usr/bin, "c": //x\n 3}', {"a": "http://x", "b": "/usr/bin", "c": 3}),
    ('{"a": TRUE, "b": FALSE, "c": NULL}', {"a": True, "b": False, "c": None}),
]  # fmt: skip


@pytest.mark.parametrize(("written", "meant"), NEARLY, ids=[written for written, _ in NEARLY])
def test_what_is_nearly_json_is_read_as_it_was_meant(written: str, meant: Any) -> None:
    for parts in ([written], list(written)):
        said, value, _ = read(parts)
        assert json.loads(said + ("" if value.done else value.closing())) == meant
        assert value.repairs or not value.done or value.interrupted or "</tool_call>" in written


def test_a_value_costs_the_same_per_character_however_long_it_is() -> None:
    """In steps of the reader, not in seconds: what was read is not handed in again, but for what cannot be judged yet."""
    for piece in ('"key": "some text", ', "word ", "1, ", '"x" '):
        value = JsonValue(STOPS)
        value.read("{", 0, final=False)
        held, handed_in = "", 0
        for letter in piece * 300:
            held += letter
            handed_in += len(held)
            end, _ = value.read(held, 0, final=False)
            held = held[end:]
        assert handed_in < 12 * 300 * len(piece)
