"""The scripted engine's tokenizer: no vocabulary file, any text, exact bytes.

A token is one marker of a model family (`<|im_start|>`, `<tool_call>`, `<|channel|>`), or one to four bytes of a word,
whose id says the bytes: ids below `MARKERS` are the markers', then all single bytes, all pairs, and so on. So every
process gives the same ids, a multi-byte character is sometimes cut in two, and a marker without an id of its own is cut
in the middle, as with real vocabularies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

CONTROL_TOKENS: Final = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|return|>",
    "<|call|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|python_tag|>",
    "<｜begin▁of▁sentence｜>",
    "<｜end▁of▁sentence｜>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁outputs▁begin｜>",
    "<｜tool▁outputs▁end｜>",
    "<｜tool▁output▁begin｜>",
    "<｜tool▁output▁end｜>",
    "<｜tool▁sep｜>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_CALLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[ARGS]",
    "[CALL_ID]",
    "<start_of_turn>",
    "<end_of_turn>",
    "<|tool_call>",
    "<tool_call|>",
    "<|channel>",
    "<channel|>",
    '<|"|>',
)
"""Tokens that an engine leaves out of the text where it skips special tokens."""

VISIBLE_TOKENS: Final = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "[THINK]",
    "[/THINK]",
)
"""Markers with an id of their own that stay in the text all the same, as Qwen's vocabulary has them."""

MARKERS: Final = 1024
"""How many ids are set aside for markers."""

_WIDTH = 4
_FIRST = (0, MARKERS, MARKERS + 256, MARKERS + 256 + 256**2, MARKERS + 256 + 256**2 + 256**3)
"""The first id of the tokens with so many bytes (index 0 is unused)."""

_WORD = re.compile(r" ?\w+| ?[^\w\s]+|\s+")


class ScriptedTokenizer:
    """Satisfies `gateway.protocols.Tokenizer`. Immutable, so that one may serve every model.

    `markers` are further tokens with an id of their own, kept in the text.
    """

    def __init__(self, markers: Sequence[str] = ()) -> None:
        known = dict.fromkeys((*CONTROL_TOKENS, *VISIBLE_TOKENS))
        known.update(dict.fromkeys(marker for marker in markers if marker))
        if len(known) > MARKERS:
            raise ValueError(f"at most {MARKERS} markers, not {len(known)}")
        self._ids = {text: number for number, text in enumerate(known)}
        self._marker_bytes = [text.encode() for text in known]
        longest_first = sorted(known, key=len, reverse=True)
        self._split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        return _FIRST[_WIDTH] + (1 << 8 * _WIDTH)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`. There is no token that a text must begin with: `add_special_tokens` adds nothing.

        A lone surrogate, which has no UTF-8, becomes a question mark.
        """
        ids: list[int] = []
        for number, part in enumerate(self._split.split(text)):
            if number % 2:
                ids.append(self._ids[part])
                continue
            for word in _WORD.findall(part):
                data = word.encode("utf-8", "replace")
                for start in range(0, len(data), _WIDTH):
                    piece = data[start : start + _WIDTH]
                    ids.append(_FIRST[len(piece)] + int.from_bytes(piece, "big"))
        return ids

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        parts = (
            self.token_bytes(token_id)
            for token_id in token_ids
            if not (skip_special_tokens and self.is_control(token_id))
        )
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token; raises ValueError for an id outside the vocabulary."""
        if 0 <= token_id < len(self._marker_bytes):
            return self._marker_bytes[token_id]
        if MARKERS <= token_id < self.vocab_size:
            width = next(w for w in range(_WIDTH, 0, -1) if token_id >= _FIRST[w])
            return (token_id - _FIRST[width]).to_bytes(width, "big")
        raise ValueError(f"{token_id} is not a token id of this vocabulary")

    def is_control(self, token_id: int) -> bool:
        """Whether the token is left out of a text that skips special tokens."""
        return 0 <= token_id < len(CONTROL_TOKENS)

    def id_of(self, marker: str) -> int:
        """The id of a token with an id of its own; raises KeyError for any other text."""
        return self._ids[marker]
