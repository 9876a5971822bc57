"""Reasoning markers of the families."""

from __future__ import annotations

from msgspec.structs import replace

from gateway_parsers.spec import Frame, ReasoningMarkers

THINK = ReasoningMarkers(open="<think>", close="</think>")
"""The model opens the block itself, unless its prompt does: Qwen3 and most others."""

THINK_FROM_START = replace(THINK, default_start="reasoning")
"""The prompt opens the block, so the output starts inside it: DeepSeek-R1 and similar models."""

THINK_UNTIL_CALL = replace(THINK, call_ends_it="always")
"""Like `THINK`, for families whose calls start with a special token, which is never prose."""

THINK_FROM_START_UNTIL_CALL = replace(THINK_FROM_START, call_ends_it="always")

MISTRAL = ReasoningMarkers(
    open="[THINK]",
    close="[/THINK]",
    also_open=("<think>",),
    also_close=("</think>",),
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)
"""Magistral's special tokens; its first version used `<think>`."""

GEMMA = ReasoningMarkers(
    open="<|channel>thought",
    close="<channel|>",
    also_open=("<|channel>",),
    after_close="",
    call_ends_it="always",
)

SEED = ReasoningMarkers(open="<seed:think>", close="</seed:think>", after_close="")

GRANITE = ReasoningMarkers(
    open="Here is my thought process:",
    close="Here is my response:",
    also_open=("Here's my thought process:", "<think>"),
    also_close=("Here's my response:", "</think>"),
    open_where="fresh",
    before_close="\n\n",
    after_close="\n",
)
"""Granite 3.2 uses phrases, 3.3 uses tags."""

COHERE = ReasoningMarkers(
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
    ends_reasoning=("<|START_RESPONSE|>", "<|START_TEXT|>"),
)
COMMAND_4_TEXT = Frame(
    open="<|START_TEXT|>",
    close="<|END_TEXT|>",
    also_open=("<|START_RESPONSE|>",),
    also_close=("<|END_RESPONSE|>",),
    special=True,
    ends_reasoning=("<|START_TEXT|>", "<|START_RESPONSE|>"),
)

CITATION = ("<co", "</co")
"""Tags around cited text, such as `<co>…</co: 0:[1]>`. For their numbers see `gateway_parsers.kit.citations`."""

THOUGHT = ReasoningMarkers(open="<thought>", close="</thought>", default_start="reasoning")

KIMI_1 = ReasoningMarkers(open="◁think▷", close="◁/think▷", call_ends_it="always")

_KIMI_3_ENDS = ("<|sep|>", "\n", "")
"""Ends of a tag: its own, and those of models that leave it out."""
KIMI_3 = ReasoningMarkers(
    open="<|open|>think<|sep|>",
    close="<|close|>think<|sep|>",
    also_open=("<|open|>think\n",),
    also_close=(
        *(f"<|close|>think{end}" for end in _KIMI_3_ENDS[1:]),
        *(f"<|close|>{tag}{end}" for tag in ("message", "response") for end in _KIMI_3_ENDS),
    ),
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)
KIMI_3_END = (
    "<|end_of_msg|>",
    "<|open|>message<|sep|>",
    '<|open|>message role="assistant"<|sep|>',
)
"""What encloses a message."""
KIMI_3_TEXT = Frame(
    open="<|open|>response<|sep|>",
    close="<|close|>response<|sep|>",
    also_open=("<|open|>response\n",),
    also_close=(
        *(f"<|close|>response{end}" for end in _KIMI_3_ENDS[1:]),
        *(f"<|close|>{tag}{end}" for tag in ("message", "think") for end in _KIMI_3_ENDS),
    ),
    special=True,
    ends_reasoning=("<|open|>response<|sep|>", "<|open|>response\n"),
    with_calls=True,
)

MINIMAX_3 = ReasoningMarkers(
    open="<mm:think>", close="</mm:think>", after_open="", before_close="", after_close=""
)

INKLING = ReasoningMarkers(
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
    ends_reasoning=("<|content_text|>",),
    titled="<|message_model|>",
    title_end="<|content_",
)

APERTUS = ReasoningMarkers(
    open="<|inner_prefix|>",
    close="<|inner_suffix|>",
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)

LONGCAT = ReasoningMarkers(open="<longcat_think>", close="</longcat_think>")

