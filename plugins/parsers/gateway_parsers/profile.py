"""Selects the renderer and format of a model from its chat template and type."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

from gateway.sdk import ModelInfo, ModelProfile
from gateway_parsers.families.formats import BY_NAME, FORMATS


class _Rule(Struct, frozen=True):
    """A format, and the conditions on the chat templates of its models."""

    parser: str
    marks: tuple[str, ...]
    """Texts that must all be in the template."""
    without: tuple[str, ...] = ()
    """Texts that must not be in the template."""
    model: str = ""
    """A pattern searched in the model's type or architecture."""


# The first match wins, so specific rules precede those that they resemble.
_RULES: Final = (
    _Rule("deepseek_v41", ("｜DSML｜ calls",)),
    _Rule("deepseek_v4", ("｜DSML｜", "tool_calls"), ("function_calls",)),
    _Rule("deepseek_v32", ("｜DSML｜",)),
    _Rule("deepseek_v3", ("<｜tool▁calls▁begin｜>", "```json")),
    _Rule("deepseek_v31", ("<｜tool▁calls▁begin｜>",)),
    _Rule("kimi_k2", ("<|tool_call_begin|>",)),
    _Rule("kimi_k3", ("<|open|>", "<|close|>", "<|sep|>")),
    _Rule("minimax_m3", ("]<]minimax[>[",)),
    _Rule("minimax_m2", ("<minimax:tool_call>",)),
    _Rule("seed_oss", ("<seed:tool_call>",)),
    _Rule("longcat", ("<longcat_tool_call>",)),
    _Rule("dots", ("<dots_function_call>",)),
    _Rule("k2_horizon", ("<ifm|tool_call",)),
    _Rule("plamo3", ("begin_tool_request:plamo",)),
    _Rule("nemotron_json", ("<TOOLCALL>",)),
    _Rule("step3", ("<steptml:",)),
    # Its template divides texts at a `<tool_sep>` of its own.
    _Rule("minicpm5", ('<function name="', "<param name=")),
    _Rule("minicpm5", ("<param name=",), ("<function=",)),
    _Rule("hy_v3", ("<tool_sep",)),
    _Rule("hy_v4", ("<tool_calls", "<arg_key")),
    _Rule("telechat4", ("<param_key>",)),
    _Rule("gigachat35", ("｜GCML｜",)),
    _Rule("muse", ("<atem:function_calls>",), model="muse_?spark"),
    _Rule("muse_glimmer", ("<atem:function_calls>",)),
    _Rule("solar_open", ("<|tool_call:begin|>",)),
    _Rule("apriel", ("[BEGIN FINAL RESPONSE]",)),
    _Rule("beam", ("<rfl:parameter",)),
    _Rule("hyperclovax_seed_think_14b", ("-> tool/function_call",)),
    _Rule("solar_open2", ("<|tool_call:start|>",)),
    _Rule("iquest_q1", ("<iquest_tool_call>",)),
    _Rule("glm45", ("</arg_key>\n<arg_value>",)),
    _Rule("glm45", ("</arg_key>\\n<arg_value>",)),
    _Rule("glm47", ("<arg_key>",)),
    _Rule("mimo", ("<function=", "<parameter="), model="mimo"),
    _Rule("step5", ("<function=",), model="step_?5"),
    _Rule("qwen3_coder", ("<function=",)),
    _Rule("mistral", ("[TOOL_CALLS]", "[ARGS]")),
    _Rule("mistral_v3", ("[TOOL_CALLS]",)),
    _Rule("gemma4", ("<|tool_call>",)),
    _Rule("functiongemma", ("<start_function_call>",)),
    _Rule("cohere_command5", ("<cofl:tool_calls>", "<cofl:value")),
    _Rule("cohere_command4", ("<|START_ACTION|>", "<|START_TEXT|>")),
    _Rule("cohere_command3", ("<|START_ACTION|>",)),
    _Rule("apertus", ("<|tools_prefix|>",)),
    _Rule("inkling", ("<|content_invoke_tool_json|>",)),
    _Rule("internlm", ("<|action_start|>",)),
    _Rule("openpangu_v2", ("<|tool_call_start|>",), model="pangu"),
    _Rule("lfm2", ("<|tool_call_start|>",)),
    _Rule("lfm2", ("List of tools",), model="lfm2"),
    _Rule("olmo3", ("<function_calls>",)),
    _Rule("gigachat3", ("function call<|role_sep|>",)),
    _Rule("gigachat3", ("<|function_call|>",)),
    # Its template joins names of roles with their mark.
    _Rule("gigachat3", ("function call", "<|role_sep|>")),
    _Rule("phi4_mini_json", ("functools[",)),
    _Rule("phi4_mini_json", ("<|tool|>",), model="phi"),
    _Rule("granite", ("<|tool_call|>",)),
    _Rule("granite-20b-fc", ("<function_call>",)),
    _Rule("llama4_pythonic", ("<|python_start|>",)),
    _Rule("llama4_pythonic", ("func_name1(",), model="llama4"),
    _Rule("llama4_pythonic", ("func_name1(", "<|header_start|>")),
    _Rule("pythonic", ("func_name1(",)),
    _Rule("llama3_json", ("<|python_tag|>",)),
    _Rule("llama3_json", ('"parameters": dictionary of argument name',)),
    _Rule("hunyuan_a13b", ("<tool_calls>",), model="hunyuan"),
    _Rule("hunyuan_a13b", ("<tool_calls>", "<answer>")),
    _Rule("hunyuan_a13b", ("<tool_calls>", "助手：")),
    _Rule("jamba", ("<tool_calls>",)),
    _Rule("ernie45", ("<tool_call>",), model="ernie"),
    _Rule("xlam", ('[{"name": "tool_call_name"',)),
    _Rule("xlam", ("tool_call_name1",)),
)
_HARMONY: Final = "<|channel|>"
_JSON_CALL: Final = re.compile(r"\\?[\"']arguments\\?[\"']")
THINK_ALONE: Final = "think"
_THINKERS: Final = tuple(
    spec.name
    for spec in (BY_NAME[THINK_ALONE], *(each for each in FORMATS if each.name != THINK_ALONE))
    # The markers of Beam's thinking are Harmony's, too.
    if spec.reasoning is not None and spec.name != "beam"
)
"""Formats whose markers identify reasoning, the simplest first."""


