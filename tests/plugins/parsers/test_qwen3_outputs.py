"""What outputs of the think-and-JSON-calls family read as; every case cut into characters too."""

from __future__ import annotations

from typing import Any

import pytest

F = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
G = F.replace('"f"', '"g"')
CALL_F = [("call", "f"), ("arguments", '{"a": 1}')]
CALL_G = [("call", "g"), ("arguments", '{"a": 1}')]

TEXT_AND_REASONING = {
    "plain text": ("Hello\n\nworld.", [("text", "Hello\n\nworld.")]),
    "nothing": ("", []),
    "reasoning, then text": (
        "<think>\nhm\n\nwell\n</think>\n\nHi.",
        [("reasoning", "hm\n\nwell"), ("text", "Hi.")],
    ),
    "empty reasoning": ("<think>\n\n</think>\n\nHi.", [("text", "Hi.")]),
    "reasoning without line breaks": ("<think>hm</think>Hi.", [("reasoning", "hm"), ("text", "Hi.")]),
    "whitespace before thinking": (" \n<think>hm</think>Hi.", [("reasoning", "hm"), ("text", "Hi.")]),
    "reasoning that is cut off": ("<think>\nhm\nwell", [("reasoning", "hm\nwell")]),
    "reasoning that ends inside its close marker": ("<think>hm</thi", [("reasoning", "hm</thi")]),
    "text that ends inside a marker": ("a <tool_ca", [("text", "a <tool_ca")]),
    "less-than signs": ("1 < 2 <b> <<", [("text", "1 < 2 <b> <<")]),
    "the open marker in prose": (
        "Say `<think>` or <think> there.",
        [("text", "Say `<think>` or <think> there.")],
    ),
    "the close marker in prose": ("It ends with </think> then.", [("text", "It ends with </think> then.")]),
    "a close marker twice": (
        "<think>hm</think>\n</think>\n\nHi.",
        [("reasoning", "hm"), ("text", "Hi.")],
    ),
    "a second block of thinking": (
        "<think>one</think>\n\nHi.\n<think>\ntwo\n</think>\n\nBye.",
        [("reasoning", "one"), ("text", "Hi."), ("reasoning", "two"), ("text", "Bye.")],
    ),
    "two blocks of thinking in a row": (
        "<think>one</think>\n\n<think>two</think>",
        [("reasoning", "one"), ("reasoning", "two")],
    ),
    "indentation after thinking": (
        "<think>hm</think>\n\n    x = 1\n",
        [("reasoning", "hm"), ("text", "    x = 1\n")],
    ),
    "only whitespace after thinking": ("<think>hm</think>\n\n", [("reasoning", "hm")]),
    "whitespace at the end": ("Hi. \n", [("text", "Hi. \n")]),
}  # fmt: skip

