"""Stop strings end the answer's text, and neither what the model thinks nor what it calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.deltas import BlockEnded, Delta, ReasoningDelta, TextDelta
from gateway.generation.text_stops import TextStops
from gateway_testing.server import RunningGateway, run_gateway

STOPS = ("STOP", "ab", "aab", "b\n")
TEXTS = st.lists(st.sampled_from(["S", "ST", "OP", "STOP", "a", "b", "ab", "\n", "é", " "])).map(
    "".join
)


def first_stop(text: str) -> tuple[int, str] | None:
    hits = [(text.index(stop), -len(stop), stop) for stop in STOPS if stop in text]
    return (min(hits)[0], min(hits)[2]) if hits else None


def read(parts: Sequence[str], *, gap: int = 0, included: bool = False) -> tuple[list[Delta], Any]:
    stops = TextStops(STOPS, included=included)
    out: list[Delta] = []
    start = 0
    for part in parts:
        out += stops.read([TextDelta(part, start)])
        start += len(part) + gap
        if stops.matched is not None:
            return out, stops.matched
    return [*out, *stops.rest()], None


@given(TEXTS, st.lists(st.integers(1, 4)), st.booleans())
def test_how_the_text_is_cut_does_not_matter(text: str, sizes: list[int], included: bool) -> None:
    parts, rest = [], text
    for size in sizes:
        parts.append(rest[:size])
        rest = rest[size:]
    parts = [part for part in (*parts, rest) if part]
    out, matched = read(parts, included=included)
    told = "".join(delta.text for delta in out if isinstance(delta, TextDelta))
    # A stop string may be complete before a longer one that begins earlier is: what was told first counts.
    found = first_stop(text)
    assert (matched is None) == (found is None)
    if matched is None:
        assert told == text
    else:
        assert text.startswith(told)
        body = told.removesuffix(matched) if included else told
        assert text[len(body) :].startswith(matched)
        assert first_stop(body) is None
    for delta in out:
        assert isinstance(delta, TextDelta)
        assert text[delta.start : delta.start + len(delta.text)] == delta.text


@given(st.lists(st.sampled_from(["S", "T", "a", "x", "ST"]), min_size=1))
def test_places_in_the_raw_output_are_kept_over_gaps(parts: list[str]) -> None:
    out, matched = read(parts, gap=3)
    if matched is None:
        raw = "___".join(parts)
        for delta in out:
            assert isinstance(delta, TextDelta)
            assert raw[delta.start : delta.start + len(delta.text)] == delta.text
        assert "".join(d.text for d in out if isinstance(d, TextDelta)) == "".join(parts)


def test_what_is_held_goes_before_what_is_no_text() -> None:
    stops = TextStops(STOPS, included=False)
    thought = ReasoningDelta("STOP")
    out = stops.read([TextDelta("xS"), thought, TextDelta("TOP"), BlockEnded()])
    assert out == [TextDelta("x"), TextDelta("S"), thought, TextDelta("TOP"), BlockEnded()]
    assert stops.matched is None


RULES: list[dict[str, Any]] = [
    {"when": "reason", "pieces": [
        {"reasoning": "I shall STOP after it."}, {"text": "The answer. STOP And more."}]},
    {"when": "call it", "pieces": [{"call": {"name": "f", "arguments": {"a": "STOP it"}}}]},
    {"when": "at the end", "pieces": [{"text": "One ST"}]},
]  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {
        f"cut{size}": {
            "engine": "scripted",
            "scripted": {"rules": [{**rule, "chunk": size} for rule in RULES]},
        }
        for size in (None, 1, 1000)
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("stops")) as running:
        yield running


def chat(gateway: RunningGateway, text: str, model: str = "cut1", **body: Any) -> Any:
    asked = {"model": model, "messages": [{"role": "user", "content": text}], **body}
    answer = httpx.post(f"{gateway.base_url}/chat/completions", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("model", ["cut1", "cut1000"])
def test_thoughts_of_a_stop_string_do_not_end_the_answer(
    gateway: RunningGateway, model: str
) -> None:
    choice = chat(gateway, "reason", model, stop=["STOP"])
    assert choice["message"]["reasoning_content"] == "I shall STOP after it."
    assert choice["message"]["content"] == "The answer. "
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", "STOP")


def test_it_is_left_in_where_that_is_asked_for(gateway: RunningGateway) -> None:
    choice = chat(gateway, "reason", stop="STOP", include_stop_str_in_output=True)
    assert choice["message"]["content"] == "The answer. STOP"


def test_fewest_tokens_come_first(gateway: RunningGateway) -> None:
    choice = chat(gateway, "reason", stop="STOP", min_tokens=10_000)
    assert choice["message"]["content"] == "The answer. STOP And more."


def test_arguments_are_not_cut(gateway: RunningGateway) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    choice = chat(gateway, "call it", stop=["STOP"], tools=[tool])
    [call] = choice["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"a": "STOP it"}
    assert choice["finish_reason"] == "tool_calls"


def test_the_beginning_of_one_is_told_when_the_text_ends(gateway: RunningGateway) -> None:
    assert chat(gateway, "at the end", stop=["STOP"])["message"]["content"] == "One ST"


@pytest.mark.parametrize("model", ["cut1", "cut1000"])
def test_log_probabilities_are_those_of_the_text(gateway: RunningGateway, model: str) -> None:
    choice = chat(gateway, "reason", model, stop=["STOP"], logprobs=True)
    spelt = b"".join(bytes(each["bytes"]) for each in choice["logprobs"]["content"])
    assert spelt.decode() == choice["message"]["content"]


@pytest.mark.parametrize("model", ["cut1", "cut1000"])
@pytest.mark.parametrize("stop", ["wer. ST", "swer", "r", " And"])
def test_a_token_that_is_cut_has_the_bytes_of_the_text(
    gateway: RunningGateway, model: str, stop: str
) -> None:
    choice = chat(gateway, "reason", model, stop=[stop], logprobs=True)
    spelt = b"".join(bytes(each["bytes"]) for each in choice["logprobs"]["content"])
    assert choice["stop_reason"] == stop
    assert spelt.decode() == choice["message"]["content"]


@pytest.mark.parametrize("stop", ["T", "wer. ST", "swer", "r", " And", "x"])
@pytest.mark.parametrize("more", [{}, {"logprobs": True}, {"min_tokens": 14}])
def test_the_tokens_that_count_do_not_depend_on_how_the_output_was_cut(
    gateway: RunningGateway, stop: str, more: dict[str, Any]
) -> None:
    def told(model: str) -> tuple[Any, Any]:
        asked = {
            "model": model,
            "messages": [{"role": "user", "content": "reason"}],
            "stop": [stop],
            "return_token_ids": True,
            **more,
        }
        answer = httpx.post(f"{gateway.base_url}/chat/completions", json=asked, timeout=60).json()
        [choice] = answer["choices"]
        assert len(choice["token_ids"]) == answer["usage"]["completion_tokens"]
        return choice, answer["usage"]

    assert told("cut1000") == told("cutNone")
