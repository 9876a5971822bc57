"""Small tokenizers and chat templates in the style of well-known model families: their special tokens, their quirks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
from msgspec import Struct
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from gateway.engines.tokenizer import HfTokenizer
from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import ModelInfo, Turn
from gateway.wire.item_decoding import decode_items
from gateway_chat_template import ChatTemplateConfig, ChatTemplateRenderer
from gateway_remote.tokenizer import JsonTokenizer

_WORDS = [
    "the",
    "The",
    "and",
    "you",
    "user",
    "system",
    "assistant",
    "model",
    "tool",
    "call",
    "Paris",
    "France",
    "capital",
    "what",
    "What",
    "is",
    "of",
    "in",
    "name",
    "arguments",
    "type",
    "function",
    "string",
    "parameters",
    "description",
    "weather",
    "city",
    "result",
    "think",
    "im",
    "start",
    "end",
    "turn",
    "INST",
    "header",
    "eot",
    "id",
    "begin",
    "sentence",
    "User",
    "Assistant",
]
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _merges(words: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The pieces and the merges that make each word one token, left to right."""
    pieces: dict[str, None] = {}
    merges: dict[tuple[str, str], None] = {}
    for word in words:
        made = word[0]
        for character in word[1:]:
            merges[made, character] = None
            made += character
            pieces[made] = None
    return list(pieces), list(merges)


def byte_level() -> tokenizers.Tokenizer:
    """As Qwen, Llama 3, DeepSeek, GLM and Tekken: bytes, and no special handling of spaces."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces, merges = _merges(
        [*_WORDS, *("\u0120" + word for word in _WORDS), "<|", "|>", "</", "\u010a\u010a"]
    )
    vocabulary = {piece: index for index, piece in enumerate(dict.fromkeys([*alphabet, *pieces]))}
    made = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    return made


def _sentencepiece_model() -> models.BPE:
    characters = ["\u2581", *map(chr, range(0x21, 0x7F)), "\u00e9", "\u00fc"]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces, merges = _merges([*_WORDS, *("\u2581" + word for word in _WORDS)])
    order = dict.fromkeys(["<unk>", "<s>", "</s>", *bytes_, *characters, *pieces])
    vocabulary = {piece: index for index, piece in enumerate(order)}
    return models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)


def metaspace() -> tokenizers.Tokenizer:
    """As Mistral's first ones: SentencePiece with a space before the first word."""
    made = tokenizers.Tokenizer(_sentencepiece_model())
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = _sentencepiece_decoder()
    return made


def prepending() -> tokenizers.Tokenizer:
    """As Llama 2 and Phi 3: a space before the text after each added token."""
    made = tokenizers.Tokenizer(_sentencepiece_model())
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    made.decoder = _sentencepiece_decoder()
    return made


def plain_spaces() -> tokenizers.Tokenizer:
    """As Gemma: SentencePiece without a space before anything."""
    made = tokenizers.Tokenizer(_sentencepiece_model())
    made.normalizer = normalizers.Replace(" ", "\u2581")
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return made


def unigram() -> tokenizers.Tokenizer:
    """As T5 and its like: a unigram model, whose text is normalized by NFKC, and no bytes to fall back on."""
    characters = ["\u2581", *map(chr, range(0x21, 0x7F)), "\u00e9"]
    words = [*_WORDS, *("\u2581" + word for word in _WORDS)]
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0)]
    pieces += [(character, -6.0) for character in characters]
    pieces += [(word, -4.0) for word in dict.fromkeys(words) if len(word) > 1]
    made = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    made.decoder = decoders.Metaspace()
    return made


def _sentencepiece_decoder() -> decoders.Decoder:
    return decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )


class Family(Struct, frozen=True, kw_only=True):
    """One family: how it tokenizes, what it marks with, how it is prompted."""

    base: Callable[[], tokenizers.Tokenizer]
    special: tuple[str, ...]
    """Tokens that are declared special."""
    markers: tuple[str, ...] = ()
    """Added tokens by which the format marks calls, results and reasoning, and turns where they are not special."""
    other: tuple[str, ...] = ()
    """Added tokens that are ordinary text: they stay what they are in everybody's text."""
    rstrip: bool = False
    normalized: bool = False
    single_word: bool = False
    bos: str = ""
    eos: str = ""
    template: str

    def tokenizer(self) -> tokenizers.Tokenizer:
        made = self.base()
        made.add_special_tokens(
            [
                AddedToken(
                    text,
                    special=True,
                    rstrip=self.rstrip,
                    normalized=self.normalized,
                    single_word=self.single_word,
                )
                for text in self.special
            ]
        )
        made.add_tokens(
            [
                AddedToken(text, special=False, normalized=False)
                for text in (*self.markers, *self.other)
            ]
        )
        return made


