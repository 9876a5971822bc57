"""How families write tool calls, by the names that vLLM gives its tool parsers."""

from __future__ import annotations

from gateway_parsers.kit.json_calls import JsonCalls

HERMES = JsonCalls(start="<tool_call>", end="</tool_call>")
"""Hermes 2 Pro, Qwen2.5, Qwen3 and many fine-tunes."""
