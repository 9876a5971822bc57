"""The usage of each turn."""

from __future__ import annotations

from gateway.generation.usage import TokenCounter, TurnTokens


def test_a_prompt_that_became_shorter_has_no_tool_output() -> None:
    """As after a compaction between two turns."""
    turns = [TurnTokens(100, 0, 10), TurnTokens(40, 5, 3), TurnTokens(50, 40, 2)]
    written = TokenCounter().usage(turns).output_tokens_details
    assert written.tool_output_tokens_per_turn == [0, 0, 7]
    assert written.tool_output_tokens == 7
