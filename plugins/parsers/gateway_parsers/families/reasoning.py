"""How families mark reasoning, by the names that vLLM gives its reasoning parsers."""

from __future__ import annotations

from gateway_parsers.spec import Reasoning

THINK = Reasoning(open="<think>", close="</think>")
"""The model opens the block itself, or its prompt says otherwise: Qwen3 and most others."""

THINK_FROM_START = Reasoning(open="<think>", close="</think>", default_start="reasoning")
"""The prompt opens the block, so that an output begins inside it: DeepSeek-R1 and its kin."""
