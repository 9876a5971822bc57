"""Long texts are searched in pieces, and the same is found."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from gateway.engines.text_search import AT_ONCE, any_of, found_in

TOKENS = st.lists(st.text("<|ab>", min_size=1, max_size=6), min_size=1, max_size=6, unique=True)


@given(
    tokens=TOKENS,
    text=st.text("<|ab> ", max_size=200),
    at_once=st.integers(1, 40),
    overlapping=st.booleans(),
)
def test_a_search_in_pieces_finds_what_a_search_of_the_whole_finds(
    tokens: list[str], text: str, at_once: int, overlapping: bool
) -> None:
    pattern = any_of(tokens, overlapping=overlapping)
    assert pattern is not None
    longest = max(map(len, tokens))
    found = found_in(text, pattern, longest=longest, at_once=at_once)
    whole = [(each.span(), each.groups()) for each in pattern.finditer(text)]
    assert [(each.span(), each.groups()) for each in found] == whole


def test_a_long_text_is_searched_in_pieces_for_the_tokens_of_every_model() -> None:
    """A text of megabytes that begins a token at each character takes as many steps as it has pieces, not one."""
    pattern = any_of(["<tool_call>", "<|im_end|>"], overlapping=False)
    assert pattern is not None
    searched: list[int] = []
    search = pattern.finditer

    class Counting:
        def finditer(self, text: str, start: int, end: int) -> Iterator[re.Match[str]]:
            searched.append(end - start)
            return search(text, start, end)

    assert list(found_in("<" * 1_000_000, Counting(), longest=11)) == []  # type: ignore[arg-type]
    assert max(searched) <= AT_ONCE + 11
