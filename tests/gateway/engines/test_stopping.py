"""Stop strings in streamed text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engines.stopping import StopAutomaton, StopStrings
from tests.lines import lines_run

LETTERS = "ab<é\0"
STOPS = st.lists(st.text(alphabet=LETTERS, min_size=1, max_size=6), max_size=6)


def held_back(text: str, stops: list[str]) -> int:
    """How much of the end of `text`, which has none of `stops`, may become one."""
    begun = (
        length for stop in stops for length in range(len(stop)) if text.endswith(stop[:length])
    )
    return max(begun, default=0)


@given(text=st.text(alphabet=LETTERS, max_size=24), stops=STOPS, data=st.data())
def test_how_the_text_is_cut_does_not_matter_to_stop_strings(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    finder = StopStrings(stops)
    out, found, after, at = "", None, "", 0
    while at < len(text) and found is None:
        step = data.draw(st.integers(1, 6))
        piece, found, after = finder.feed(text[at : at + step])
        out += piece
        at += step
        if found is None:
            assert out + finder.held == text[:at]
            assert len(finder.held) == held_back(text[:at], stops), "not more than is needed"
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        assert (out + finder.rest(), found) == (text, None)
        assert finder.held == ""
        return
    end, _, first = min(ends)
    assert (out, found) == (text[: end - len(first)], first)
    assert after == text[end:at]


@given(
    pieces=st.lists(st.tuples(st.text(alphabet="ab", max_size=4), st.booleans()), max_size=8),
    stops=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=4),
)
def test_what_is_not_searched_is_released_and_begins_no_stop_string(
    pieces: list[tuple[str, bool]], stops: list[str]
) -> None:
    finder, fresh = StopStrings(stops), StopStrings(stops)
    for text, searching in pieces:
        held = finder.held
        released, found, after = finder.feed(text, searching=searching)
        if not searching:
            assert (released, found, after, finder.held) == (held + text, None, "", "")
            fresh = StopStrings(stops)
            continue
        assert (released, found, after) == fresh.feed(text)
        if found is not None:
            return


@given(stops=STOPS, texts=st.lists(st.text(alphabet=LETTERS, max_size=12), max_size=4))
def test_searches_share_an_automaton(stops: list[str], texts: list[str]) -> None:
    automaton = StopAutomaton(stops)
    shared = [StopStrings(automaton) for _ in texts]
    alone = [StopStrings(stops) for _ in texts]
    for one, other, text in zip(shared, alone, texts, strict=True):
        assert one.feed(text) == other.feed(text)
    for one, other in zip(shared, alone, strict=True):
        assert one.rest() == other.rest()


def test_none_are_found_if_there_are_none() -> None:
    for stops in ((), ("",), StopAutomaton(())):
        finder = StopStrings(stops)
        assert finder.feed("text") == ("text", None, "")
        assert (finder.held, finder.rest()) == ("", "")


HOSTILE = {
    "one letter for long": (["a" * 4095 + "c", "b" * 4096, "b" * 4095 + "d", "ab" * 2048], "a" * 6000),
    "many that begin alike": (["a" * n + "c" for n in range(1, 256)], "a" * 6000),
    "many that end alike": (["c" + "a" * n + "d" for n in range(1, 256)], ("c" + "a" * 255) * 24),
    "falling back from deep": (["a" * 4095 + "c"], ("a" * 1000 + "b") * 6),
    "Fibonacci's": ([], ""),
    "many that are short": ([chr(0x100 + n) * 3 for n in range(256)], "".join(chr(0x100 + n % 256) for n in range(6000))),
}  # fmt: skip
one, two = "b", "a"
while len(two) < 4096:
    one, two = two, two + one
HOSTILE["Fibonacci's"] = ([two[:4095] + "c", one + "c"], two + two[:2000])


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_the_work_depends_on_the_text_alone(name: str, size: int) -> None:
    stops, text = HOSTILE[name]
    finder = StopStrings(stops)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    with lines_run("gateway/engines/stopping.py") as lines:
        for piece in pieces:
            finder.feed(piece)
        finder.rest()
    assert lines.count <= 16 * len(text) + 20 * len(pieces)


def test_building_takes_a_time_in_proportion_to_the_stop_strings() -> None:
    for stops, _ in HOSTILE.values():
        with lines_run("gateway/engines/stopping.py") as lines:
            StopAutomaton(stops)
        assert lines.count <= 60 * sum(map(len, stops))


def test_states_that_stop_strings_have_in_common_are_there_once() -> None:
    stops = ["".join(each) for each in itertools.product("ab", repeat=8)]
    assert len(StopAutomaton(stops).follow) == 2**9 - 1
