"""Families whose calls are JSON with the name inside."""

from __future__ import annotations

from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.labels import mistral_id
from gateway_parsers.kit.python_reader import PythonShape

HERMES = JsonCalls(start="<tool_call>", end="</tool_call>")
"""Hermes 2 Pro, Qwen2.5, Qwen3 and many fine-tunes."""

K2_HORIZON_JSON = JsonCalls(
    start="<ifm|tool_calls>",
    end="</ifm|tool_call>",
    more_starts=("<ifm|tool_call>",),
    more_ends=("</ifm|tool_calls>",),
)

LLAMA_3_PYTHON = PythonShape(end="<|eom_id|>", more_starts=("<|python_tag|>",))
LLAMA_3 = JsonCalls(
    start="",
    end="",
    more_starts=("<|python_tag|>",),
    more_ends=("```",),
    bare_starts=("{", "[", "```json", "```"),
    head='{"name": {name}, "parameters": ',
    between="; ",
    reads_python=LLAMA_3_PYTHON,
)
"""Llama 3.1 to 3.3: one bare object, or several separated by semicolons; after the marker also `NAME(...)`."""

PLAIN_JSON = JsonCalls(
    start="",
    end="",
    more_ends=("```",),
    bare_starts=("{", "[", "```json", "```"),
    between="\n",
)
"""Models instructed to answer with `{"name": ..., "arguments": ...}`."""

MISTRAL_LIST = JsonCalls(start="[TOOL_CALLS]", end="", listed=True, before=" ", make_id=mistral_id)
"""Mistral's tokenizers before version 11."""

LONGCAT = JsonCalls(start="<longcat_tool_call>", end="</longcat_tool_call>")

GRANITE = JsonCalls(
    start="<|tool_call|>", end="", more_starts=("<tool_call>",), before="", listed=True
)
"""Granite 3.0 and 3.1."""

GRANITE_20B = JsonCalls(start="<function_call>", end="", before=" ")

HUNYUAN = JsonCalls(start="<tool_calls>", end="</tool_calls>", before="", after="", listed=True)

JAMBA = JsonCalls(start="<tool_calls>", end="</tool_calls>", listed=True)

NEMOTRON = JsonCalls(start="<TOOLCALL>", end="</TOOLCALL>", before="", after="", listed=True)

OPENPANGU_V2 = JsonCalls(
    start="<|tool_call_start|>", end="<|tool_call_end|>", before="", after="", listed=True
)

SARASHINA = JsonCalls(start="<|tool_calls|>", end="", bare_starts=("[",), before="", listed=True)
"""Engines that omit special tokens show the list alone."""

INTERNLM = JsonCalls(
    start="<|action_start|><|plugin|>",
    end="<|action_end|>",
    more_starts=("<|action_start|> <|plugin|>",),
    head='{"name": {name}, "parameters": ',
)

PHI_4_MINI = JsonCalls(
    start="", end="", bare_starts=("functools[",), opening="functools", listed=True
)

XLAM = JsonCalls(
    start="",
    end="",
    more_starts=("[TOOL_CALLS]", "<tool_call>"),
    more_ends=("</tool_call>", "```"),
    bare_starts=("[", "```json", "```"),
    listed=True,
)

COHERE = JsonCalls(
    start="<|START_ACTION|>",
    end="<|END_ACTION|>",
    name_keys=("tool_name", "name"),
    argument_keys=("parameters", "arguments"),
    before="",
    after="",
    listed=True,
    head='{"tool_call_id": "{index}", "tool_name": {name}, "parameters": ',
)

APERTUS = JsonCalls(
    start="<|tools_prefix|>",
    end="<|tools_suffix|>",
    name_is_key=True,
    before="",
    after="",
    listed=True,
    head="{{name}: ",
)

INKLING = JsonCalls(
    start="<|content_invoke_tool_json|>",
    end="<|end_message|>",
    more_ends=("<|content_model_end_sampling|>",),
    argument_keys=("args", "arguments", "parameters"),
    before="",
    after="",
    between="<|message_model|>",
    head='{"name": {name}, "args": ',
)

GIGACHAT_3 = JsonCalls(
    start="<|function_call|>",
    end="",
    more_starts=("function call<|role_sep|>",),
    before="",
)

HYPERCLOVA_X = JsonCalls(
    start="-> tool/function_call",
    end="",
    more_starts=("<|im_start|>assistant -> tool/function_call",),
    listed=True,
)
"""HyperCLOVA X SEED Think 14B: a message to the tools."""

QWEN_2_5_CODER = JsonCalls(
    start="<tools>",
    end="</tools>",
    more_starts=("<tool_call>",),
    more_ends=("</tool_call>", "```"),
    bare_starts=("{", "```json"),
)
"""Qwen2.5-Coder repeats the tags in which the prompt lists the tools."""

APRIEL = JsonCalls(
    start="<tool_calls>",
    end="</tool_calls>",
    more_starts=("<tool_call>",),
    more_ends=("</tool_call>",),
    before="",
    after="",
    listed=True,
)
"""Apriel 1.5's prompt names both tags."""
