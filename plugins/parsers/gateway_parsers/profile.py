"""Which renderer and format a model speaks, read off its chat template."""

from __future__ import annotations

import re

from gateway.protocols.engine import ModelInfo
from gateway.protocols.profile import ModelProfile

# Call markup of families that no format here reads, by what their templates tell the model to write.
_FOREIGN = (
    ("<function=", "qwen3_coder"),
    ("<arg_key>", "glm45"),
    ("<|python_tag|>", "llama3_json"),
    ("<｜tool▁calls▁begin｜>", "deepseek_v3"),
    ("｜DSML｜", "deepseek_v32"),
    ("<|tool_call_begin|>", "kimi_k2"),
    ("<minimax:tool_call>", "minimax_m2"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|tool_call>", "gemma4"),
    ("<|channel|>", "openai"),
    ("<seed:tool_call>", "seed_oss"),
    ("<TOOLCALL>", "nemotron_json"),
    ("<|tool_call|>", "granite"),
    ("<|START_ACTION|>", "cohere"),
)
THINK_ALONE = "think"
_JSON_CALL = re.compile(r"\\?[\"']arguments\\?[\"']")


def profile_of(model: ModelInfo) -> ModelProfile | None:
    """The profile of a model with a chat template; None without one."""
    template = model.chat_template
    if not template:
        return None
    thinks = "</think>" in template
    calls = "<tool_call>" in template and _JSON_CALL.search(template) is not None
    foreign = next((family for mark, family in _FOREIGN if mark in template), None)
    if foreign is not None:
        return ModelProfile(
            renderer="chat_template",
            parser=THINK_ALONE if thinks else "plain",
            why=f"its chat template writes calls as {foreign} does, which no installed format reads: calls stay text",
        )
    if calls:
        seen = "<think> and JSON calls" if thinks else "JSON calls"
        return ModelProfile(
            renderer="chat_template",
            parser="qwen3",
            why=f"its chat template has {seen} in <tool_call>",
        )
    if thinks:
        return ModelProfile(
            renderer="chat_template",
            parser=THINK_ALONE,
            why="its chat template has <think>, and no call markup that is known",
        )
    return ModelProfile(
        renderer="chat_template", parser="plain", why="its chat template has no known markup"
    )
