"""Families whose calls have the name in a separate header and the arguments as JSON."""

from __future__ import annotations

from gateway_parsers.families.json_calls import MISTRAL_LIST
from gateway_parsers.kit import labels
from gateway_parsers.kit.header_calls import HeaderCalls

KIMI_K2 = HeaderCalls(
    section="<|tool_calls_section_begin|>",
    section_end="<|tool_calls_section_end|>",
    call="<|tool_call_begin|>",
    call_end="<|tool_call_end|>",
    separators=("<|tool_call_argument_begin|>",),
    opens=("{", "[", '"'),
    arguments_after=("<|tool_call_argument_begin|>",),
    label=labels.kimi,
    head="<|tool_call_begin|>functions.{name}:{index}<|tool_call_argument_begin|>",
    tail="<|tool_call_end|>",
    opening="<|tool_calls_section_begin|>",
    closing="<|tool_calls_section_end|>",
)

DEEPSEEK_V31 = HeaderCalls(
    section="<｜tool▁calls▁begin｜>",
    section_end="<｜tool▁calls▁end｜>",
    call="<｜tool▁call▁begin｜>",
    call_end="<｜tool▁call▁end｜>",
    separators=("<｜tool▁sep｜>",),
    fences=("```json", "```"),
    arguments_after=("<｜tool▁sep｜>",),
    kinds=("function",),
    label=labels.plain,
    head="<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>",
    tail="<｜tool▁call▁end｜>",
    opening="<｜tool▁calls▁begin｜>",
    closing="<｜tool▁calls▁end｜>",
)

DEEPSEEK_V3 = HeaderCalls(
    section=DEEPSEEK_V31.section,
    section_end=DEEPSEEK_V31.section_end,
    call=DEEPSEEK_V31.call,
    call_end=DEEPSEEK_V31.call_end,
    separators=DEEPSEEK_V31.separators,
    fences=DEEPSEEK_V31.fences,
    arguments_after=DEEPSEEK_V31.arguments_after,
    kinds=DEEPSEEK_V31.kinds,
    label=labels.plain,
    head="<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n",
    tail="\n```<｜tool▁call▁end｜>",
    opening=DEEPSEEK_V31.opening,
    closing=DEEPSEEK_V31.closing,
    between="\n",
)
"""V3 and R1-0528: fenced arguments, and the kind of call before the name."""

MISTRAL = HeaderCalls(
    call="[TOOL_CALLS]",
    separators=("[ARGS]", "[CALL_ID]"),
    arguments_after=("[ARGS]",),
    label=labels.mistral,
    head="[TOOL_CALLS]{name}[ARGS]",
    tail="",
    reads_json=MISTRAL_LIST,
)
"""Mistral's tokenizers from version 11 on."""

PLAMO_3 = HeaderCalls(
    section="<|plamo:begin_tool_requests:plamo|>",
    section_end="<|plamo:end_tool_requests:plamo|>",
    call="<|plamo:begin_tool_request:plamo|>",
    call_end="<|plamo:end_tool_request:plamo|>",
    separators=("<|plamo:begin_tool_name:plamo|>", "<|plamo:end_tool_name:plamo|>"),
    fences=(
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",
        "<|plamo:end_tool_arguments:plamo|>",
    ),
    arguments_after=("<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>",),
    label=labels.plain,
    head=(
        "<|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>{name}<|plamo:end_tool_name:plamo|>"
        "<|plamo:begin_tool_arguments:plamo|><|plamo:constrain|>json<|plamo:msg|>"
    ),
    tail="<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|>",
    opening="<|plamo:begin_tool_requests:plamo|>",
    closing="<|plamo:end_tool_requests:plamo|>",
)

SOLAR_OPEN = HeaderCalls(
    section="<|tool_calls|>",
    section_end="<|calls|>",
    call="<|tool_call:begin|>",
    call_end="<|tool_call:end|>",
    separators=("<|tool_call:name|>", "<|tool_call:args|>"),
    arguments_after=("<|tool_call:args|>",),
    label=labels.solar,
    head="<|tool_call:begin|>{id}<|tool_call:name|>{name}<|tool_call:args|>",
    tail="<|tool_call:end|>",
    opening="<|tool_calls|>",
    closing="<|calls|>",
    ids="[a-z0-9]{10}",
)
"""Solar Open: an id before the name, which its prompt shows again."""
