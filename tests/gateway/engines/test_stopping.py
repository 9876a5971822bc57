"""Stop strings in streamed text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.engines.stopping import StopStrings


@given(
    text=st.text(alphabet="ab<é", max_size=12),
    stops=st.lists(st.text(alphabet="ab<é", min_size=1, max_size=4), max_size=3),
    data=st.data(),
)
def test_how_the_text_is_cut_does_not_matter_to_stop_strings(
    text: str, stops: list[str], data: st.DataObject
) -> None:
    finder = StopStrings(stops)
    out, found, after, at = "", None, "", 0
    while at < len(text) and found is None:
        step = data.draw(st.integers(1, 4))
        piece, found, after = finder.feed(text[at : at + step])
        out += piece
        at += step
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not ends:
        assert (out + finder.rest(), found) == (text, None)
        return
    end, _, first = min(ends)
    assert (out, found) == (text[: end - len(first)], first)
    assert after == text[end:at]