_QWEN = """
{%- if tools %}{{- '<|im_start|>system\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}
{{- "# Tools\n<tools>" }}{%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
{{- "\n</tools>\n<tool_call>\n{...}\n</tool_call><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(searching=true, last=messages|length - 1) %}
{%- for message in messages[::-1] %}
  {%- set index = (messages|length - 1) - loop.index0 %}
  {%- if ns.searching and message.role == 'user' and message.content is string and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
    {%- set ns.searching = false %}{%- set ns.last = index %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
  {%- elif message.role == 'assistant' %}
    {%- set content = message.content %}{%- set thought = '' %}
    {%- if message.reasoning_content is string %}{%- set thought = message.reasoning_content %}
    {%- elif '</think>' in content %}
      {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
      {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {%- if loop.index0 > ns.last and thought %}
      {{- '<|im_start|>assistant\n<think>\n' + thought.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
    {%- else %}{{- '<|im_start|>assistant\n' + content }}{%- endif %}
    {%- for call in message.tool_calls or [] %}
      {{- '\n<tool_call>\n{"name": "' }}{{- call.function.name }}{{- '", "arguments": ' }}
      {%- if call.function.arguments is string %}{{- call.function.arguments }}
      {%- else %}{{- call.function.arguments | tojson }}{%- endif %}
      {{- '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
  {%- elif message.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\n<tool_response>\n' }}{{- message.content }}{{- '\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
  {%- endif %}
{%- endfor %}
{%- for document in documents or [] %}{{- '<doc>' ~ document.title ~ ': ' ~ document.text ~ '</doc>' }}{%- endfor %}
{%- if note is defined %}{{- note }}{%- endif %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"""

