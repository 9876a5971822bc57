from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from gateway.items.string_field import StringFieldReader

TEXT = st.text(alphabet=st.one_of(st.sampled_from('"\\/{}[]:, \n\t\x00é😀'), st.characters()))


def read(pieces: list[str], field: str = "input") -> str:
    reader = StringFieldReader(field)
    return "".join([reader.feed(piece) for piece in pieces]) + reader.finish()


def cut(text: str, at: list[int]) -> list[str]:
    points = sorted({min(i, len(text)) for i in at} | {0, len(text)})
    return [text[a:b] for a, b in itertools.pairwise(points)]


@given(TEXT, st.lists(st.integers(0, 60)), st.booleans())
def test_the_text_comes_out_whole_however_it_is_cut(
    text: str, at: list[int], escaped: bool
) -> None:
    text = text.encode("utf-8", "replace").decode()
    written = json.dumps({"input": text}, ensure_ascii=escaped)
    assert read(cut(written, at)) == text


@given(TEXT, st.lists(st.integers(0, 60)))
def test_what_is_not_an_object_passes_through(text: str, at: list[int]) -> None:
    raw = "x" + text
    assert read(cut(raw, at)) == raw


@given(st.text(alphabet='{}"input:\\u d8', max_size=40), st.lists(st.integers(0, 40)))
def test_how_garbage_is_cut_does_not_matter(text: str, at: list[int]) -> None:
    assert read(cut(text, at)) == read([text])


def test_another_key_before_the_field_is_read_at_the_end() -> None:
    assert read(['{"reason": "x", "inp', 'ut": "hello"}']) == "hello"


def test_a_broken_object_is_shown_as_it_stands() -> None:
    assert read(['{"in', "valid"]) == '{"invalid'


def test_surrogate_pairs_make_one_character_and_lone_ones_none() -> None:
    assert read(['{"input": "\\ud83d', '\\ude00 \\ud83d x"}']) == "😀 � x"


def test_what_a_limit_cut_off_before_the_text_is_no_text() -> None:
    written = '{ "input": "a'
    for end in range(len(written)):
        reader = StringFieldReader("input")
        said = reader.feed(written[:end])
        assert said + reader.finish(cut=True) == ""
    whole = StringFieldReader("input")
    assert whole.feed("{") + whole.finish() == "{"
