"""Constraints hold whatever the model writes: a noise adapter at the highest temperature."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from gateway.base.constraints import (
    Const,
    Constraint,
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
from gateway.base.errors import InvalidRequest, ParamPath
from gateway.generation.error_params import locate_fault
from gateway.plugins.protocols import EngineRequest, TextFormat, ToolDefinition, Turn

pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2, "maxLength": 8},
        "unit": {"enum": ["celsius", "fahrenheit"]},
        "days": {"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["city", "unit", "days"],
    "additionalProperties": False,
}
CALL = Sequence(
    (
        Const('<tool_call>\n{"name": "weather", "arguments": '),
        JsonSchema(WEATHER),
        Const("}\n</tool_call>"),
    )
)
LARK = 'start: GREETING ", " NAME\nGREETING: "hello" | "goodbye"\nNAME: /[A-Z][a-z]{2,5}/\n'
GBNF = 'root ::= greeting ", " name\ngreeting ::= "hello" | "goodbye"\nname ::= [A-Z] [a-z]{2,5}\n'
# What it adds to a logit makes a token come within a few, without making it certain.
LIKELY = 12.0
GREETING = re.compile(r"(hello|goodbye), [A-Z][a-z]{2,5}")


def is_weather(text: str) -> bool:
    value = json.loads(text)
    assert value.keys() == {"city", "unit", "days"}
    assert 2 <= len(value["city"]) <= 8
    assert value["unit"] in ("celsius", "fahrenheit")
    return 1 <= len(value["days"]) <= 3 and all(isinstance(day, int) for day in value["days"])


def is_call(text: str) -> bool:
    match = re.fullmatch(
        r'<tool_call>\n\{"name": "weather", "arguments": (.*)\}\n</tool_call>', text, re.DOTALL
    )
    return match is not None and is_weather(match[1])


def are_calls(text: str) -> bool:
    *calls, rest = re.split(r"(?<=</tool_call>)(?:\n\n|\Z)", text)
    return len(calls) in (1, 2) and not rest and all(map(is_call, calls))


def is_thought_then_weather(text: str) -> bool:
    _, _, answer = text.partition("</think>\n")
    return is_weather(answer)


def complete_calls(text: str) -> list[str]:
    """From each trigger to the end of its call; what was cut off at the end of the text is left out."""
    _, *begun = text.split("<tool_call>")
    return [
        f"<tool_call>{call.partition('</tool_call>')[0]}</tool_call>"
        for call in begun
        if "</tool_call>" in call or call is not begun[-1]
    ]


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


ENFORCED: dict[str, tuple[Constraint, Callable[[str], bool]]] = {
    "schema": (JsonSchema(WEATHER), is_weather),
    "object": (JsonObject(), lambda text: isinstance(json.loads(text), dict)),
    "regex": (Regex(r"[ab]{2,4}\d.z"), matches(r"[ab]{2,4}\d.z")),
    "lark": (Grammar("lark", LARK), matches(GREETING.pattern)),
    "gbnf": (Grammar("gbnf", GBNF), matches(GREETING.pattern)),
    "choice": (OneOf((Const("yes"), Const('no "way"\n'))), lambda t: t in ("yes", 'no "way"\n')),
    "call": (CALL, is_call),
    "calls": (
        Sequence((CALL, Repeat(Sequence((Const("\n\n"), CALL)), min=0, max=1))),
        are_calls,
    ),
    "thought": (
        Sequence((FreeText("</think>"), Const("\n"), JsonSchema(WEATHER))),
        is_thought_then_weather,
    ),
    "grammars inside": (
        Sequence((Const("["), Grammar("lark", LARK), Const("|"), Grammar("gbnf", GBNF))),
        lambda t: bool(re.fullmatch(rf"\[{GREETING.pattern}\|{GREETING.pattern}", t)),
    ),
    "call or text": (OneOf((CALL, Const("No."))), lambda t: t == "No." or is_call(t)),
}


@pytest.mark.parametrize("name", ENFORCED)
def test_what_is_enforced_holds(served: Any, name: str) -> None:
    constraint, holds = ENFORCED[name]
    # Noise rarely comes to the end of a thought by itself.
    [end_of_thought] = served.engine.tokenizer.encode("</think>")
    finished = 0
    for seed in range(20):
        if finished == 3:
            break
        request = served.ask(
            adapter="noise",
            temperature=2.0,
            seed=seed,
            max_tokens=250,
            constraint=constraint,
            logit_bias={end_of_thought: LIKELY},
        )
        served.check(request)
        outputs = served.generate(request)
        if outputs[-1].finish_reason == "stop":
            finished += 1
            text = "".join(output.text for output in outputs)
            assert holds(text), text
    assert finished >= 2


def test_text_is_free_until_a_call_begins_and_the_call_is_well_formed(served: Any) -> None:
    """Which seed says what differs between processors: free text before a call is looked for among many."""
    [trigger] = served.engine.tokenizer.encode("<tool_call>")
    calls: list[str] = []
    after_free_text = 0
    for seed in range(40):
        request = served.ask(
            adapter="noise",
            temperature=2.0,
            seed=seed,
            max_tokens=250,
            constraint=Triggered("<tool_call>", CALL),
            # Half as likely as not to begin at once, and still within a few tokens.
            logit_bias={trigger: LIKELY - 3 * (seed % 4)},
        )
        text = "".join(output.text for output in served.generate(request))
        made = complete_calls(text)
        calls += made
        after_free_text += bool(made) and not text.startswith("<tool_call>")
        if after_free_text >= 2:
            break
    assert after_free_text >= 2, calls
    assert all(map(is_call, calls)), calls


def test_nothing_is_enforced_where_everything_is_allowed(served: Any) -> None:
    free = served.generate(served.ask(constraint=FreeText()))
    plain = served.generate(served.ask())
    assert [output.text for output in free] == [output.text for output in plain]


BROKEN = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
UNENFORCEABLE = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 1}}}}


def refusal_of(
    served: Any, request: EngineRequest, tools: Mapping[str, ParamPath]
) -> InvalidRequest:
    """The error of a request's check, with the parameter that the client is told."""
    with pytest.raises(InvalidRequest) as caught:
        served.check(request)
    served.run(locate_fault(caught.value, request, None, served.engine, tools))
    return caught.value


