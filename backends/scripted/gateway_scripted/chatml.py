"""The scripted engine's default format: ChatML with reasoning and Hermes-style calls, as in Qwen3.

The engine provides the template like any model. The writer is used if no output format was passed to the engine, for
example when it is used without a server.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from gateway.sdk import CallPiece, Piece, ReasoningPiece, Tail

CHAT_TEMPLATE: Final = """\
{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content -%}{%- for part in content -%}{{ part.text if part.text is defined else '' }}{%- endfor -%}
{%- endif -%}
{%- endmacro -%}
{%- if tools %}<|im_start|>system
{% if messages and messages[0].role == 'system' %}{{ text(messages[0].content) }}

{% endif %}# Tools

You may call one or more functions. Their signatures, as JSON within <tools></tools>:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>

For each call, write a JSON object within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% elif messages and messages[0].role == 'system' %}<|im_start|>system
{{ text(messages[0].content) }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}
<tool_response>
{{ text(message.content) }}
</tool_response>
{%- if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>
{% endif %}
{%- elif message.role == 'assistant' %}<|im_start|>assistant
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ text(message.content) }}
{%- for call in message.tool_calls or [] %}
{%- set function = call.function if call.function is defined else call %}
{%- if not loop.first or message.content %}
{% endif %}<tool_call>
{"name": "{{ function.name }}", "arguments": {{ function.arguments if function.arguments is string else function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif not (loop.first and message.role == 'system') %}<|im_start|>{{ message.role }}
{{ text(message.content) }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}
{%- endif %}"""

_USER = re.compile(r"<\|im_start\|>user\n(?!\s*<tool_response>)(.*?)(?:<\|im_end\|>|\Z)", re.DOTALL)


def last_user_text(prompt: str) -> str:
    """The last user message in a prompt of this format; the whole prompt if it has another format."""
    said = _USER.findall(prompt)
    return said[-1] if said else prompt


def write_chatml(pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
    """Write the pieces in this format."""
    parts: list[str] = []
    thinking = tail == "reasoning"
    for piece in pieces:
        if isinstance(piece, ReasoningPiece):
            parts.append(piece.text if thinking else f"<think>\n{piece.text}")
            thinking = True
            continue
        if thinking:
            parts.append("\n</think>\n\n")
            thinking = False
        if isinstance(piece, CallPiece):
            name = json.dumps(piece.name, ensure_ascii=False)
            parts.append(
                f'<tool_call>\n{{"name": {name}, "arguments": {piece.arguments}}}\n</tool_call>'
            )
        else:
            parts.append(piece.text)
    if thinking:
        parts.append("\n</think>\n\n")
    return "".join(parts)
