"""What a model reads of a tool's output."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.output import cut


def test_results_are_cut_between_characters() -> None:
    assert cut("é" * 10, 20) == "é" * 10
    shortened = cut("é" * 10, 5)
    assert shortened.startswith("éé\n[Cut off: the tool gave 20 bytes")


@given(st.text(st.characters()), st.integers(1, 50))
def test_what_is_cut_can_be_encoded_and_is_no_longer_than_said(text: str, limit: int) -> None:
    told = cut(text, limit)
    whole = text.encode("utf-8", "replace")
    told.encode()
    if len(whole) <= limit:
        assert told == whole.decode()
        return
    kept = told.rpartition("\n[Cut off")[0].encode()
    assert len(kept) <= limit
    assert whole.startswith(kept)
    assert limit - len(kept) < 4, "no more than half a character is lost"
