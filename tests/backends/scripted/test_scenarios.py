"""Scenario files: what they say, and what is said of a mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.base.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    InvalidRequest,
    RateLimited,
)
from gateway.plugins.protocols import CallPiece, RawPiece, ReasoningPiece, TextPiece
from gateway_scripted import Rule, Scenario, load_scenario, parse_scenario
from gateway_scripted.scenario import ScriptedPiece


def test_the_rule_that_occurs_last_wins() -> None:
    weather, oslo, cold = (Rule(when=when) for when in ("weather", "Oslo", "-3"))
    scenario = Scenario([oslo, weather, cold])
    assert scenario.rule_for("weather in Oslo") is oslo
    assert scenario.rule_for("Oslo, Oslo: the weather") is weather
    assert scenario.rule_for("weather in Oslo: -3 degrees") is cold
    assert scenario.rule_for("nothing of it") is None


def test_the_last_occurrence_counts() -> None:
    first, second = Rule(when="a"), Rule(when="b")
    assert Scenario([first, second]).rule_for("b a b") is second
    assert Scenario([first, second]).rule_for("a b a") is first


def test_of_two_at_one_place_the_longer_wins_and_then_the_earlier() -> None:
    short, long, again = Rule(when="we"), Rule(when="weather"), Rule(when="weather", repeat=2)
    assert Scenario([short, long, again]).rule_for("the weather") is long


def test_a_rule_without_when_is_for_all_else() -> None:
    other, oslo = Rule(), Rule(when="Oslo")
    assert Scenario([other, oslo]).rule_for("Oslo") is oslo
    assert Scenario([other, oslo]).rule_for("Rome") is other


def test_every_kind_of_piece_is_read() -> None:
    pieces = [
        {"text": "t"},
        {"reasoning": "r"},
        {"call": {"name": "f", "arguments": {"a": "ü"}}},
        {"call": {"name": "f", "arguments": '{"broken'}},
        {"call": {"name": "f"}},
        {"custom_call": {"name": "g", "input": 'say "x"'}},
        {"raw": "<|x|>"},
        {"text": ""},
    ]
    (rule,) = parse_scenario(json.dumps([{"when": "w", "pieces": pieces}])).rules
    assert rule.all_pieces() == [
        TextPiece("t"),
        ReasoningPiece("r"),
        CallPiece("f", '{"a": "ü"}'),
        CallPiece("f", '{"broken'),
        CallPiece("f", "{}"),
        CallPiece("g", '{"input": "say \\"x\\""}'),
        RawPiece("<|x|>"),
        TextPiece(""),
    ]


def test_repeating_says_all_pieces_again() -> None:
    reasoning, text = ScriptedPiece(reasoning="r"), ScriptedPiece(text="t ")
    assert Rule(pieces=[text], repeat=3).all_pieces() == [TextPiece("t t t ")]
    assert (
        Rule(pieces=[reasoning, text], repeat=2).all_pieces()
        == [
            ReasoningPiece("r"),
            TextPiece("t "),
        ]
        * 2
    )
    both = Rule(pieces=[text, reasoning, text], repeat=2).all_pieces()
    assert both == [
        TextPiece("t "),
        ReasoningPiece("r"),
        TextPiece("t t "),
        ReasoningPiece("r"),
        TextPiece("t "),
    ]
    assert Rule(repeat=5).all_pieces() == []


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, InvalidRequest),
        (429, RateLimited),
        (503, EngineUnavailable),
        (500, EngineError),
        (418, EngineError),
    ],
)
def test_an_error_is_the_one_of_its_status(status: int, error: type[Exception]) -> None:
    (rule,) = parse_scenario(json.dumps([{"error": {"status": status, "message": "m"}}])).rules
    assert rule.error is not None
    raised = rule.error.exception()
    assert type(raised) is error
    assert raised.message == "m"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('[{"when": 3}]', r"\$\[0\]\.when"),
        ('[{"pieces": [{"text": "a"}, {"txet": "b"}]}]', r"\$\[0\]\.pieces\[1\]"),
        ('[{"pieces": [{"text": "a", "raw": "b"}]}]', r"text and raw.*\$\[0\]\.pieces\[0\]"),
        ('[{"pieces": [{}]}]', r"this one has none"),
        ('[{"finish": "explode"}]', r"\$\[0\]\.finish"),
        ('[{"repeat": 0}]', r"\$\[0\]\.repeat"),
        ('[{"error": {"status": 200, "message": ""}}]', r"\$\[0\]\.error\.status"),
        ('{"when": "x"}', "not a list of rules"),
        ("[{", "not a list of rules"),
        (b"\xff", "not a list of rules"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_place(text: str | bytes, place: str) -> None:
    with pytest.raises(ConfigurationError, match=place):
        parse_scenario(text)


def test_a_file_is_named_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "scenario.json"
    with pytest.raises(ConfigurationError, match=r"scenario\.json cannot be read: No such file"):
        load_scenario(path)
    path.write_text('[{"delay_ms": -1}]')
    with pytest.raises(ConfigurationError, match=r"scenario\.json .*delay_ms"):
        load_scenario(path)
    path.write_text('[{"when": "ü"}]', encoding="utf-8")
    assert load_scenario(path).rules[0].when == "ü"
