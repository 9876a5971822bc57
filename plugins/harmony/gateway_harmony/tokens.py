"""Aligns output tokens with their text: which markers are real, and which tokens are reasoning."""

from __future__ import annotations

import codecs
import sys
from collections import deque
from collections.abc import Sequence

from gateway.sdk import Tokenizer
from gateway_harmony.markers import MARKERS

_MANY_BYTES = -1


class TokenLookup:
    """Cached lookups in a model's tokenizer. One per format; grows up to the size of the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        encoded = {marker: tokenizer.encode(marker) for marker in MARKERS}
        self.markers = {ids[0]: marker for marker, ids in encoded.items() if len(ids) == 1}
        """Markers by token id."""
        self.complete = len(self.markers) == len(MARKERS)
        """Whether every marker is a single token, so that a spelled-out one is prose."""
        self.lengths: dict[int, int] = {}

    def length(self, token_id: int) -> int:
        """Number of characters that a token adds if all are ASCII, else `_MANY_BYTES`."""
        data = self.data(token_id)
        found = self.lengths[token_id] = len(data) if data.isascii() else _MANY_BYTES
        return found

    def data(self, token_id: int) -> bytes:
        """The bytes that a token adds; none for padding ids outside the vocabulary."""
        try:
            return self._tokenizer.token_bytes(token_id)
        except ValueError:
            return b""


class TokenTrack:
    """Aligns the tokens of one generation with its text.

    Engines guarantee that text may lag behind tokens but is never ahead of them. So whenever a character is classified,
    its token is known, and the result does not depend on how the output was split. Offsets are in characters of the
    whole output text.

    Memory is bounded by the tokens whose text is not yet classified.
    """

    __slots__ = (
        "_confirmed",
        "_decoder",
        "_end",
        "_first",
        "_inside",
        "_open",
        "_reasoning_changes",
        "_starts",
        "_unseen",
        "_untrusted",
        "_vocabulary",
        "reasoning",
    )

    def __init__(self, vocabulary: TokenLookup | None) -> None:
        self.reasoning = 0
        """Number of classified tokens that start inside reasoning."""
        self._vocabulary = vocabulary
        self._first = -1
        """Offset of the first token. Prefill of the prompt precedes it, as text without tokens."""
        self._end = 0
        self._starts: deque[int] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = False
        """Whether the last token ended inside a character."""
        self._unseen: dict[int, str] = {}
        """Special tokens not yet found in the text, by offset, in order."""
        self._confirmed: set[int] = set()
        self._untrusted = sys.maxsize
        """Offset from which tokens and text do not match; from there every marker in the text counts."""
        self._inside = False
        self._reasoning_changes: deque[tuple[int, bool]] = deque()

    def push(self, token_ids: Sequence[int], offset: int, text: str) -> None:
        """Add an output's tokens and `text`, which starts at `offset`. Must be called before `text` is classified."""
        vocabulary = self._vocabulary
        if vocabulary is None:
            if len(token_ids) == 1:
                self._starts.append(offset)
                return
            share = len(text) / len(token_ids)
            self._starts.extend(offset + int(index * share) for index in range(len(token_ids)))
            return
        if self._first < 0:
            self._first = self._end = offset
        lengths, markers = vocabulary.lengths, vocabulary.markers
        for token_id in token_ids:
            marker = markers.get(token_id)
            if marker is not None:
                if self._open:
                    self._decode(b"", final=True)
                self._unseen[self._end] = marker
                self._starts.append(self._end)
                self._end += len(marker)
                continue
            self._starts.append(self._end)
            length = lengths.get(token_id)
            if length is None:
                length = vocabulary.length(token_id)
            if length < 0 or self._open:
                self._decode(vocabulary.data(token_id), final=False)
            else:
                self._end += length

    def _decode(self, data: bytes, *, final: bool) -> None:
        said = self._decoder.decode(data, final)
        if "�" in said:
            # Malformed UTF-8: the number of replacement characters differs between engines.
            self._untrusted = min(self._untrusted, self._end)
        self._end += len(said)
        self._open = bool(self._decoder.getstate()[0])

    def is_special(self, marker: str, offset: int) -> bool:
        """Whether `marker`, found at `offset`, is a special token and not ordinary text.

        Must be asked for all markers of the text in order; repeated questions are allowed. True if the tokens cannot
        decide it.
        """
        if self._first < 0 or offset < self._first or offset >= min(self._end, self._untrusted):
            return True
        assert self._vocabulary is not None, "without a vocabulary there is no first token"
        if not self._vocabulary.complete or offset in self._confirmed:
            return True
        if self._unseen.get(offset) == marker:
            del self._unseen[offset]
            self._confirmed.add(offset)
            return True
        first = next(iter(self._unseen), offset)
        if first < offset:
            self._untrusted = first  # a special token is missing at its place
            return True
        return False

    def mark_reasoning(self, offset: int, *, reasoning: bool) -> None:
        """Mark the text from `offset` on as reasoning or not."""
        self._reasoning_changes.append((offset, reasoning))

    def settle(self, offset: int) -> None:
        """Mark the text before `offset` as classified."""
        starts, borders = self._starts, self._reasoning_changes
        while starts and starts[0] < offset:
            start = starts.popleft()
            while borders and borders[0][0] <= start:
                self._inside = borders.popleft()[1]
            if self._inside:
                self.reasoning += 1
        if self._confirmed and not self._unseen:
            self._confirmed = {seen for seen in self._confirmed if seen >= offset}

    def finish(self) -> None:
        """End the output. Tokens whose text was never emitted (half a character, part of a stop string) belong to what
        was open."""
        while self._reasoning_changes:
            self._inside = self._reasoning_changes.popleft()[1]
        if self._inside:
            self.reasoning += sum(start not in self._unseen for start in self._starts)
        self._starts.clear()
