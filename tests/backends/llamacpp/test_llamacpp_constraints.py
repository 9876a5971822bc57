"""Constraints hold whatever the model would rather say: sampled hot, where a trained model is as good as a random one."""

from __future__ import annotations

import asyncio
import json
import re

import jsonschema
import pytest

from gateway.base.constraints import (
    Const,
    FreeText,
    Grammar,
    JsonObject,
    JsonSchema,
    OneOf,
    Regex,
    Repeat,
    Sequence,
    Triggered,
)
from gateway.base.errors import InvalidRequest, Unsupported
from gateway_llamacpp.gbnf.constraints import to_gbnf

pytestmark = pytest.mark.anyio


def strict(properties, **more):
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
        **more,
    }


PERSON = strict(
    {
        "name": {"type": "string", "minLength": 2, "maxLength": 5},
        "age": {"type": "integer", "minimum": -17, "maximum": 120},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "tags": {
            "type": "array",
            "items": {"enum": ["a", 'b"\\q', 3, None, "é"]},
            "minItems": 1,
            "maxItems": 3,
        },
        "code": {"type": "string", "pattern": '^[A-Z]{2}["x]?\\d{1,3}$'},
        "note": {"type": ["string", "null"], "maxLength": 4},
        "sure": {"type": "boolean"},
    }
)
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {
        "node": strict(
            {
                "value": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.25},
                "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]},
            }
        )
    },
}
SCHEMAS = {
    "person": PERSON,
    "tree": TREE,
    "optional": {
        "type": "object",
        "properties": {name: {"type": "boolean"} for name in "abcd"},
        "required": ["b"],
        "additionalProperties": False,
    },
    "all optional": {
        "type": "object",
        "properties": {name: {"const": name} for name in "ab"},
        "additionalProperties": False,
    },
    "map": {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 3},
    "tuple": {
        "type": "array",
        "prefixItems": [{"const": 1}, {"type": "boolean"}],
        "items": {"type": "null"},
        "maxItems": 5,
    },
    "closed tuple": {
        "type": "array",
        "prefixItems": [{"const": 1}, {"type": "boolean"}],
        "items": False,
        "minItems": 1,
    },
    "union": {
        "oneOf": [
            strict(
                {"kind": {"const": "circle"}, "r": {"type": "integer", "minimum": 1, "maximum": 9}}
            ),
            strict(
                {"kind": {"const": "square"}, "side": {"type": "integer", "exclusiveMaximum": 0}}
            ),
            {"type": "string", "maxLength": 3},
        ]
    },
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"properties": {"a": {"minimum": 5, "maximum": 7}}},
        ]
    },
    "large integers": strict({"n": {"type": "integer", "minimum": 995, "maximum": 100_003}}),
    "fractions": strict({"x": {"type": "number", "minimum": -0.25, "maximum": 0.125}}),
    "formats": strict(
        {
            name: {"type": "string", "format": name}
            for name in (
                "date",
                "time",
                "date-time",
                "duration",
                "email",
                "hostname",
                "ipv4",
                "ipv6",
                "uuid",
                "uri",
            )
        }
    ),
    "patterns": strict(
        {
            "unanchored": {"type": "string", "pattern": "^a.{0,3}b+$|^xy$"},
            "escapes": {"type": "string", "pattern": '^[\\\\"\\n]{3}$'},
        }
    ),
    "arrays of arrays": {
        "type": "array",
        "items": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
        "maxItems": 2,
    },
}


async def answers(ask, constraint, seeds=4, **sampling):
    sampling = {"max_tokens": 900, "temperature": 4.0, **sampling}
    return await asyncio.gather(
        *(ask(constraint=constraint, seed=seed, **sampling) for seed in range(seeds))
    )


@pytest.mark.parametrize("name", SCHEMAS)
async def test_output_under_a_schema_is_valid(ask, name):
    schema = SCHEMAS[name]
    checker = jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )
    finished = 0
    for answer in await answers(ask, JsonSchema(schema), seeds=8):
        # llama.cpp's grammar takes an overlong UTF-8 sequence, which no trained model writes, for a character.
        if answer.reason == "stop" and "\ufffd" not in answer.text:
            finished += 1
            checker.validate(json.loads(answer.text))
    assert finished


async def test_an_unanchored_pattern_is_found_anywhere(ask):
    schema = {"type": "string", "pattern": "b+c"}
    for answer in await answers(ask, JsonSchema(schema)):
        assert re.search("b+c", json.loads(answer.text))


