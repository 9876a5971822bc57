"""Values that a model writes as plain text, and the JSON that the tool's schema makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.plugins.protocols import EngineOutput, ParserContext, ToolDefinition
from gateway_parsers import BY_NAME, MarkupFormat
from gateway_parsers.kit.nested_tags import NestedTagCalls
from gateway_parsers.kit.tag_calls import TagCalls
from gateway_parsers.kit.template import fill
from gateway_testing.reading import blocks, feed

FAMILIES = [
    "qwen3_coder", "mimo", "seed_oss", "minimax_m2", "minimax_m3", "glm45", "glm47", "deepseek_v32", "step3", "hy_v3",
    "dots", "minicpm5", "k2_horizon", "kimi_k3",
]  # fmt: skip
SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"Count": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
        "string": {"type": "string"},
        "integer": {"type": "integer"},
        "number": {"type": "number"},
        "boolean": {"type": "boolean"},
        "object": {"type": "object"},
        "array": {"type": "array", "items": {"type": "string"}},
        "string_or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "integer_or_null": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "string_or_integer": {"type": ["string", "integer"]},
        "string_or_object": {"oneOf": [{"type": "string"}, {"type": "object"}]},
        "referenced": {"$ref": "#/$defs/Count"},
        "looped": {"$ref": "#/$defs/Loop"},
        "narrowed": {"allOf": [{"$ref": "#/$defs/Count"}, {"minimum": 0}]},
        "word": {"enum": ["1", "2"]},
        "anything": {},
    },
}
TOOL = ToolDefinition(name="f", parameters=SCHEMA)

VALUES: dict[tuple[str, str], Any] = {
    ("string", "007"): "007",
    ("string", "null"): "null",
    ("string", "True"): "True",
    ("string", '{"a":1}'): '{"a":1}',
    ("string", ""): "",
    ("string", 'say "hi" \\ é'): 'say "hi" \\ é',
    ("string", "<b>1 < 2</b> & <parameters>"): "<b>1 < 2</b> & <parameters>",
    ("integer", "007"): 7,
    ("integer", "12"): 12,
    ("integer", " 12 "): 12,
    ("integer", "1.0"): 1,
    ("integer", "null"): None,
    ("integer", "many"): "many",
    ("number", "007"): 7,
    ("number", "1.50"): 1.5,
    ("number", ".5"): 0.5,
    ("number", "1e3"): 1000.0,
    ("number", "1e999"): "1e999",
    ("number", "NaN"): "NaN",
    ("boolean", "True"): True,
    ("boolean", "false"): False,
    ("boolean", "FALSE"): False,
    ("boolean", "1"): True,
    ("object", '{"a":1}'): {"a": 1},
    ("object", "{'a': None, 'b': [True]}"): {"a": None, "b": [True]},
    ("object", '{"a": "x\ny"}'): {"a": "x\ny"},
    ("object", ""): {},
    ("array", '["x", "y"]'): ["x", "y"],
    ("array", ""): [],
    ("string_or_null", "null"): None,
    ("string_or_null", "nullable"): "nullable",
    ("string_or_null", "None"): "None",
    ("string_or_null", "007"): "007",
    ("integer_or_null", "null"): None,
    ("integer_or_null", "7"): 7,
    ("integer_or_null", ""): None,
    ("string_or_integer", "007"): "007",
    ("string_or_integer", "12"): 12,
    ("string_or_integer", "12 monkeys"): "12 monkeys",
    ("string_or_object", '{"a":1}'): {"a": 1},
    ("string_or_object", "{a}"): "{a}",
    ("referenced", "7"): 7,
    ("looped", "text"): "text",
    ("narrowed", "7"): 7,
    ("word", "1"): "1",
    ("anything", "text"): "text",
    ("anything", "12"): 12,
    ("anything", '{"a":1}'): {"a": 1},
    ("unlisted", "plain text"): "plain text",
}


def call(family: str, key: str, value: str) -> str:
    """A call with one value, written as it stands."""
    syntax = BY_NAME[family].calls
    if isinstance(syntax, NestedTagCalls):
        mark = syntax.prefix
        element = f"{mark}<{key}>{value}{mark}</{key}>"
        return f'{syntax.start}\n{mark}<invoke name="f">{element}{mark}</invoke>\n{syntax.end}'
    assert isinstance(syntax, TagCalls)
    head = fill(syntax.head, {"name": "f", "index": "1"})
    parameter = syntax.parameter.replace(' string="{string}"', "").replace(' type="{type}"', "")
    said = fill(parameter, {"key": key, "value": value})
    return syntax.opening + head + said + syntax.tail + syntax.closing


def arguments(family: str, raw: str, tool: ToolDefinition = TOOL) -> str:
    read = []
    for parts in ([raw], list(raw)):
        context = ParserContext(tail="text", tools={"f": tool})
        (block,) = blocks(feed(MarkupFormat(BY_NAME[family]).parser(context), parts))
        assert block.whole
        read.append(block.text)
    assert read[0] == read[1]
    return read[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_schema_decides_what_a_value_is(family: str) -> None:
    for (key, value), expected in VALUES.items():
        if family == "minimax_m3" and key == "array" and value:
            continue  # lists are elements there
        found = json.loads(arguments(family, call(family, key, value)))
        assert (found, type(found[key])) == ({key: expected}, type(expected)), value


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("object", r'"{\"a\": \"\ud800x\"}"', {"a": "\ufffdx"}),
        ("object", r"{\"a\": \"\ud800x\"}", {"a": "\ufffdx"}),
        ("array", r'"[\"\udfff\ud83d\ude00\"]"', ["\ufffd😀"]),
    ],
)
def test_half_of_a_surrogate_pair_in_escaped_json_is_replaced(
    key: str, value: str, expected: Any
) -> None:
    """It cannot be sent."""
    said = arguments("qwen3_coder", call("qwen3_coder", key, value))
    assert json.loads(said) == {key: expected}
    assert said.encode()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_string_goes_out_as_it_comes(family: str) -> None:
    for key in ("string", "string_or_null", "string_or_object"):
        raw = call(family, key, "It is a long\n\ntext. " * 30)
        context = ParserContext(tail="text", tools={"f": TOOL})
        parser = MarkupFormat(BY_NAME[family]).parser(context)
        if family == "minimax_m3" and key != "string":
            continue  # what may be something else is kept there until its element ends
        half = raw.index("text. It") + 300
        said = [delta for letter in raw[:half] for delta in parser.feed(EngineOutput(text=letter))]
        assert len(said) > 200


@pytest.mark.parametrize("family", ["qwen3_coder", "seed_oss"])
def test_one_line_break_on_each_side_is_markup(family: str) -> None:
    for value in ("x", "\nx\n", "", "\n", "  x", "x\n\n"):
        assert json.loads(arguments(family, call(family, "string", value))) == {"string": value}


@pytest.mark.parametrize("family", ["mimo", "minimax_m2", "glm45", "deepseek_v32", "kimi_k3"])
def test_whitespace_is_a_part_of_the_value(family: str) -> None:
    for value in (" x ", "\nx\n", "\n", "x\n\n"):
        assert json.loads(arguments(family, call(family, "string", value))) == {"string": value}


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "minimax_m3"])
def test_a_value_without_its_end_marker_ends_where_the_next_begins(family: str) -> None:
    syntax = BY_NAME[family].calls
    assert isinstance(syntax, TagCalls)
    whole = call(family, "string", "x")
    assert json.loads(arguments(family, whole.replace(syntax.value_close, "", 1))) == {
        "string": "x"
    }
    more = fill(
        syntax.parameter, {"key": "integer", "value": "3", "string": "false", "type": "number"}
    )
    first = fill(
        syntax.parameter, {"key": "string", "value": "x", "string": "true", "type": "string"}
    )
    broken = whole.replace(first, first.replace(syntax.value_close, "") + more)
    if broken != whole:
        assert json.loads(arguments(family, broken)) == {"string": "x", "integer": 3}


def test_markup_that_tells_the_type_overrules_the_schema() -> None:
    for family, string, other in (
        ("deepseek_v32", 'string="true"', 'string="false"'),
        ("kimi_k3", 'type="string"', 'type="number"'),
    ):
        raw = call(family, "anything", "12")
        at = '"anything"'
        assert json.loads(arguments(family, raw.replace(at, f"{at} {string}"))) == {
            "anything": "12"
        }
        assert json.loads(arguments(family, raw.replace(at, f"{at} {other}"))) == {"anything": 12}


def test_attributes_of_kimi_k3_are_escaped() -> None:
    raw = call("kimi_k3", "a &quot;b&quot; &amp;amp;", "x")
    assert json.loads(arguments("kimi_k3", raw)) == {'a "b" &amp;': "x"}


def test_elements_of_minimax_m3_nest() -> None:
    mark = "]<]minimax[>["
    tool = ToolDefinition(
        name="f",
        parameters={
            "type": "object",
            "properties": {
                "items": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"id": {"type": "string"}, "n": {"type": "integer"}},
                    },
                },
                "free": {"type": "object"},
            },
        },
    )
    raw = (
        "<tool_call>\n<invoke name=\"f\"><items><item><id>007</id><n>2</n></item><item><id>8</id></item></items>"
        "<free><a>x</a><a>y</a><b><item>1</item></b></free></invoke>\n</tool_call>"
    ).replace("<", mark + "<")  # fmt: skip
    assert json.loads(arguments("minimax_m3", raw, tool)) == {
        "items": [{"id": "007", "n": 2}, {"id": "8"}],
        "free": {"a": ["x", "y"], "b": [1]},
    }


def test_a_custom_tool_takes_its_text_as_it_stands() -> None:
    tool = ToolDefinition(name="f", kind="custom")
    assert json.loads(arguments("qwen3_coder", call("qwen3_coder", "input", "12"), tool)) == {
        "input": "12"
    }


KINDS = {
    "oneOf": [
        {"type": "object", "properties": {"kind": {"const": kind}, "v": {"type": type_}}}
        for kind, type_ in (("text", "string"), ("count", "integer"), ("list", "array"))
    ]
}
TAGS = {
    "qwen3_coder": (
        "<tool_call>\n<function=f>\n{}</function>\n</tool_call>",
        "<parameter={}>\n{}\n</parameter>\n",
    ),
    "glm45": ("<tool_call>f\n{}</tool_call>", "<arg_key>{}</arg_key>\n<arg_value>{}</arg_value>\n"),
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="f">\n{}</invoke>\n</minimax:tool_call>',
        '<parameter name="{}">{}</parameter>\n',
    ),
    "minimax_m3": (
        ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">{}]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>',
        "]<]minimax[>[<{0}>{1}]<]minimax[>[</{0}>",
    ),
}


@pytest.mark.parametrize("name", TAGS)
@pytest.mark.parametrize("first", ["kind", "v"])
@pytest.mark.parametrize(
    ("kind", "text", "value"), [("text", "5", "5"), ("text", "[1]", "[1]"), ("count", "5", 5), ("list", "[1]", [1])]
)  # fmt: skip
def test_a_member_that_says_the_kind_types_those_before_and_after_it(
    name: str, first: str, kind: str, text: str, value: Any
) -> None:
    around, one = TAGS[name]
    members = [("kind", kind), ("v", text)] if first == "kind" else [("v", text), ("kind", kind)]
    raw = around.format("".join(one.format(*member) for member in members))
    for parts in ([raw], list(raw)):
        tools = {"f": ToolDefinition(name="f", parameters=KINDS)}
        parser = MarkupFormat(BY_NAME[name]).parser(ParserContext(tail="text", tools=tools))
        (block,) = blocks(feed(parser, parts))
        assert json.loads(block.text) == {"kind": kind, "v": value}
