"""Where the output's tokens begin in its text: which markers are real, and which tokens are reasoning."""

from __future__ import annotations

import codecs
import sys
from collections import deque
from collections.abc import Sequence

from gateway.protocols.engine import Tokenizer
from gateway_harmony.markers import MARKERS

_MANY_BYTES = -1


class Vocabulary:
    """What is asked of a model's tokenizer, remembered. One per format; grows to the size of the vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        encoded = {marker: tokenizer.encode(marker) for marker in MARKERS}
        self.markers = {ids[0]: marker for marker, ids in encoded.items() if len(ids) == 1}
        """By token id."""
        self.complete = len(self.markers) == len(MARKERS)
        """Whether all markers are tokens of their own, so that one that is spelt out is prose."""
        self.lengths: dict[int, int] = {}

    def length(self, token_id: int) -> int:
        """How many characters a token adds if all are ASCII, else `_MANY_BYTES`."""
        data = self.data(token_id)
        found = self.lengths[token_id] = len(data) if data.isascii() else _MANY_BYTES
        return found

    def data(self, token_id: int) -> bytes:
        """The bytes that a token adds; none for ids outside the vocabulary, such as pad it."""
        try:
            return self._tokenizer.token_bytes(token_id)
        except ValueError:
            return b""


class TokenTrack:
    """Lays the tokens of one generation along its text.

    The contract of engines is that text may lag behind tokens, and is never ahead of them. So whenever a character is
    judged, the token that it belongs to is known, and the judgement does not depend on how the output was cut. Offsets
    are in characters of the output's whole text.

    Memory: the tokens whose text has not been judged yet.
    """

    __slots__ = (
        "_borders",
        "_confirmed",
        "_decoder",
        "_end",
        "_first",
        "_inside",
        "_open",
        "_starts",
        "_unseen",
        "_untrusted",
        "_vocabulary",
        "reasoning",
    )

    def __init__(self, vocabulary: Vocabulary | None) -> None:
        self.reasoning = 0
        """Tokens judged so far that begin inside reasoning."""
        self._vocabulary = vocabulary
        self._first = -1
        """Where the tokens begin: a prompt's prefill comes before them, as text alone."""
        self._end = 0
        self._starts: deque[int] = deque()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._open = False
        """The last token ended inside a character."""
        self._unseen: dict[int, str] = {}
        """Special tokens that are not yet met in the text, by offset, in order."""
        self._confirmed: set[int] = set()
        self._untrusted = sys.maxsize
        """From here on tokens and text do not fit together; then every marker in the text counts."""
        self._inside = False
        self._borders: deque[tuple[int, bool]] = deque()

    def push(self, token_ids: Sequence[int], offset: int, text: str) -> None:
        """An output brought these tokens, and `text`, which begins at `offset`. Call it before `text` is judged."""
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
            # Malformed UTF-8: engines differ in how many replacement characters they show.
            self._untrusted = min(self._untrusted, self._end)
        self._end += len(said)
        self._open = bool(self._decoder.getstate()[0])

    def confirms(self, marker: str, offset: int) -> bool:
        """Whether `marker`, found at `offset`, is a special token, and not text that spells one.

        Ask for all markers of the text in order; the same may be asked again. True where tokens cannot tell.
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
            self._untrusted = first  # a special token was not where it should be
            return True
        return False

    def border(self, offset: int, *, reasoning: bool) -> None:
        """From `offset` on, the text is reasoning or is not."""
        self._borders.append((offset, reasoning))

    def settle(self, offset: int) -> None:
        """The text before `offset` has been judged."""
        starts, borders = self._starts, self._borders
        while starts and starts[0] < offset:
            start = starts.popleft()
            while borders and borders[0][0] <= start:
                self._inside = borders.popleft()[1]
            if self._inside:
                self.reasoning += 1
        if self._confirmed and not self._unseen:
            self._confirmed = {seen for seen in self._confirmed if seen >= offset}

    def finish(self) -> None:
        """The output has ended. Tokens whose text was held for ever (half a character, the beginning of a stop string)
        belong to what was open."""
        while self._borders:
            self._inside = self._borders.popleft()[1]
        if self._inside:
            self.reasoning += sum(start not in self._unseen for start in self._starts)
        self._starts.clear()
