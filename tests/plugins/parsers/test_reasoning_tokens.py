"""Counting the tokens that began inside reasoning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.plugins.protocols import EngineOutput, ParserContext, ToolDefinition

TOKENS = ["<think>", "\n", "hm", " wéll", "</think>", "\n\n", "Hi", "."]
INSIDE = 4  # from the line break to the close marker, which begins inside too
CALL = ["<tool_call>", "\n", '{"', 'name": "f"', ', "arguments": {}}', "</tool_call>"]


class ByteTokenizer:
    """Token n stands for the n-th text that it was given."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [self._tokens.index(text)] if text in self._tokens else [0] * len(text)

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(self._tokens[token] for token in token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id].encode()


def count(reading: Any, tokens: Sequence[str], groups: Sequence[int], tail: Any = "unknown") -> int:
    """The count where `groups` says how many tokens come in each output."""
    parser = reading.format_of().parser(
        ParserContext(
            tail=tail, tokenizer=ByteTokenizer(tokens), tools={"f": ToolDefinition(name="f")}
        )
    )
    at = turn = 0
    while at < len(tokens):
        end = min(at + groups[turn % len(groups)], len(tokens))
        text = "".join(tokens[at:end])
        parser.feed(EngineOutput(text=text, token_ids=range(at, end)))
        at = end
        turn += 1
    parser.finish("stop")
    total: int = parser.reasoning_tokens
    return total


GROUPS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(deadline=None)
@given(groups=GROUPS)
def test_tokens_from_the_open_marker_to_the_close_marker_count(
    reading: Any, groups: list[int]
) -> None:
    assert count(reading, TOKENS, groups) == INSIDE
    assert count(reading, TOKENS[1:], groups, "reasoning") == INSIDE
    assert count(reading, TOKENS[4:], groups, "text") == 0


@settings(deadline=None)
@given(groups=GROUPS)
def test_a_call_that_ends_reasoning_does_not_count(reading: Any, groups: list[int]) -> None:
    # The marker begins inside reasoning; what follows it does not.
    assert count(reading, ["hm", "\n", *CALL], groups, "reasoning") == 3


@settings(deadline=None)
@given(groups=GROUPS)
def test_what_only_looked_like_a_call_counts_as_reasoning(reading: Any, groups: list[int]) -> None:
    tokens = ["hm", "\n", "<tool_call>", "\n", "{", '"x"', "}", " no", "</think>", "ok"]
    assert count(reading, tokens, groups, "reasoning") == len(tokens) - 1


@pytest.mark.parametrize("groups", [[8], [2]])
def test_without_a_tokenizer_tokens_are_shared_out_by_length(
    reading: Any, groups: list[int]
) -> None:
    parser = reading.parser_of()
    parser.feed(EngineOutput(text="<think>aa</think>bbbb", token_ids=[1] * 10))
    assert 3 <= parser.reasoning_tokens <= 5
    parser.feed(EngineOutput(text="cc", token_ids=[1] * 10))
    assert parser.reasoning_tokens <= 5
