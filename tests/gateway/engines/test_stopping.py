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
    whole, hit, _ = StopStrings(stops).feed(text)
    finder = StopStrings(stops)
    out, found, at = "", None, 0
    while at < len(text) and found is None:
        step = data.draw(st.integers(1, 4))
        piece, found, _ = finder.feed(text[at : at + step])
        out += piece
        at += step
    places = [text.find(stop) for stop in stops if stop in text]
    if not places:
        assert (out + finder.rest(), found) == (text, None)
        return
    # A longer piece may show an earlier beginning of a stop that ends later; the text never goes past the first end.
    ends = min(text.find(stop) + len(stop) for stop in stops if stop in text)
    assert found is not None
    assert hit is not None
    assert len(out) <= ends
    assert text.startswith(out + found)
    assert text.startswith(whole + hit)