ENDLESS = {
    "string": {"type": "string"},
    "long string": {"type": "string", "minLength": 130},
    "pattern": {"type": "string", "pattern": "b+c|(x[ab]*(y|z)*)+"},
    "array": {"type": "array", "minItems": 6},
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}] * 6},
    "array of arrays": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
    "map": {"type": "object", "additionalProperties": {"type": "string"}},
    "names": {"type": "object", "propertyNames": {"pattern": "^a+$"}},
    "anything": {},
    "all of": {"allOf": [{"type": "string"}, {"description": "a name"}]},
    "several": strict({"a": {"type": ["string", "array", "object"]}, "b": True}),
}


@pytest.mark.parametrize("name", ENDLESS)
async def test_json_of_the_tiny_model_ends_where_a_schema_sets_no_limit(ask, name):
    checker = jsonschema.Draft202012Validator(ENDLESS[name])
    for answer in await answers(ask, JsonSchema(ENDLESS[name]), max_tokens=None):
        assert answer.reason == "stop"
        if "\ufffd" not in answer.text:
            checker.validate(json.loads(answer.text))


async def test_a_request_weighs_the_ends_of_strings_itself(engine, ask):
    """Bounded JSON prefers ends of strings; what a request says of these tokens holds."""
    [quote] = engine.tokenizer.encode('"')
    answer = await ask(
        constraint=JsonSchema({"enum": ["a", 5]}), temperature=0.0, logit_bias={quote: -100.0}
    )
    assert answer.text == "5"


async def test_any_json_object_is_an_object(ask):
    for answer in await answers(ask, JsonObject(), seeds=12):
        assert answer.reason == "stop"
        assert isinstance(json.loads(answer.text), dict)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(foo|ba[rz])\d{2,3}-[^x\n]y?",
        r"^\w+@[a-f.-]{2,5}$",
        r"a{0}b{2}c{1,}?(?:d|e){3}",
        r"(?P<year>\d{4})(?<month>0[1-9])",
        r"[^a-z\s]{4}\x41\u0042\.\{x\}",
        r"|x",
        r"[]a]{2}",
        r"\$\^\\\/\|",
        r"x{y{2}{}",
        r"(a|b|)(c|)",
    ],
)
async def test_output_under_a_pattern_matches_it(ask, pattern):
    readable = pattern.replace("(?<month>", "(?P<month>")
    for answer in await answers(ask, Regex(pattern), max_tokens=120):
        if answer.reason == "stop":
            assert re.fullmatch(readable, answer.text, re.ASCII), answer.text


async def test_text_up_to_a_marker_ends_at_its_first_occurrence(ask):
    constraint = Sequence((FreeText("e"), Const("!")))
    for answer in await answers(ask, constraint):
        assert answer.reason == "stop"
        assert answer.text.endswith("e!")
        assert answer.text.count("e") == 1


async def test_the_marker_is_found_although_it_overlaps_itself(engine, ask):
    """`aaab` holds the marker `aab`: an automaton that starts anew at a mismatch would run past it."""
    letters = [engine.tokenizer.encode(character)[0] for character in "ab"]
    # So hot that only the bias counts: a fair coin tosses the text.
    coin = {"logit_bias": dict.fromkeys(letters, 20_000.0), "temperature": 200.0, "max_tokens": 300}
    constraint = Sequence((FreeText("aab"), Const("!")))
    for answer in await answers(ask, constraint, seeds=12, **coin):
        assert answer.reason == "stop"
        assert answer.text.index("aab") == len(answer.text) - 4


async def test_sequences_choices_and_repetitions_compose(ask):
    constraint = Sequence(
        (
            Const("<calls>"),
            Repeat(
                Sequence(
                    (
                        Const('{"name": "f", "arguments": '),
                        JsonSchema(strict({"x": {"type": "boolean"}})),
                        Const("}\n"),
                    )
                ),
                min=1,
                max=3,
            ),
            OneOf((Const("</calls>"), Const("</end>"))),
        )
    )
    for answer in await answers(ask, constraint):
        assert answer.reason == "stop"
        body, _, end = answer.text.removeprefix("<calls>").rpartition("\n")
        assert end in ("</calls>", "</end>")
        calls = re.findall(r'\{"name": "f", "arguments": (.*?)\}(?=\n|$)', body, re.DOTALL)
        assert 1 <= len(calls) <= 3


async def test_two_schemas_in_one_tree_keep_their_own_references(ask):
    def schema(value):
        return JsonSchema({"$ref": "#/$defs/v", "$defs": {"v": {"const": value}}})

    for answer in await answers(ask, Sequence((schema(1), Const(" "), schema("two")))):
        assert answer.text == '1 "two"'