_LLAMA = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}{%- set head = messages[0]['content']|trim %}{%- set messages = messages[1:] %}
{%- else %}{%- set head = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools %}{{- "You have these functions:\n\n" }}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\n\n" }}{%- endfor %}{%- endif %}
{{- head }}{{- "<|eot_id|>" }}
{%- for message in messages %}
  {%- if 'tool_calls' in message %}{%- set call = message.tool_calls[0].function %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
    {{- '{"name": "' + call.name + '", ' }}{{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}<|eot_id|>" }}
  {%- elif message.role == "tool" %}
    {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
    {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
    {%- else %}{{- message.content }}{%- endif %}{{- "<|eot_id|>" }}
  {%- else %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"""

_MISTRAL = """{{- bos_token }}
{%- if messages[0].role == 'system' %}{%- set head = messages[0].content %}{%- set talk = messages[1:] %}
{%- else %}{%- set talk = messages %}{%- endif %}
{%- for message in talk %}
  {%- if message.role == 'user' %}
    {%- if tools and loop.last %}{{- '[AVAILABLE_TOOLS] ' }}{{- tools | tojson }}{{- '[/AVAILABLE_TOOLS]' }}{%- endif %}
    {%- if head is defined and loop.first %}{{- '[INST] ' + head + '\n\n' + message.content + '[/INST]' }}
    {%- else %}{{- '[INST] ' + message.content + '[/INST]' }}{%- endif %}
  {%- elif message.tool_calls is defined and message.tool_calls %}
    {{- '[TOOL_CALLS] [' }}{%- for call in message.tool_calls %}{%- set out = call.function | tojson %}
      {{- out[:-1] }}{{- ', "id": "' + call.id + '"}' }}{{- ', ' if not loop.last else ']' + eos_token }}{%- endfor %}
  {%- elif message.role == 'assistant' %}{{- ' ' + message.content | trim + eos_token }}
  {%- elif message.role == 'tool' %}{{- '[TOOL_RESULTS] {"content": ' + message.content | string + '}[/TOOL_RESULTS]' }}
  {%- else %}{{- raise_exception('unknown role') }}{%- endif %}
{%- endfor %}"""

_GEMMA = """{{- bos_token }}
{%- for message in messages -%}
{%- if message.role == 'system' -%}{{- raise_exception('no system') -}}{%- endif -%}
{%- if message.role == 'assistant' -%}{%- set role = 'model' -%}{%- else -%}{%- set role = message.role -%}{%- endif -%}
{{- '<start_of_turn>' + role + '\n' + (message['content'] | trim) + '<end_of_turn>\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\n' -}}{%- endif -%}"""

_DEEPSEEK = """{%- set ns = namespace(head='', first=true) -%}
{%- for m in messages -%}{%- if m.role == 'system' -%}
{%- if ns.first -%}{%- set ns.head = ns.head + m.content -%}{%- set ns.first = false -%}
{%- else -%}{%- set ns.head = ns.head + '\n\n' + m.content -%}{%- endif -%}{%- endif -%}{%- endfor -%}
{{- bos_token }}{{- ns.head }}
{%- for t in tools or [] -%}{{- '\n## ' + t.function.name + ': ' + (t.function.description or '') + '\n' + (t.function.parameters | tojson) -}}{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}{{- '<｜User｜>' + m.content -}}
{%- elif m.role == 'assistant' and m.tool_calls is defined and m.tool_calls -%}
  {{- '<｜Assistant｜>' -}}{%- if m.content -%}{{- m.content -}}{%- endif -%}
  {{- '<｜tool▁calls▁begin｜>' -}}
  {%- for c in m.tool_calls -%}{{- '<｜tool▁call▁begin｜>' + c.type + '<｜tool▁sep｜>' + c.function.name + '\n```json\n' + c.function.arguments + '\n```<｜tool▁call▁end｜>' -}}{%- endfor -%}
  {{- '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' -}}
{%- elif m.role == 'assistant' -%}{%- set content = m.content -%}
  {%- if '</think>' in content -%}{%- set content = content.split('</think>')[-1] -%}{%- endif -%}
  {{- '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' -}}
{%- elif m.role == 'tool' -%}{{- '<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜><｜tool▁outputs▁end｜>' -}}
{%- endif -%}{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<｜Assistant｜><think>\n' -}}{%- endif -%}"""

_GLM = """[gMASK]<sop>
{%- macro shown(content) -%}
{%- if content is string %}{{- content }}{%- else %}{%- for part in content or [] %}{{- part.text }}{%- endfor %}{%- endif %}
{%- endmacro -%}
{%- if tools -%}<|system|>
# Tools
{% for tool in tools %}{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}{%- endif -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}<|user|>
{% set content = shown(m.content) %}{{ content }}{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not content.endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}<|assistant|>
{%- set thought = '' %}{%- set content = shown(m.content) %}
{%- if m.reasoning_content is string %}{%- set thought = m.reasoning_content %}{%- endif %}
{%- if thought -%}{{ '\n<think>' + thought.strip() + '</think>' }}{%- else -%}{{ '\n<think></think>' }}{%- endif -%}
{%- if content.strip() -%}{{ '\n' + content.strip() }}{%- endif -%}
{% for call in m.tool_calls or [] %}{% set f = call.function %}{{ '\n<tool_call>' + f.name }}
{% for k, v in f.arguments.items() %}<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}</tool_call>{% endfor %}
{%- elif m.role == 'tool' -%}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|observation|>' }}{%- endif %}
{{- '\n<tool_response>\n' }}{{- m.content }}{{- '\n</tool_response>' }}
{%- elif m.role == 'system' -%}<|system|>
{{ shown(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}"""

_PHI = """{% for message in messages %}{{ '<|' + message['role'] + '|>' + '\n' + message['content'] + '<|end|>\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}"""

_T5 = """{% for m in messages %}{{ bos_token }}{{ m.role | upper }}: {{ m.content }}{{ eos_token }}{% endfor %}
{%- if add_generation_prompt %}{{ bos_token }}ASSISTANT:{% endif %}"""

_TAGS = """{%- for m in messages %}{{- '<|im_start|>' ~ m.role ~ '\n' }}{% set text %}{{ m.content | replace('~~', '') }}{% endset %}
{{- text }}{{- '<|im_end|>\n' }}
{%- for c in m.tool_calls or [] %}{{- '<tool_call>' + c.function.name }}{%- for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}</{{ k }}>{%- endfor %}{{- '</tool_call>' }}{%- endfor %}
{%- endfor %}{{ tools | map(attribute='function') | map(attribute='name') | join('<|sep|>') if tools else '' }}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""

FAMILIES = {
    "qwen": Family(
        base=byte_level,
        special=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
        markers=(
            *("<think>", "</think>", "<tool_call>", "</tool_call>"),
            *("<tool_response>", "</tool_response>"),
        ),
        other=('"}, "', '", "description": "'),
        eos="<|im_end|>",
        template=_QWEN,
    ),
    "llama": Family(
        base=byte_level,
        special=(
            *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
            *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
        ),
        bos="<|begin_of_text|>",
        eos="<|eot_id|>",
        template=_LLAMA,
    ),
    "mistral": Family(
        base=metaspace,
        special=(
            *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"),
            *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ),
        bos="<s>",
        eos="</s>",
        template=_MISTRAL,
    ),
    "tekken": Family(
        base=byte_level,
        special=(
            *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]"),
            *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ),
        bos="<s>",
        eos="</s>",
        template=_MISTRAL,
    ),
    "gemma": Family(
        base=plain_spaces,
        special=("<bos>", "<eos>", "<unk>", "<start_of_turn>", "<end_of_turn>"),
        other=("\n\n", "<h1>", "</h1>", "<table>"),
        bos="<bos>",
        eos="<eos>",
        template=_GEMMA,
    ),
    "deepseek": Family(
        base=byte_level,
        special=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
        markers=(
            *("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "<｜tool▁sep｜>"),
            *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>"),
            *("<｜tool▁call▁end｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
            *("<｜tool▁output▁begin｜>", "<｜tool▁output▁end｜>"),
        ),
        bos="<｜begin▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        template=_DEEPSEEK,
    ),
    "glm": Family(
        base=byte_level,
        special=(
            *("[gMASK]", "<sop>", "<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>"),
            *("<|observation|>", "/nothink"),
        ),
        markers=(
            *("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>"),
            *("<arg_value>", "</arg_value>", "<tool_response>", "</tool_response>"),
        ),
        eos="<|endoftext|>",
        template=_GLM,
    ),
    "phi": Family(
        base=prepending,
        special=("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "</s>"),
        rstrip=True,
        eos="<|endoftext|>",
        template=_PHI,
    ),
    "t5": Family(
        base=unigram,
        special=("<s>", "</s>", "<unk>"),
        normalized=True,
        bos="<s>",
        eos="</s>",
        template=_T5,
    ),
    "tags": Family(
        base=byte_level,
        special=("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|sep|>"),
        markers=("<think>", "</think>", "<tool_call>", "</tool_call>"),
        eos="<|im_end|>",
        template=_TAGS,
    ),
    "overlapping": Family(
        base=byte_level,
        special=("<|im_start|>", "<|im_end|>", "|><|", "<|im_end|>!", "☃"),
        eos="<|im_end|>",
        template=_TAGS,
    ),
}


@cache
def tokenizer_of(family: str) -> str:
    """The family's `tokenizer.json`."""
    return FAMILIES[family].tokenizer().to_str()


def renderer_with(
    template: str, tokenizer: Any, *, bos: str = "", eos: str = "", trusted: bool = False
) -> ChatTemplateRenderer:
    info = ModelInfo(
        name="m",
        engine="test",
        chat_template=template,
        bos_token=bos or None,
        eos_token=eos or None,
    )
    context = ModelContext(info=info, tokenizer=tokenizer, trust_request_chat_template=trusted)
    return ChatTemplateRenderer(ChatTemplateConfig(), context)


def renderer_of(family: str, tokenizer: Any) -> ChatTemplateRenderer:
    known = FAMILIES[family]
    return renderer_with(known.template, tokenizer, bos=known.bos, eos=known.eos)


class Kit:
    """What the tests of this folder share."""

    families = FAMILIES
    renderer = staticmethod(renderer_of)
    renderer_with = staticmethod(renderer_with)

    @staticmethod
    @cache
    def json_tokenizer(family: str) -> JsonTokenizer:
        """The tokenizer of `backends/remote`."""
        return JsonTokenizer(tokenizers.Tokenizer.from_str(tokenizer_of(family)))

    @staticmethod
    @cache
    def hf_tokenizer(family: str) -> HfTokenizer:
        """The tokenizer of `backends/vllm` and `backends/trtllm`."""
        backend = tokenizers.Tokenizer.from_str(tokenizer_of(family))
        return HfTokenizer(SimpleNamespace(backend_tokenizer=backend))

    @staticmethod
    def turn(items: Any, **turn: Any) -> Turn:
        return Turn(items=decode_items(items), **turn)


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit
