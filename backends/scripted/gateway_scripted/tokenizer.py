"""The scripted engine's tokenizer: no vocabulary file, any text, exact bytes.

A token is one marker of a model family (`<|im_start|>`, `<tool_call>`, `<|channel|>`), or one to four bytes of a word,
which its id encodes: ids below `MARKERS` are markers, followed by all single bytes, all pairs, and so on. Ids are
therefore the same in every process. As in real vocabularies, multi-byte characters are sometimes split, and a marker
without its own id is split in the middle.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gateway.sdk import AddedToken
from gateway.sdk.engines import any_of, found_in

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
"""Tokens that are removed from the text if special tokens are skipped."""

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
"""Markers with their own id that stay in the text nevertheless, as in Qwen's vocabulary."""

MARKERS: Final = 1024
"""Number of ids reserved for markers."""

_WIDTH = 4
_FIRST = (0, MARKERS, MARKERS + 256, MARKERS + 256 + 256**2, MARKERS + 256 + 256**2 + 256**3)
"""The first id of the tokens with that many bytes (index 0 is unused)."""

_LONGEST_WORD: Final = 65_536
"""Maximum length of a word, a multiple of `_WIDTH`: one of letters in ASCII has the tokens that it would have as one."""
_WORD = re.compile(r" ?\w+| ?[^\w\s]+|\s+")


class ScriptedTokenizer:
    """Implements `gateway.sdk.Tokenizer`. Immutable, so one instance can be shared by all models.

    `markers` are further tokens with their own id, which are kept in the text.
    """

    def __init__(self, markers: Sequence[str] = ()) -> None:
        known = dict.fromkeys((*CONTROL_TOKENS, *VISIBLE_TOKENS))
        known.update(dict.fromkeys(marker for marker in markers if marker))
        if len(known) > MARKERS:
            raise ValueError(f"at most {MARKERS} markers, not {len(known)}")
        self._ids = {text: number for number, text in enumerate(known)}
        self.added_tokens = {
            text: AddedToken(id=number, special=number < len(CONTROL_TOKENS), divides=True)
            for text, number in self._ids.items()
        }
        self._marker_bytes = [text.encode() for text in known]
        self._longest = max(map(len, known))
        marker = any_of(list(known), overlapping=False)
        assert marker is not None, "there are markers"
        self._marker = marker

    @property
    def vocab_size(self) -> int:
        """The largest id plus one."""
        return _FIRST[_WIDTH] + (1 << 8 * _WIDTH)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        """Token ids of `text`. `add_special_tokens` has no effect, since no token is required at the start of a text.

        A lone surrogate, which has no UTF-8 encoding, becomes a question mark.
        """
        ids: list[int] = []
        at = 0
        for found in found_in(text, self._marker, longest=self._longest):
            self._add_words(ids, text, at, found.start())
            ids.append(self._ids[found[0]])
            at = found.end()
        self._add_words(ids, text, at, len(text))
        return ids

    def _add_words(self, ids: list[int], text: str, at: int, end: int) -> None:
        """Add the ids of a part of a text that has no marker."""
        if end - at <= _LONGEST_WORD:
            words = iter(_WORD.findall(text, at, end))
        else:  # no word is longer, so that none is read for long without a pause
            words = _words(text, at, end)
        for word in words:
            data = word.encode("utf-8", "replace")
            for start in range(0, len(data), _WIDTH):
                piece = data[start : start + _WIDTH]
                ids.append(_FIRST[len(piece)] + int.from_bytes(piece, "big"))

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of `token_ids`; malformed UTF-8 becomes replacement characters."""
        parts = (
            self.token_bytes(token_id)
            for token_id in token_ids
            if not (skip_special_tokens and self.is_control(token_id))
        )
        return b"".join(parts).decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token. Raises ValueError for an id outside the vocabulary."""
        if 0 <= token_id < len(self._marker_bytes):
            return self._marker_bytes[token_id]
        if MARKERS <= token_id < self.vocab_size:
            width = next(w for w in range(_WIDTH, 0, -1) if token_id >= _FIRST[w])
            return (token_id - _FIRST[width]).to_bytes(width, "big")
        raise ValueError(f"{token_id} is not a token id of this vocabulary")

    def is_control(self, token_id: int) -> bool:
        """Whether the token is removed from a text that skips special tokens."""
        return 0 <= token_id < len(CONTROL_TOKENS)

    def id_of(self, marker: str) -> int:
        """The id of a token with its own id. Raises KeyError for any other text."""
        return self._ids[marker]


def _words(text: str, at: int, end: int) -> Iterator[str]:
    while (word := _WORD.match(text, at, min(end, at + _LONGEST_WORD))) is not None:
        at = word.end()
        yield word[0]