@pytest.mark.parametrize("schema", [BROKEN, UNENFORCEABLE])
def test_a_bad_schema_is_a_400_that_says_where_it_was_given(served: Any, schema: Any) -> None:
    text = Turn(items=[], text_format=TextFormat(kind="json_schema", name="x", schema=schema))
    for constraint in (JsonSchema(schema), Sequence((Const("a"), JsonSchema(schema)))):
        asked = served.ask(constraint=constraint, turn=text)
        assert refusal_of(served, asked, {}).param == "text.format.schema"
    tools = (
        ToolDefinition(name="good", parameters=WEATHER),
        ToolDefinition(name="bad", parameters=schema),
    )
    both = Sequence((JsonSchema(WEATHER), JsonSchema(schema)))
    places: dict[str, ParamPath] = {
        "good": ("tools", 0, "parameters"),
        "bad": ("tools", 1, "parameters"),
    }
    asked = served.ask(constraint=both, turn=Turn(items=[], tools=tools))
    assert refusal_of(served, asked, places).param == "tools[1].parameters"


@pytest.mark.parametrize(
    "constraint",
    [
        Regex("a(?=b)"),
        Regex("a("),
        Grammar("lark", "start: nowhere"),
        Grammar("gbnf", "root ::= ("),
        Sequence((Const("a"), Grammar("lark", "start: nowhere"))),
        Sequence((Const("a"), Regex("a("))),
        JsonSchema({"allOf": [{"type": "string"}, {"minLength": 3}]}),
        OneOf(()),
        Triggered("<a>", Const("<b>")),
    ],
)
def test_what_cannot_be_enforced_is_refused(served: Any, constraint: Constraint) -> None:
    request = served.ask(constraint=constraint)
    with pytest.raises(InvalidRequest):
        served.check(request)
    with pytest.raises(InvalidRequest):
        served.generate(request)


def test_an_enforced_output_cannot_ignore_its_end(served: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        served.check(served.ask(constraint=JsonObject(), ignore_eos=True))
    assert caught.value.param == "ignore_eos"