CALLS = {
    "one call": (F, CALL_F),
    "no line breaks": (F.replace("\n", ""), CALL_F),
    "much whitespace": (
        '<tool_call> \n\n {\n"name" :\t"f" , "arguments":  {"a": 1} \n}\n\n </tool_call>',
        CALL_F,
    ),
    "two calls": (F + "\n" + G, CALL_F + CALL_G),
    "two calls without a break": (F + G, CALL_F + CALL_G),
    "the same call twice": (F + "\n" + F, CALL_F + CALL_F),
    "text around": (f"Let me see.\n{F}\nDone.", [("text", "Let me see."), *CALL_F, ("text", "Done.")]),
    "text between": (f"{F}\nand\n{G}", [*CALL_F, ("text", "and"), *CALL_G]),
    "thinking before": (f"<think>\nhm\n</think>\n\n{F}", [("reasoning", "hm"), *CALL_F]),
    "a list of calls": (
        '<tool_call>[{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {"a": 1}}]</tool_call>',
        CALL_F + CALL_G,
    ),
    "two objects in one tag": (
        '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n{"name": "g", "arguments": {"a": 1}}\n</tool_call>',
        CALL_F + CALL_G,
    ),
    "no arguments": ('<tool_call>{"name": "f"}</tool_call>', [("call", "f"), ("arguments", "{}")]),
    "empty arguments": ('<tool_call>{"name": "f", "arguments": {}}</tool_call>', [("call", "f"), ("arguments", "{}")]),
    "null arguments": ('<tool_call>{"name": "f", "arguments": null}</tool_call>', [("call", "f"), ("arguments", "{}")]),
    "an empty string as arguments": (
        '<tool_call>{"name": "f", "arguments": ""}</tool_call>',
        [("call", "f"), ("arguments", "{}")],
    ),
    "parameters for arguments": ('<tool_call>{"name": "f", "parameters": {"a": 1}}</tool_call>', CALL_F),
    "the name last": ('<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', CALL_F),
    "a key called name inside arguments": (
        '<tool_call>{"arguments": {"name": "x", "b": {"name": []}}, "name": "f"}</tool_call>',
        [("call", "f"), ("arguments", '{"name": "x", "b": {"name": []}}')],
    ),
    "further keys": (
        '<tool_call>{"id": "1", "type": {"x": ["}"]}, "name": "f", "n": -1.5e3, "arguments": {"a": 1}, "z": null}</tool_call>',
        CALL_F,
    ),
    "the function one level deeper": (
        '<tool_call>{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}</tool_call>',
        CALL_F,
    ),
    "the function's name as a string": (
        '<tool_call>{"function": "f", "arguments": {"a": 1}}</tool_call>',
        CALL_F,
    ),
    "arguments as a JSON string": (
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": \\"\\u00e9\\\\n\\ud83d\\ude00\\"}"}</tool_call>',
        [("call", "f"), ("arguments", '{"a": "é\\n😀"}')],
    ),
    "a string that is no object": (
        '<tool_call>{"name": "f", "arguments": "say \\"hi\\""}</tool_call>',
        [("text", '{"name": "f", "arguments": "say \\"hi\\""}')],
    ),
    "a list as arguments": (
        '<tool_call>{"name": "f", "arguments": [1, {"b": "]"}]}</tool_call>',
        [("text", '{"name": "f", "arguments": [1, {"b": "]"}]}')],
    ),
    "a number as arguments": ('<tool_call>{"name": "f", "arguments": 12}</tool_call>', [("text", '{"name": "f", "arguments": 12}')]),
    "an empty list as arguments": ('<tool_call>{"name": "f", "arguments": [ ]}</tool_call>', [("call", "f"), ("arguments", "{}")]),
    "markers inside strings": (
        '<tool_call>{"name": "f", "arguments": {"a": "</tool_call><tool_call><think>"}}</tool_call>ok',
        [("call", "f"), ("arguments", '{"a": "</tool_call><tool_call><think>"}'), ("text", "ok")],
    ),
    "brackets and escapes inside strings": (
        '<tool_call>{"name": "f", "arguments": {"a": "}\\"]\\\\", "b": "{\\u005c"}}</tool_call>',
        [("call", "f"), ("arguments", '{"a": "}\\"]\\\\", "b": "{\\u005c"}')],
    ),
    "escapes in the name": ('<tool_call>{"name": "\\u0066", "arguments": {"a": 1}}</tool_call>', CALL_F),
}  # fmt: skip

BROKEN = {
    "no end marker": ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}', CALL_F),
    "half an end marker": ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool', CALL_F),
    "no end marker between": (
        '<tool_call>{"name": "f", "arguments": {"a": 1}}\n<tool_call>{"name": "g", "arguments": {"a": 1}}</tool_call>',
        CALL_F + CALL_G,
    ),
    "text where the end marker should be": (
        '<tool_call>{"name": "f", "arguments": {"a": 1}}\nok</tool_call> bye',
        [*CALL_F, ("text", "ok"), ("text", "bye")],
    ),
    "the last bracket missing": ('<tool_call>{"name": "f", "arguments": {"a": 1}', CALL_F),
    "the last bracket missing before the end marker": (
        '<tool_call>{"name": "f", "arguments": {"a": 1}</tool_call>\nok',
        [*CALL_F, ("text", "ok")],
    ),
    "brackets missing inside arguments": (
        '<tool_call>{"name": "f", "arguments": {"a": [1, {"b": 2\n</tool_call>ok',
        [("call", "f"), ("arguments", '{"a": [1, {"b": 2\n}]}'), ("text", "ok")],
    ),
    "one bracket too many": ('<tool_call>{"name": "f", "arguments": {"a": 1}}}</tool_call>ok', [*CALL_F, ("text", "ok")]),
    "a raw line break in a string": (
        '<tool_call>{"name": "f", "arguments": {"a": "x\ny\t"}}</tool_call>',
        [("call", "f"), ("arguments", '{"a": "x\\ny\\t"}')],
    ),
    "an escape that JSON does not know": (
        '<tool_call>{"name": "f", "arguments": {"a": "it\\\'s \\d+"}}</tool_call>',
        [("call", "f"), ("arguments", '{"a": "it\'s \\\\d+"}')],
    ),
    "the start marker twice": (f"<tool_call>\n{F}", CALL_F),
    "the end marker twice": (f"{F}\n</tool_call>\nok", [*CALL_F, ("text", "ok")]),
    "no JSON": ("<tool_call>f(1)</tool_call>", [("text", "f(1)")]),
    "nothing in the tag": ("<tool_call></tool_call>", []),
    "no name": ('<tool_call>{"arguments": {}}</tool_call>', [("text", '{"arguments": {}}')]),
    "a name that is no string": ('<tool_call>{"name": 1}</tool_call>', [("text", '{"name": 1}')]),
    "the marker in prose, then a call": (f"Use <tool_call> so:\n{F}", [("text", "Use <tool_call> so:"), *CALL_F]),
    "the second of two without a name": (
        '<tool_call>{"name": "f", "arguments": {"a": 1}}\n{"x": 1}\n</tool_call>',
        [*CALL_F, ("text", '{"x": 1}')],
    ),
    "cut off before the name": ('<tool_call>\n{"na', [("text", '{"na')]),
    "cut off after the name": ('<tool_call>\n{"name": "f", "arg', [("call", "f"), ("cut arguments", "")]),
    "cut off inside arguments": (
        '<tool_call>\n{"name": "f", "arguments": {"a": "b',
        [("call", "f"), ("cut arguments", '{"a": "b')],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TEXT_AND_REASONING)