K2_HORIZON = ReasoningMarkers(
    open="<ifm|think>",
    close="</ifm|think>",
    also_open=("<ifm|think_fast>", "<ifm|think_faster>"),
    also_close=("</ifm|think_fast>", "</ifm|think_faster>"),
)

PLAMO = ReasoningMarkers(
    open="<|plamo:begin_think:plamo|>",
    close="<|plamo:end_think:plamo|>",
    after_open="",
    before_close="",
    after_close="",
    call_ends_it="always",
)

PLAMO_TAG = ("<|plamo:tag|>",)
"""Ends a message."""

MINICPM_V = (
    "<|im_end|>",
    *(f"<{bar}reserved_{number}{bar}>" for number in range(12, 16) for bar in ("", "|")),
)
"""Markers that MiniCPM-V writes within its text."""

ANSWER = Frame(open="<answer>", close="</answer>", also_open=("助手：",))
RESPONSE = Frame(open="<response>", close="</response>")
BOX = ("<|begin_of_box|>", "<|end_of_box|>")
"""Enclose the final answer of GLM's vision models."""

KIMI_2_SECTION = ("<|tool_call_section_begin|>", "<|tool_call_section_end|>")
"""A variant spelling of the markers around calls; calls also occur without them."""

GEMMA_RESPONSE = ("<|tool_response>",)
"""The marker that ends a request for results. The model repeats it if generation does not stop there."""

SOLAR = ReasoningMarkers(
    open="<|think:start|>",
    close="<|think:end|>",
    after_open="",
    before_close="",
    after_close="",
    default_start="reasoning",
    call_ends_it="always",
)

MUSE = ReasoningMarkers(
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
MUSE_SPARK = replace(
    MUSE,
    also_open=(
        *MUSE.also_open,
        "<|start|>assistant<|message|>",
        "<|message|>",
        "<|start|>assistant to=developer<|message|>",
        "to=developer<|message|>",
    ),
)
"""A message without a recipient is reasoning. So is one to the developer, which is not for the user."""
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
    ends_reasoning=("<|start|>assistant to=user<|message|>",),
)
MUSE_SPARK_TEXT = replace(
    MUSE_TEXT,
    also_open=(
        "to=user<|message|>",
        "<|start|>assistant to=commentary<|message|>",
        "to=commentary<|message|>",
    ),
)

BEAM = ReasoningMarkers(
    open="<|channel|>analysis<|message|>",
    close="<|end|>",
    also_open=("<|start|>assistant<|channel|>analysis<|message|>",),
    also_close=("<|end|><|start|>assistant",),
    open_where="anywhere",
    after_open="",
    before_close="",
    after_close="<|start|>assistant",
    call_ends_it="always",
)
BEAM_TEXT = Frame(
    open="<|channel|>final<|message|>",
    close="<|return|>",
    also_open=("<|start|>assistant<|channel|>final<|message|>",),
    also_close=("<|end|>", "<|end|><|start|>assistant", "<|call|>"),
    special=True,
    ends_reasoning=("<|channel|>final<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
)
HYPERCLOVA_X = ReasoningMarkers(
    open="/think\n",
    also_open=("<|im_start|>assistant/think\n",),
    close="<|im_end|>\n<|im_start|>assistant",
    also_close=("<|im_end|><|im_start|>assistant",),
    open_where="fresh",
    after_open="",
    before_close="",
    after_close="\n",
    call_ends_it="always",
)
SOLAR_OPEN = ReasoningMarkers(
    open="<|think|>",
    close="<|end|>",
    also_open=("<|begin|>assistant<|think|>",),
    also_close=("<|end|><|begin|>assistant",),
    open_where="anywhere",
    after_open="",
    before_close="",
    after_close="<|begin|>assistant",
    call_ends_it="always",
)
SOLAR_OPEN_TEXT = Frame(
    open="<|content|>",
    close="<|end|>",
    also_open=("<|begin|>assistant<|content|>",),
    also_close=("<|end|><|begin|>assistant", "<|flush|>"),
    special=True,
    ends_reasoning=("<|begin|>assistant<|content|>", "<|content|>"),
)
APRIEL = ReasoningMarkers(
    open="Here are my reasoning steps:",
    close="[BEGIN FINAL RESPONSE]",
    open_where="fresh",
    default_start="reasoning",
    after_close="\n",
)
APRIEL_END = ("\n[END FINAL RESPONSE]", "[END FINAL RESPONSE]")
"""The end of Apriel 1.5's answers."""
