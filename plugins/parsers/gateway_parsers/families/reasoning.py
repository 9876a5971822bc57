"""How families mark reasoning."""

from __future__ import annotations

from msgspec.structs import replace

from gateway_parsers.spec import Frame, Reasoning

THINK = Reasoning(open="<think>", close="</think>")
"""The model opens the block itself, or its prompt says otherwise: Qwen3 and most others."""

THINK_FROM_START = replace(THINK, default_start="reasoning")
"""The prompt opens the block, so that an output begins inside it: DeepSeek-R1 and its kin."""

THINK_UNTIL_CALL = replace(THINK, call_ends_it="always")
"""As `THINK`, in families whose calls begin with a special token, which is never prose."""

THINK_FROM_START_UNTIL_CALL = replace(THINK_FROM_START, call_ends_it="always")

MISTRAL = Reasoning(
    open="[THINK]",
    close="[/THINK]",
    also_open=("<think>",),
    also_close=("</think>",),
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)
"""Magistral's special tokens; its first version wrote `<think>`."""

GEMMA = Reasoning(
    open="<|channel>thought",
    close="<channel|>",
    also_open=("<|channel>",),
    after_close="",
    call_ends_it="always",
)

SEED = Reasoning(open="<seed:think>", close="</seed:think>", after_close="")

GRANITE = Reasoning(
    open="Here is my thought process:",
    close="Here is my response:",
    also_open=("Here's my thought process:", "<think>"),
    also_close=("Here's my response:", "</think>"),
    open_where="fresh",
    before_close="\n\n",
    after_close="\n",
)
"""Granite 3.2 in words, 3.3 in tags."""

COHERE = Reasoning(
    open="<|START_THINKING|>",
    close="<|END_THINKING|>",
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)
COMMAND_3_TEXT = Frame(
    open="<|START_RESPONSE|>",
    close="<|END_RESPONSE|>",
    also_open=("<|START_TEXT|>",),
    also_close=("<|END_TEXT|>",),
    special=True,
)
COMMAND_4_TEXT = Frame(
    open="<|START_TEXT|>",
    close="<|END_TEXT|>",
    also_open=("<|START_RESPONSE|>",),
    also_close=("<|END_RESPONSE|>",),
    special=True,
)

KIMI_1 = Reasoning(open="◁think▷", close="◁/think▷", call_ends_it="always")

KIMI_3 = Reasoning(
    open="<|open|>think<|sep|>",
    close="<|close|>think<|sep|>",
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)
KIMI_3_TEXT = Frame(
    open="<|open|>response<|sep|>",
    close="<|close|>response<|sep|>",
    also_close=("<|close|>message<|sep|>",),
    special=True,
    with_calls=True,
)

MINIMAX_3 = Reasoning(
    open="<mm:think>", close="</mm:think>", after_open="", before_close="", after_close=""
)

INKLING = Reasoning(
    open="<|content_thinking|>",
    close="<|end_message|>",
    also_close=("<|content_model_end_sampling|>",),
    after_open="",
    before_close="",
    after_close="<|message_model|>",
    call_ends_it="always",
)
INKLING_TEXT = Frame(
    open="<|content_text|>",
    close="<|end_message|>",
    also_open=(
        "<|message_model|>",
        "<|content_invoke_tool_text|>",
        "<|content_tool_error|>",
    ),
    also_close=("<|content_model_end_sampling|>",),
    special=True,
)

APERTUS = Reasoning(
    open="<|inner_prefix|>",
    close="<|inner_suffix|>",
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)

LONGCAT = Reasoning(open="<longcat_think>", close="</longcat_think>")

K2_HORIZON = Reasoning(
    open="<ifm|think>",
    close="</ifm|think>",
    also_open=("<ifm|think_fast>", "<ifm|think_faster>"),
    also_close=("</ifm|think_fast>", "</ifm|think_faster>"),
)

PLAMO = Reasoning(
    open="<|plamo:begin_think:plamo|>",
    close="<|plamo:end_think:plamo|>",
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)

ANSWER = Frame(open="<answer>", close="</answer>", also_open=("助手：",))
RESPONSE = Frame(open="<response>", close="</response>")
BOX = ("<|begin_of_box|>", "<|end_of_box|>")
"""Around the answer proper, in GLM's models that see."""

KIMI_2_SECTION = ("<|tool_call_section_begin|>", "<|tool_call_section_end|>")
"""As the model sometimes spells what encloses its calls, which stand by themselves too."""

GEMMA_RESPONSE = ("<|tool_response>",)
"""What the model asks for answers with, and repeats where nothing stops it there."""

SOLAR = Reasoning(
    open="<|think:start|>",
    close="<|think:end|>",
    after_open="",
    before_close="",
    after_close="",
    default_start="reasoning",
    call_ends_it="always",
)

MUSE = Reasoning(
    open="<|start|>assistant to=self<|message|>",
    close="<|eom|>",
    also_open=("to=self<|message|>",),
    also_close=("<|eot|>",),
    open_where="anywhere",
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)
MUSE_TEXT = Frame(
    open="<|start|>assistant to=user<|message|>",
    close="<|eot|>",
    also_open=(
        "to=user<|message|>",
        "<|start|>assistant<|message|>",
        "<|message|>",
    ),
    also_close=("<|eom|>",),
    special=True,
)