def profile_of(model: ModelInfo) -> ModelProfile | None:
    """The profile of a model with a chat template; None without one."""
    template = model.chat_template
    if not template:
        return None
    # The template for tools is the one that shows calls.
    template = (model.tool_chat_template or "") + template
    calls, why = _calls_of(template, f"{model.model_type} {model.architecture}".lower())
    thinker = _reasoning_format_of(template, calls)
    if calls is None:
        parser = thinker or "plain"
        return ModelProfile(renderer="chat_template", parser=parser, why=why)
    own = BY_NAME[calls].reasoning
    if thinker is None or own == BY_NAME[thinker].reasoning:
        return ModelProfile(renderer="chat_template", parser=calls, why=why)
    marks = BY_NAME[thinker].reasoning
    assert marks is not None
    return ModelProfile(
        renderer="chat_template",
        reasoning=thinker,
        tools=calls,
        why=f"{why}, and reasoning as {marks.open}",
    )


def _calls_of(template: str, kind: str) -> tuple[str | None, str]:
    """The format of a template's calls, and the reason for the choice."""
    for rule in _RULES:
        fits = all(mark in template for mark in rule.marks)
        if not fits or any(mark in template for mark in rule.without):
            continue
        if rule.model and not re.search(rule.model, kind):
            continue
        condition = f" and its type says {rule.model}" if rule.model else ""
        return rule.parser, f"its chat template has {rule.marks[0].strip()!r}{condition}"
    if "<tool_call>" in template and _JSON_CALL.search(template) is not None:
        return "qwen3", "its chat template has JSON calls in '<tool_call>'"
    if _HARMONY in template:
        return (
            None,
            f"its chat template writes {_HARMONY!r}, which is the format 'harmony': calls stay text here",
        )
    return None, "its chat template has no call markup that is known"


def calls_in(text: str) -> str | None:
    """The format whose call markup `text` contains; None if there is none."""
    return _calls_of(text, "")[0]


def _reasoning_format_of(template: str, calls: str | None) -> str | None:
    """A format with the reasoning of this template, preferably that of its calls; None if it has none."""
    if calls is not None:
        own = BY_NAME[calls].reasoning
        if own is not None and any(close in template for close in own.closes):
            return calls
    for name in _THINKERS:
        marks = BY_NAME[name].reasoning
        if marks is not None and marks.open in template and marks.close in template:
            return name
        if marks is not None and name == THINK_ALONE and marks.close in template:
            return name
    return None
