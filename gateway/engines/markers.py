"""Recognizing added tokens that are markup: markers of messages, calls, results and reasoning."""

from __future__ import annotations

import re
from typing import Final

_CONTROL = re.compile(r"<[|｜].+>|<.+[|｜]>|\[/?[A-Z][A-Z0-9_]*\]|◁[^◁▷]+▷", re.DOTALL)
"""Tokens whose form does not occur in ordinary text: `<|eot_id|>`, `<|channel>`, `<tool_call|>`, `<｜User｜>`, `[/INST]`,
`◁think▷`."""
_NAMED = re.compile(
    r"[<\[]/?[^<>\[\]\s]*(?:think|thought|reason|reflect|tool|func|call|invoke|param(?!>)|arg_|observation|turn|"
    r"response|result|answer)[^<>\[\]\s]*[>\]]",
    re.IGNORECASE,
)
"""Markup by name: `<tool_call>`, `</think>`, `<arg_key>`, `<start_of_turn>`. Does not match HTML, which is in some
vocabularies as tokens."""
_TURN = re.compile(
    r"user|assistant|system|human|\bbot\b|developer|\bINST\b|im_start|im_end|eo[ts]|eom|bos|of.?(?:text|sentence|turn)|"
    r"endoftext|header|role|\bturn\b|^<[|｜](?:start|end)[|｜]>$",
    re.IGNORECASE,
)
"""Words in markers that begin or end a message or a conversation."""
_SHAPED = re.compile(r"<\S+>|\[\S+\]|◁\S+▷")

KNOWN: Final = (
    *("<s>", "</s>", "<unk>", "<pad>", "<bos>", "<eos>", "[INST]", "[/INST]", "<<SYS>>"),
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|end_of_text|>"),
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"),
    *("<start_of_turn>", "<end_of_turn>", "[gMASK]", "<sop>", "<|system|>", "<|user|>"),
    *("<|assistant|>", "<|observation|>", "<|end|>", "<|tool|>", "<｜User｜>", "<｜Assistant｜>"),
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜tool▁calls▁begin｜>"),
    *("<｜tool▁calls▁end｜>", "<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>"),
    *("[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]"),
    *("[/TOOL_RESULTS]", "<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>"),
    *("</tool_call>", "<tool_response>", "</tool_response>", "<|start|>", "<|message|>"),
    *("<|channel|>", "<|call|>", "<|return|>", "<|constrain|>"),
)
"""Control tokens of well-known families, for tokenizers that do not list their own."""


def is_turn_marker(text: str) -> bool:
    """Whether a marker begins or ends a message. Some vocabularies do not declare such tokens as special
    (`<｜User｜>`)."""
    return _TURN.search(text) is not None


def is_marker(text: str, template: str = "") -> bool:
    """Whether the added token `text` is markup, because of its form or because the chat template contains it."""
    if _CONTROL.fullmatch(text) or _NAMED.fullmatch(text):
        return True
    return bool(_SHAPED.fullmatch(text)) and text in template