def test_text_and_reasoning(reading: Any, case: str) -> None:
    raw, expected = TEXT_AND_REASONING[case]
    assert reading.read(raw) == expected


@pytest.mark.parametrize("case", CALLS)
def test_calls(reading: Any, case: str) -> None:
    raw, expected = CALLS[case]
    assert reading.read(raw) == expected


@pytest.mark.parametrize("case", BROKEN)
def test_broken_calls_are_read_as_far_as_they_go(reading: Any, case: str) -> None:
    raw, expected = BROKEN[case]
    assert reading.read(raw) == expected
    parser = reading.parser_of()
    reading.deltas_of(parser, [raw])
    assert parser.recoveries > 0


@pytest.mark.parametrize("tail", ["text", "unknown"])
def test_text_does_not_begin_with_reasoning_unless_the_model_opens_it(
    reading: Any, tail: Any
) -> None:
    assert reading.read("Hi.", tail=tail) == [("text", "Hi.")]
    assert reading.read("Hi.", "deepseek_r1", tail="text") == [("text", "Hi.")]


def test_the_prompt_may_have_opened_the_reasoning(reading: Any) -> None:
    expected = [("reasoning", "hm"), ("text", "Hi.")]
    for raw in ("hm\n</think>\n\nHi.", "\nhm</think>Hi.", "<think>\nhm\n</think>\n\nHi."):
        assert reading.read(raw, tail="reasoning") == expected
        assert reading.read(raw, "deepseek_r1") == expected
    assert reading.read("</think>Hi.", tail="reasoning") == [("text", "Hi.")]


def test_a_call_of_an_offered_tool_ends_unclosed_reasoning(reading: Any) -> None:
    raw = f"I need f.\n{F}\n</think>\n\nok"
    expected = [("reasoning", "I need f."), *CALL_F, ("text", "ok")]
    assert reading.read(raw, tail="reasoning", tools=["f"]) == expected
    assert reading.read("I need f. " + F, tail="reasoning", tools=["f"]) == expected[:3]


def test_what_only_looks_like_a_call_stays_reasoning(reading: Any) -> None:
    for thought in (f"maybe `{F}` would do", "say <tool_call> then"):
        assert reading.read(f"{thought}</think>ok", tail="reasoning", tools=["f"]) == [
            ("reasoning", thought),
            ("text", "ok"),
        ]
    unknown = f"maybe\n{G}"
    assert reading.read(unknown, tail="reasoning", tools=["f"]) == [("reasoning", unknown)]
    assert reading.read(unknown, tail="reasoning", parse_tools=False) == [("reasoning", unknown)]


def test_a_tool_that_was_not_offered_may_still_be_called(reading: Any) -> None:
    assert reading.read(G, tools=["f"]) == CALL_G


def test_call_syntax_is_text_where_no_call_may_come(reading: Any) -> None:
    assert reading.read(f"a\n{F}\nb", parse_tools=False) == [("text", f"a\n{F}\nb")]
    assert reading.read(f"a\n{F}", "plain") == [("text", f"a\n{F}")]


def test_a_call_starts_when_its_arguments_do_and_streams_them(reading: Any) -> None:
    parser = reading.parser_of()
    pieces = ["<tool_call>\n{", '"name": "f"', ', "arguments": {"a', '": "x', " y", '"', "}", "}"]
    said = [[type(delta).__name__ for delta in reading.fed(parser, piece)] for piece in pieces]
    argument = ["CallArgumentsDelta"]
    # A quotation mark waits for what follows: it may be one of the string's own.
    started = ["CallStarted", *argument]  # what is not an object would be text
    assert said == [[], [], started, argument, argument, [], argument, ["CallEnded"]]


def test_nothing_is_held_but_what_may_become_a_marker(reading: Any) -> None:
    parser = reading.parser_of(tail="text")
    given = "".join(delta.text for delta in reading.fed(parser, "a <b <tool"))
    assert given == "a <b"  # whitespace goes with the marker, if it becomes one
    assert [delta.text for delta in reading.fed(parser, "s")] == [" <tools"]
    assert [delta.text for delta in reading.fed(parser, " x <think")] == [" x <think"]


def test_held_text_is_bounded(reading: Any) -> None:
    parser = reading.parser_of()
    raw = ("<think>" + "x <tool_call> </thin " * 50 + "</think>" + "a\n<thi <tool_" * 50 + F) * 3
    for character in raw:
        reading.fed(parser, character)
        assert len(parser._held) < len("</tool_call>")
