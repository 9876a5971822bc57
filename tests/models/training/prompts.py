"""Renders dialogues as the chat template does, cut into what is given and what the model is to learn.

The template itself cannot say which of its output the model wrote, so its rules are here a second time;
`check_template` holds the two together.
"""

import functools
import json
from pathlib import Path
from typing import Any

import jinja2
from dialogues import Dialogue, Dialogues, Message

TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text()

Pieces = list[tuple[str, bool]]
"""Text, and whether the model is to learn it."""


def pieces(dialogue: Dialogue) -> Pieces:
    messages = dialogue.messages
    out: Pieces = []
    head = messages[0]["content"] if messages[0]["role"] == "system" else None
    if head is not None or dialogue.tools:
        system = head or ""
        if dialogue.tools:
            lines = "".join("\n" + _json(tool) for tool in dialogue.tools)
            system += "\n\n" if head is not None else ""
            system += f"# Tools\n\nYou may call these functions:\n<tools>{lines}\n</tools>"
        out.append((f"<|im_start|>system\n{system}<|im_end|>\n", False))
    for position, message in enumerate(messages):
        match message["role"]:
            case "system" if position == 0:
                pass
            case "assistant":
                thought = message.get("reasoning_content")
                out.append(("<|im_start|>assistant\n", False))
                out.append((f"<think>\n{thought or ''}\n</think>\n\n", thought is not None))
                out.append((written(message) + "<|im_end|>", True))
                out.append(("\n", False))
            case "tool":
                first = messages[position - 1]["role"] != "tool"
                last = position + 1 == len(messages) or messages[position + 1]["role"] != "tool"
                text = f"\n<tool_response>\n{message['content']}\n</tool_response>"
                start, end = "<|im_start|>user" if first else "", "<|im_end|>\n" if last else ""
                out.append((start + text + end, False))
            case role:
                out.append((f"<|im_start|>{role}\n{message['content']}<|im_end|>\n", False))
    return out


def written(message: Message) -> str:
    """What the model writes after its thoughts."""
    calls = "\n".join(
        f'<tool_call>\n{{"name": "{call["function"]["name"]}", "arguments": {call["function"]["arguments"]}}}\n</tool_call>'
        for call in message.get("tool_calls", [])
    )
    return message["content"] + ("\n" if calls and message["content"] else "") + calls


@functools.cache
def template() -> jinja2.Template:
    """The chat template, compiled as transformers does it."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = _json
    return environment.from_string(TEMPLATE)


def prompt(dialogue: Dialogue) -> str:
    """The prompt of the dialogue's last message."""
    return template().render(
        messages=dialogue.messages[:-1],
        tools=dialogue.tools or None,
        add_generation_prompt=True,
        enable_thinking=dialogue.thinking,
    )


def expected(dialogue: Dialogue) -> str:
    """What the model should generate for `prompt`."""
    last = dialogue.messages[-1]
    thought = last.get("reasoning_content")
    return (f"<think>\n{thought}\n</think>\n\n" if thought is not None else "") + written(last)


def check_template(count: int = 1000) -> None:
    """Raises when `pieces` and the template differ on any of `count` dialogues."""
    compiled, source = template(), Dialogues(2)
    for _ in range(count):
        dialogue = source.draw()
        whole = "".join(text for text, _ in pieces(dialogue))
        rendered = compiled.render(messages=dialogue.messages, tools=dialogue.tools or None)
        if rendered != whole:
            raise AssertionError(f"template: {rendered!r}\npieces: {whole!r}")
        if not whole.startswith(prompt(dialogue) + expected(dialogue)):
            raise AssertionError(f"prompt: {prompt(dialogue)!r}\nis no prefix of {whole!r}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