async def test_what_a_trigger_begins_is_well_formed_wherever_it_begins(ask):
    constraint = Triggered("<", Sequence((Const("<f>"), Regex("[0-9]{2}"), Const("</f>"))))
    seen = 0
    for answer in await answers(
        ask, constraint, logit_bias={ord("<") - 33: 20.0}, max_tokens=120, ignore_eos=True
    ):
        rest = re.sub("<f>[0-9]{2}</f>", "", answer.text)
        seen += answer.text.count("</f>")
        assert re.fullmatch(r"[^<]*(<(f(>[0-9]{0,2}(<(/f?)?)?)?)?)?", rest)
    assert seen
    assert any(
        answer.reason == "stop" for answer in await answers(ask, constraint, temperature=0.5)
    )


async def test_a_grammar_of_the_request_is_taken_whole_and_inside_a_tree(ask):
    grammar = Grammar("gbnf", 'root ::= foo{2} # twice "root"\nfoo ::= "<" [a-c"\\]] ">"')
    for answer in await answers(ask, grammar):
        assert re.fullmatch(r'(<[a-c"\]]>){2}', answer.text)
    for answer in await answers(ask, Sequence((grammar, Const("-"), grammar))):
        assert re.fullmatch(r'(<[a-c"\]]>){2}-(<[a-c"\]]>){2}', answer.text)


@pytest.mark.parametrize(
    ("keyword", "schema"),
    [
        ("multipleOf", {"type": "integer", "multipleOf": 3}),
        ("uniqueItems", {"type": "array", "uniqueItems": True}),
        ("patternProperties", {"type": "object", "patternProperties": {"^x": {}}}),
        ("not", {"not": {"type": "null"}}),
        ("if", {"if": {}, "then": {}}),
        ("contains", {"type": "array", "contains": {}}),
        ("oneOf", {"oneOf": [{"type": "integer"}, {"type": "number"}]}),
        ("pattern", {"type": "string", "pattern": "(?=x)y"}),
        ("optional", {"type": "object", "properties": {"a": {}}, "minProperties": 1}),
        ("only one", {"type": "string", "pattern": "x", "maxLength": 3}),
        ("at most", {"type": "string", "maxLength": 10**6}),
    ],
)
def test_a_keyword_that_would_be_dropped_is_refused_by_name(keyword, schema):
    with pytest.raises(Unsupported, match=re.escape(keyword) if keyword != "pattern" else r"\(\?="):
        to_gbnf(JsonSchema(strict({"deep": schema})))


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema({"$ref": "#/$defs/none"}),
        JsonSchema({"type": "thing"}),
        JsonSchema({"type": "integer", "minimum": 5, "maximum": 4}),
        JsonSchema({"type": "array", "minItems": 3, "maxItems": 2}),
        Regex("(a"),
        Regex("a)"),
        Regex("*a"),
        Regex("[z-a]"),
        Regex("[a"),
        Regex("\\u12"),
        Grammar("gbnf", "root ::= missing"),
        Grammar("gbnf", 'start ::= "x"'),
        Sequence((Grammar("gbnf", 'root ::= "x'), Const("-"))),
        Grammar("lark", 'start: "x"'),
        Triggered("<a>", Const("<b>")),
    ],
)
async def test_a_malformed_constraint_is_refused_before_it_starts(engine, make_request, constraint):
    with pytest.raises(InvalidRequest):
        await engine.check(make_request(constraint=constraint))


@pytest.mark.parametrize(
    "pattern", [r"\bx", r"(a)\1", r"(?!x)y", r"(?i)x", r"\p{L}", r"a^b", r"[[:alpha:]]", r"x{,2}"]
)
def test_what_a_grammar_cannot_match_is_unsupported(pattern):
    with pytest.raises(Unsupported):
        to_gbnf(Regex(pattern))


async def test_a_grammar_that_llama_cpp_refuses_is_a_bad_request(engine, make_request):
    """Left recursion passes our own look at the rules."""
    with pytest.raises(InvalidRequest):
        await anext(engine.generate(make_request(constraint=Grammar("gbnf", 'root ::= root "x"'))))


def test_documentation_is_no_reason_to_refuse():
    documented = {
        "title": "T",
        "description": "d",
        "default": 1,
        "examples": [1],
        "x-order": 2,
        "type": "integer",
    }
    assert to_gbnf(JsonSchema(documented)) == to_gbnf(JsonSchema({"type": "integer"}))
