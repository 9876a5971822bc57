"""Families whose calls are Python, or Gemma's braces."""

from __future__ import annotations

from gateway_parsers.families.json_calls import LLAMA_3
from gateway_parsers.kit.brace_calls import BraceCalls
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.python_calls import PythonCalls

PYTHONIC = PythonCalls(
    end="<|python_end|>",
    more_starts=("<|python_start|>", "<|python_tag|>"),
    bare_starts=("[",),
    opening="[",
    closing="]",
)
"""Llama 3.2, ToolACE and others: a bare list."""

LLAMA_4 = PythonCalls(
    start="<|python_start|>",
    end="<|python_end|>",
    bare_starts=("[", "{"),
    opening="[",
    closing="]",
    reads_json=LLAMA_3,
)

LFM_2 = PythonCalls(
    start="<|tool_call_start|>",
    end="<|tool_call_end|>",
    opening="<|tool_call_start|>[",
    closing="]<|tool_call_end|>",
    reads_json=JsonCalls(start="<|tool_call_start|>", end="<|tool_call_end|>"),
)

OLMO_3 = PythonCalls(
    start="<function_calls>",
    end="</function_calls>",
    opening="<function_calls>",
    closing="</function_calls>",
    between="\n",
)

GEMMA_4 = BraceCalls(
    start="<|tool_call>", end="<tool_call|>", mark='<|"|>', fresh_starts=("call:", "<call>")
)
FUNCTION_GEMMA = BraceCalls(
    start="<start_function_call>", end="<end_function_call>", mark="<escape>"
)
