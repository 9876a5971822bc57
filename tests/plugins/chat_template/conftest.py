"""Templates with the quirks of well-known families, and a renderer of each: the fixture `render`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, ClassVar, Literal

import pytest

from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import AddedToken, ModelInfo, Tokenizer, ToolDefinition, Turn
from gateway.wire.item_decoding import decode_items
from gateway_chat_template import ChatTemplateConfig, ChatTemplateRenderer
from gateway_scripted.chatml import CHAT_TEMPLATE

ROLES_ALTERNATE = """
{%- if messages[0].role == 'system' -%}
  [SYS]{{ messages[0].content }}[/SYS]{%- set talk = messages[1:] -%}
{%- else -%}{%- set talk = messages -%}{%- endif -%}
{%- set ns = namespace(turn=0) -%}
{%- for m in talk -%}
  {%- if m.role in ['user', 'assistant'] and not m.tool_calls -%}
    {%- if (m.role == 'user') != (ns.turn % 2 == 0) -%}
      {{- raise_exception('roles must alternate') -}}
    {%- endif -%}
    {%- set ns.turn = ns.turn + 1 -%}
  {%- endif -%}
  {%- if m.role == 'user' -%}
    {%- if tools and loop.last -%}[TOOLS]{{ tools | tojson }}[/TOOLS]{%- endif -%}
    [INST]{{ m.content }}[/INST]
  {%- elif m.tool_calls -%}
    [CALLS]
    {%- for c in m.tool_calls -%}
      {%- if c.id | length != 9 -%}{{ raise_exception('ids have length 9') }}{%- endif -%}
      {{ c.function | tojson }}#{{ c.id }}
    {%- endfor -%}</s>
  {%- elif m.role == 'assistant' -%}{{ m.content }}</s>
  {%- elif m.role == 'tool' -%}[RESULT]{{ m.content }}#{{ m.tool_call_id }}[/RESULT]
  {%- else -%}{{ raise_exception('unknown role ' + m.role) }}
  {%- endif -%}
{%- endfor -%}
"""

NO_SYSTEM = """{{ bos_token }}
{%- for m in messages -%}
{%- if m.role == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}
{{ m.content | trim }}<end_of_turn>
{% endfor -%}
{%- if add_generation_prompt -%}<start_of_turn>model
{% endif -%}"""

ONE_CALL = """
{%- if strftime_now is defined -%}{%- set day = strftime_now('%d %b %Y') -%}
{%- else -%}{%- set day = '26 Jul 2024' -%}{%- endif -%}
Today: {{ day }}
{% for tool in tools or [] %}{{ tool | tojson(indent=4) }}{% endfor %}
{%- for m in messages -%}
{%- if m.role == 'system' and not loop.first -%}{%- continue -%}{%- endif -%}
{%- if 'tool_calls' in m -%}
{%- if m.tool_calls | length != 1 -%}{{ raise_exception('one call at once') }}{%- endif -%}
{%- set call = m.tool_calls[0].function -%}
<|assistant|>{"name": "{{ call.name }}", "parameters": {{ call.arguments | tojson }}}<|eot|>
{%- elif m.role == 'tool' -%}<|ipython|>{{ m.content | tojson }}<|eot|>
{%- else -%}<|{{ m.role }}|>{{ m.content }}<|eot|>
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}
"""

PARTS_ONLY = """
{%- for m in messages -%}<{{ m.role }}>
{%- for part in m.content -%}
{%- if part.type == 'image' -%}<image>{%- elif part.type == 'text' -%}{{ part.text }}{%- endif -%}
{%- endfor -%}</{{ m.role }}>
{%- endfor -%}
"""

NO_CONTENT_WITH_CALLS = """
{%- if not thinking is defined -%}{%- set thinking = false -%}{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}<user>{{ m.content }}
{%- elif m.role == 'system' -%}<system>{{ m.content }}
{%- elif m.role == 'tool' -%}<output>{{ m.content }}
{%- elif m.content is none -%}
<assistant>{%- for c in m.tool_calls -%}<call>{{ c.function.name }}<sep>{{ c.function.arguments + '' }}{%- endfor -%}<end>
{%- else -%}<assistant>{{ m.content }}<end>
{%- endif -%}
{%- endfor -%}
{%- if tools -%}{{ tools | tojson }}{%- endif -%}
{%- if add_generation_prompt -%}<assistant>{{ '<think>\n' if thinking else '</think>' }}{%- endif -%}
"""

OWN_NOTATION = """
{%- for m in messages -%}{{ m.content }}
{%- for c in m.tool_calls or [] -%}call:{{ c.function.name }}
{%- if c.function.arguments is mapping -%}
{{ '{' }}{%- for key, value in c.function.arguments.items() -%}{{ key }}:<|{{ value }}|>{%- endfor -%}{{ '}' }}
{%- else -%}{{ c.function.arguments }}{%- endif -%}
{%- endfor -%}
{%- endfor -%}
"""

TEMPLATES = {
    "own_notation": OWN_NOTATION,
    "chatml": CHAT_TEMPLATE,
    "alternate": ROLES_ALTERNATE,
    "no_system": NO_SYSTEM,
    "one_call": ONE_CALL,
    "parts": PARTS_ONLY,
    "no_content": NO_CONTENT_WITH_CALLS,
}


class Characters:
    """A tokenizer of Unicode code points."""

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, token_ids))

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id).encode()


class WithPlaceholders(Characters):
    """A tokenizer of code points, and of tokens of its own for what stands for an image or sound in a prompt."""

    added_tokens: ClassVar = {
        text: AddedToken(id=0x110000 + index, special=special)
        for index, (text, special) in enumerate(
            {
                "<image>": False,  # as in some vocabularies
                "<|vision_start|>": True,
                "<|image_pad|>": True,
                "<|vision_end|>": True,
                "<|audio|>": True,
                "<|im_start|>": True,
                "<|im_end|>": True,
            }.items()
        )
    }
    _texts: ClassVar = {token.id: text for text, token in added_tokens.items()}
    _pattern: ClassVar = re.compile("|".join(map(re.escape, added_tokens)))

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        ids: list[int] = []
        at = 0
        for found in self._pattern.finditer(text):
            ids += [*map(ord, text[at : found.start()]), self.added_tokens[found[0]].id]
            at = found.end()
        return [*ids, *map(ord, text[at:])]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return "".join(self._texts.get(each) or chr(each) for each in token_ids)

    def token_bytes(self, token_id: int) -> bytes:
        if token_id not in self._texts and token_id > 0x10FFFF:
            raise ValueError(token_id)
        return self.decode([token_id]).encode()


class Render:
    """Renders plain JSON items with a template, by name or by its text."""

    F = ToolDefinition(name="f", description="Does f.", parameters={"type": "object"})

    @staticmethod
    def with_template(
        template: str,
        *,
        config: ChatTemplateConfig | None = None,
        trusted: bool = False,
        placeholders: Literal["template", "none"] = "template",
        tokenizer: Tokenizer | None = None,
    ) -> ChatTemplateRenderer:
        info = ModelInfo(
            name="m",
            engine="e",
            chat_template=TEMPLATES.get(template, template),
            bos_token="<bos>",
            eos_token="<eos>",
            placeholders=placeholders,
        )
        context = ModelContext(
            info=info, tokenizer=tokenizer or Characters(), trust_request_chat_template=trusted
        )
        return ChatTemplateRenderer(config or ChatTemplateConfig(), context)

    @classmethod
    @cache
    def cached(cls, template: str) -> ChatTemplateRenderer:
        return cls.with_template(template)

    @staticmethod
    def turn(items: Any, **turn: Any) -> Turn:
        return Turn(items=decode_items(items), **turn)

    @classmethod
    def text(cls, template: str, items: Any, **turn: Any) -> str:
        return cls.cached(template).render_text(cls.turn(items, **turn))

    @staticmethod
    def call(call_id: str, name: str = "f", arguments: str = '{"a":  1}') -> dict[str, Any]:
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}

    @staticmethod
    def output(call_id: str, output: str) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    @staticmethod
    def said(role: str, content: Any) -> dict[str, Any]:
        return {"role": role, "content": content}


@pytest.fixture(scope="session")
def with_placeholders() -> WithPlaceholders:
    """A tokenizer with tokens that stand for images and sounds."""
    return WithPlaceholders()


@pytest.fixture(scope="session")
def render() -> type[Render]:
    """Ways to render a conversation."""
    return Render
