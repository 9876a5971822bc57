"""What is read out of Harmony, well-formed and not."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    MessageStarted,
    TextDelta,
)
from gateway.plugins.protocols import EngineOutput, FinishReason, ParserContext, ToolDefinition
from gateway.sdk.constraints import custom_schema
from gateway_harmony import HarmonyFormat
from gateway_harmony.markers import MARKERS
from gateway_testing.reading import Block, blocks, check_grammar

NEXT = "<|start|>assistant"
THINK = "<|channel|>analysis<|message|>think<|end|>"
FINAL = "<|channel|>final<|message|>done<|return|>"
CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'

reasoning, said, called = (
    Block("reasoning", "think"),
    Block("text", "done"),
    Block("call", '{"a":1}', "f"),
)


def parse(
    parts: Sequence[str], finish: FinishReason = "stop", **context: Any
) -> tuple[list[Delta], int]:
    parser = HarmonyFormat().parser(ParserContext(**context))
    deltas: list[Delta] = []
    for part in parts:
        deltas += parser.feed(EngineOutput(text=part))
    deltas += parser.finish(finish)
    check_grammar(deltas, "".join(parts))
    return deltas, parser.recoveries


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (THINK + NEXT + FINAL, [reasoning, said]),
        (NEXT + FINAL, [said]),
        ("assistant" + FINAL, [said]),
        (THINK + NEXT + CALL, [reasoning, called]),
        (THINK + NEXT + THINK + NEXT + FINAL, [reasoning, reasoning, said]),
        (CALL + NEXT + CALL, [called, called]),
        (' to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"a":1}', [called]),
        ('<|channel|>commentary to=functions.f json<|message|>{"a":1}<|call|>', [called]),
        ('<|channel|>commentary to=functions.f<|message|>{"a":1}<|call|>', [called]),
        (
            '<|channel|>analysis to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>',
            [called],
        ),
        (
            "<|channel|>analysis to=python code<|message|>print(1)<|call|>",
            [Block("call", "print(1)", "python")],
        ),
        (
            '<|channel|>analysis to=browser.search code<|message|>{"query":"x"}<|call|>',
            [Block("call", '{"query":"x"}', "browser.search")],
        ),
    ],
)
def test_well_formed_output_is_read_and_nothing_guessed(output: str, expected: list[Block]) -> None:
    deltas, recoveries = parse([output])
    assert blocks(deltas) == expected
    assert recoveries == 0


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        # no channel at all
        ("done", [said]),
        ("<|message|>done", [said]),
        ("to be done", [Block("text", "to be done")]),
        ("<html>done", [Block("text", "<html>done")]),
        # a missing start marker
        (THINK + FINAL, [reasoning, said]),
        (THINK + "assistant" + FINAL, [reasoning, said]),
        # a missing end marker
        ("<|channel|>analysis<|message|>think" + NEXT + FINAL, [reasoning, said]),
        ("<|channel|>analysis<|message|>think" + FINAL, [reasoning, said]),
        (CALL + CALL.removeprefix("<|channel|>"), [called, called]),
        (CALL + "assistant" + CALL.removeprefix("<|channel|>"), [called, called]),
        # a missing channel marker
        (THINK + NEXT + "final<|message|>done<|return|>", [reasoning, said]),
        # a missing message marker
        ("<|channel|>analysis think<|end|>" + NEXT + FINAL, [reasoning, said]),
        ("<|channel|>finaldone<|return|>", [said]),
        ("<|channel|>final done", [said]),
        ('<|channel|>commentary to=functions.f <|constrain|>json{"a":1}<|call|>', [called]),
        ('<|channel|>commentary to=functions.f{"a":1}<|call|>', [called]),
        ("<|channel|>commentary to=functions.f<|call|>", [Block("call", "{}", "f")]),
        # markers that are written twice, or elsewhere
        (THINK + "<|start|>" + NEXT + FINAL, [reasoning, said]),
        ("<|channel|>final<|message|><|message|>done<|return|>", [said]),
        (
            '<|channel|>commentary to=functions.f<|message|><|constrain|>json{"a":1}<|call|>',
            [called],
        ),
        # junk in a header
        ("<|channel|>analysis !? junk<|message|>think<|end|>" + NEXT + FINAL, [reasoning, said]),
        (NEXT + " blah <|channel|>final<|message|>done", [said]),
        ("<|channel|>commentary<|channel|>final<|message|>done", [said]),
        # filler
        (CALL + "commentary" + NEXT + FINAL, [called, said]),
        (CALL + " see you" + NEXT + FINAL, [called, Block("text", "see you"), said]),
        (CALL + " see you", [called, Block("text", "see you")]),
        (FINAL + "<|endoftext|>", [said]),
        # unknown channels and recipients
        ("<|channel|>answer<|message|>done<|return|>", [said]),
        ("<|channel|>analyze<|message|>think", [reasoning]),
        ('<|channel|>commentary to=f <|constrain|>json<|message|>{"a":1}<|call|>', [called]),
        ('<|channel|>commentary to="functions.f" json<|message|>{"a":1}<|call|>', [called]),
    ],
)
def test_malformed_output_is_read_as_it_was_meant(output: str, expected: list[Block]) -> None:
    deltas, recoveries = parse([output])
    assert blocks(deltas) == expected
    assert parse(list(output))[1] == recoveries
    if "to=f " not in output:
        assert recoveries > 0


def test_a_call_without_arguments_has_an_empty_object() -> None:
    header = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    for output in (header + "<|call|>", header + " <|call|>", header):
        deltas, recoveries = parse([output])
        assert [(block.name, block.text.strip()) for block in blocks(deltas)] == [("f", "{}")]
        assert recoveries == 0
    deltas, _ = parse(["<|channel|>analysis to=python code<|message|><|call|>"])
    assert blocks(deltas) == [Block("call", "", "python")]


def test_a_header_without_end_becomes_text_after_a_while() -> None:
    words = "word " * 200
    for before, expected in (("<|channel|>final ", words), (NEXT + " ", words)):
        deltas, recoveries = parse([before, words])
        assert [block.text for block in blocks(deltas)] == [expected]
        assert recoveries == 1


@pytest.mark.parametrize("end", ["<|a", "x", "assistant", "<|channel|>final<|message|>x"])
@pytest.mark.parametrize("spaces", [255, 257, 265, 272, 420])
def test_what_follows_much_white_space_is_read_the_same_however_it_is_cut(
    spaces: int, end: str
) -> None:
    output = " " * spaces + end
    at_once = parse([output])
    found = blocks(at_once[0]), at_once[1]
    for parts in (list(output), [output[:spaces], end]):
        deltas, recoveries = parse(parts)
        assert (blocks(deltas), recoveries) == found


def test_messages_carry_their_phase() -> None:
    preamble = "<|channel|>commentary<|message|>first<|end|>"
    output = preamble + NEXT + FINAL
    deltas, _ = parse([output])
    assert deltas == [
        MessageStarted("commentary"),
        TextDelta("first", output.index("first")),
        BlockEnded(),
        MessageStarted("final_answer"),
        TextDelta("done", output.index("done")),
        BlockEnded(),
    ]


@pytest.mark.parametrize(
    ("output", "finish", "complete"),
    [
        (CALL, "stop", True),
        (CALL.removesuffix("<|call|>"), "stop", True),
        (CALL.removesuffix("<|call|>"), "length", True),
        (CALL.removesuffix("}<|call|>"), "stop", True),  # the model is told that they are broken
        (CALL.removesuffix("}<|call|>"), "length", False),
        ("<|channel|>analysis to=python code<|message|>1 +", "length", False),
        ("<|channel|>analysis to=python code<|message|>1 + 1", "stop", True),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>", "length", False),
        ("<|channel|>commentary to=functions.f <|constrain|>json<|message|>", "stop", True),
    ],
)
def test_a_call_is_complete_by_its_marker_or_by_its_json(
    output: str, finish: FinishReason, complete: bool
) -> None:
    deltas, _ = parse([output], finish)
    assert (deltas[-1] == CallEnded()) is complete
    assert isinstance(deltas[0], CallStarted)


@pytest.mark.parametrize("end", range(len(NEXT + CALL) - len('{"a":1}<|call|>')))
def test_a_header_that_was_cut_off_says_nothing(end: int) -> None:
    deltas, recoveries = parse([THINK + (NEXT + CALL)[:end]], "length")
    assert blocks(deltas) == [reasoning]
    assert recoveries == 0


def test_calls_are_named_as_the_tools_are() -> None:
    tools = {name: ToolDefinition(name=name) for name in ("get", "crm__find", "python")}
    for recipient, name in (
        ("functions.get", "get"),
        ("get", "get"),
        ("functions.crm.find", "crm__find"),
        ("functions.tools.get", "get"),
        ("python", "python"),
        ("functions.other", "other"),
    ):
        output = f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>{{}}<|call|>"
        deltas, _ = parse([output], tools=tools)
        assert deltas[0] == CallStarted(name)


def test_calls_are_words_where_none_may_be_made() -> None:
    deltas, recoveries = parse([THINK + NEXT + CALL], parse_tools=False)
    assert blocks(deltas) == [reasoning, Block("text", '{"a":1}')]
    assert recoveries == 1
    thought = CALL.replace("commentary", "analysis").replace("functions.f", "myself")
    deltas, _ = parse([thought], tools={"other": ToolDefinition(name="other")})
    assert blocks(deltas) == [Block("reasoning", '{"a":1}')]


@pytest.mark.parametrize("recipient", ["functions.f", "browser.search", "python"])
def test_a_call_of_an_unknown_tool_is_a_call_on_any_channel(recipient: str) -> None:
    for channel in ("analysis", "commentary"):
        output = f'<|channel|>{channel} to={recipient} <|constrain|>json<|message|>{{"a":1}}'
        deltas, _ = parse([output], tools={"other": ToolDefinition(name="other")})
        name = recipient.removeprefix("functions.")
        assert blocks(deltas) == [Block("call", '{"a":1}', name)]


WORDS = st.sampled_from(
    [
        *MARKERS,
        "analysis",
        "commentary",
        "final",
        " to=functions.f",
        "assistant",
        "json",
        '{"a":1}',
        "hi",
        " ",
        "\n",
        "<",
        "<|",
        "ana",
        "é",
        "x" * 90,
        NEXT,
        THINK,
        CALL,
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(WORDS, max_size=14).map("".join),
    st.lists(st.integers(0, 300), max_size=8),
    st.sampled_from(["stop", "length"]),
    st.sampled_from(["unknown", "text", "reasoning"]),
)
def test_any_cutting_of_anything_reads_the_same(
    output: str, places: list[int], finish: FinishReason, tail: Any
) -> None:
    edges = sorted({0, len(output), *(place for place in places if place < len(output))})
    parts = [output[a:b] for a, b in itertools.pairwise(edges)]
    for tools in ({}, {"g": ToolDefinition(name="g")}):
        whole, guesses = parse([output], finish, tail=tail, tools=tools)
        for cut in (parts, list(output)):
            deltas, recoveries = parse(cut, finish, tail=tail, tools=tools)
            assert blocks(deltas) == blocks(whole)
            assert [d for d in deltas if isinstance(d, MessageStarted)] == [
                d for d in whole if isinstance(d, MessageStarted)
            ]
            assert recoveries == guesses


MENDED: list[tuple[str, Any]] = [
    ('{"a": "ls"', {"a": "ls"}),
    ('{"a": "ls"}}', {"a": "ls"}),
    ('{"a": "b\n\tc"}', {"a": "b\n\tc"}),
    ("{'a': 'b', 'c': True, 'd': None,}", {"a": "b", "c": True, "d": None}),
    ('{a: "b"}', {"a": "b"}),
    ('{"a": "\\d"}', {"a": "\\d"}),
    ('{"a": "say "hi" now"}', {"a": 'say "hi" now'}),
    ('{"a": "b" "c": 007}', {"a": "b", "c": 7}),
    ('```json\n{"a": "b"}\n```', {"a": "b"}),
    ('"{\\"a\\": \\"b\\"}"', {"a": "b"}),
    ('{"a": "ls', {"a": "ls"}),
    ("null", {}),
    ("", {}),
]


@pytest.mark.parametrize(("written", "arguments"), MENDED)
def test_broken_arguments_are_mended_as_in_all_other_formats(written: str, arguments: Any) -> None:
    output = f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{written}<|call|>"
    for parts in ([output], list(output)):
        (block,) = blocks(parse(parts)[0])
        assert (block.name, block.whole, json.loads(block.text)) == ("f", True, arguments)


def test_text_around_an_object_is_text_and_what_has_none_is_passed_on_as_it_is() -> None:
    header = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    for parts in (
        [header + 'Look: {"a": 1} ok?<|call|>'],
        list(header + 'Look: {"a": 1} ok?<|call|>'),
    ):
        assert blocks(parse(parts)[0]) == [
            Block("call", '{"a": 1}', "f"),
            Block("text", "Look:\nok?"),
        ]
    for raw in ("only prose", "[1, 2]", "5"):
        assert blocks(parse(list(f"{header}{raw}<|call|>"))[0]) == [Block("call", raw, "f")]


def test_an_answer_with_a_recipient_is_a_call_only_if_it_has_an_object() -> None:
    for header in (
        "<|channel|>final to=functions.f<|message|>",
        " to=functions.f<|channel|>final<|message|>",
    ):
        for parts in (
            [header + " Here you are.<|return|>"],
            list(header + " Here you are.<|return|>"),
        ):
            assert blocks(parse(parts)[0]) == [Block("text", " Here you are.")]
        assert blocks(parse(list(header + ' {"a":1}<|return|>'))[0]) == [
            Block("call", '{"a":1}', "f")
        ]


def test_the_input_of_a_custom_tool_is_streamed() -> None:
    tools = {"c": ToolDefinition(name="c", parameters=custom_schema(), kind="custom")}
    parser = HarmonyFormat().parser(ParserContext(tools=tools))
    header = "<|channel|>commentary to=functions.c <|constrain|>json<|message|>"
    shown = ""
    for part in (header, *' { "input" : "', *"word " * 50):
        deltas = parser.feed(EngineOutput(text=part))
        shown += "".join(each.text for each in deltas if isinstance(each, CallArgumentsDelta))
    assert shown.endswith("word " * 50)


def test_a_call_that_ends_within_a_string_without_its_marker_is_cut_off() -> None:
    header = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>"
    assert blocks(parse([header + '{"a": "ls'])[0]) == [
        Block("call", '{"a": "ls', "f", whole=False)
    ]
    assert blocks(parse([header + '{"a": "ls"'])[0]) == [Block("call", '{"a": "ls"}', "f")]
