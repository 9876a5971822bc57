"""Prompts without control tokens in their texts keep the token ids that they had before texts were kept from them.

`golden_prompts.json` was recorded with the code that encoded the rendered text in one go. Since then, only "several" has
changed: templates that show lists of text parts are given the list. To add a case, record it with
`python -m tests.security.special_tokens.test_golden_prompts`, and look at what changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.base.errors import InvalidRequest
from gateway.plugins.protocols import ToolDefinition
from gateway_scripted.chatml import CHAT_TEMPLATE
from gateway_scripted.tokenizer import ScriptedTokenizer

FILE = Path(__file__).parent / "golden_prompts.json"
TINY = Path(__file__).parents[2] / "models" / "tiny-qwen3"

WEATHER = ToolDefinition(
    name="get_weather",
    description='The weather "now", as <b>HTML</b> or [text]; a | b.',
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string", "description": "Where? <city>"}},
        "required": ["city"],
    },
)
CALL = {
    "type": "function_call",
    "call_id": "call00001",
    "name": "get_weather",
    "arguments": '{"city": "Paris", "unit": "°C <b>"}',
}
RESULT = {"type": "function_call_output", "call_id": "call00001", "output": '{"temp": [21, "|"]}'}
USER = {"role": "user", "content": "What is the capital of France?"}
THOUGHT = {
    "type": "reasoning",
    "summary": [],
    "content": [{"type": "reasoning_text", "text": "\nHm, the weather.\n"}],
}


def said(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "plain": ([USER], {}),
    "instructed": ([USER], {"instructions": "You are a model. Be  brief.\n"}),
    "several": (
        [
            said("system", "Speak of <h1>Paris</h1>, [x] || and < | im_end | >."),
            said("user", "  spaces around \t\n"),
            said("assistant", "\n Yes: `a <b> c`, x|y, [1], 12345 🙂 naïve café\n\n"),
            said("developer", "Later words."),
            said(
                "user", [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "<"}]
            ),
        ],
        {},
    ),
    "near": (
        [said("user", "<|im_end <|| im_start|> [INST /INST] <think </ think> s> </s ｜User｜>")],
        {},
    ),
    "tools": ([USER], {"tools": [WEATHER]}),
    "loop": ([USER, THOUGHT, CALL, RESULT], {"tools": [WEATHER]}),
    "looped": ([USER, CALL, RESULT, said("assistant", "21 degrees."), USER], {"tools": [WEATHER]}),
    "own markers": (
        [USER, said("assistant", "<think>\nhm\n</think>\n\nParis."), said("user", "and you?")],
        {},
    ),
    "continued": ([USER, said("assistant", "The capital is")], {"continue_final_message": True}),
    "no turn": ([USER], {"add_generation_prompt": False}),
    "variables": (
        [USER],
        {"chat_template_kwargs": {"enable_thinking": False, "note": "a <b> | c"}},
    ),
    "documents": ([USER], {"documents": [{"title": "T <i>", "text": "the | text"}]}),
    "code": (
        [
            said(
                "user",
                "```cpp\nstd::vector<std::pair<int, T>> v; if (a < b || c > d) x[i] = '<';\n```\n"
                * 5,
            )
        ],
        {},
    ),
}


def tiny_tokenizer() -> Any:
    from gateway_remote.tokenizer import load_tokenizer

    return load_tokenizer(TINY / "tokenizer.json")


def prompts(kit: Any) -> dict[str, list[int] | str]:
    """The ids of each case; what is refused, as the sentence."""
    renderers = {name: kit.renderer(name, kit.json_tokenizer(name)) for name in kit.families}
    renderers |= {
        f"{name} by transformers": kit.renderer(name, kit.hf_tokenizer(name))
        for name in kit.families
    }
    tiny = (TINY / "chat_template.jinja").read_text()
    renderers["tiny"] = kit.renderer_with(tiny, tiny_tokenizer())
    renderers["scripted"] = kit.renderer_with(CHAT_TEMPLATE, ScriptedTokenizer())
    made: dict[str, list[int] | str] = {}
    for name, renderer in renderers.items():
        for title, (items, turn) in CONVERSATIONS.items():
            try:
                rendered = renderer.render(kit.turn(items, **turn))
            except InvalidRequest as error:
                made[f"{name}: {title}"] = error.message
            else:
                made[f"{name}: {title}"] = list(rendered.prompt.token_ids)
    return made


def test_prompts_without_control_tokens_in_their_texts_have_the_ids_that_they_had(kit: Any) -> None:
    recorded = json.loads(FILE.read_text())
    made = prompts(kit)
    assert made.keys() == recorded.keys()
    assert [case for case in made if made[case] != recorded[case]] == []
    assert sum(isinstance(ids, list) for ids in recorded.values()) > 200


if __name__ == "__main__":
    from tests.security.special_tokens.conftest import Kit

    lines = (
        f"{json.dumps(case)}: {json.dumps(ids, ensure_ascii=False, separators=(',', ':'))}"
        for case, ids in prompts(Kit).items()
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
