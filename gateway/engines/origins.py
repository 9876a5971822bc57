"""Encoding prompts so that only the template can produce control tokens; all other text is encoded as ordinary text.

A tokenizer recognizes its special tokens, and other added ones such as `<tool_call>`, anywhere in a text. A renderer
therefore states the origin of each part of a prompt, and `OriginEncoder` ensures that

- a special token, or one that begins or ends a message, comes only from text of the template,
- an added token that output formats use for calls, results and reasoning comes only from text of the template and of
the
  assistant's messages,
- all other text has the same ids as when the whole prompt is encoded.

The ids of a conversation are cached by segments: a prompt is cut after certain control tokens of the template
(`AddedToken.divides`), about once for each message. If a prompt has segments in common with earlier prompts, only the
text from its first to its last new segment is encoded.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from gateway.engines.markers import KNOWN, is_marker, is_turn_marker
from gateway.engines.text_search import AT_ONCE, any_of, found_in
from gateway.engines.token_cache import TokenCache
from gateway.plugins.protocols import AddedToken, KnowsAddedTokens, Tokenizer


class Origin(IntEnum):
    """The origin of a part of a prompt."""

    TEMPLATE = 0
    """Written by the renderer: markup, whose control tokens are encoded as such."""
    ASSISTANT = 1
    """The assistant's messages. Markers in them are encoded as control tokens, special tokens are not."""
    OUTSIDE = 2
    """Anything else: messages, results, documents, names, descriptions, schemas, arguments, variables."""


Part: TypeAlias = tuple[str, Origin]

# Looking up an enumeration's member in its class takes several times as long as looking up a name
# of the module.
_TEMPLATE, _OUTSIDE = Origin.TEMPLATE, Origin.OUTSIDE

_NO_WORD = "\U0010fffd\u0378"
"""Characters that are in no vocabulary. They are encoded as bytes, or as the unknown token."""
_MAX_TOKENS = 1_000_000
_GAP = 1000
"""Number of consecutive undefined ids after which a vocabulary is considered to end."""
_ANCHORS = ("\n", "a", ".")
_LEAST_KEPT = 1000
"""Length in characters below which a prompt is encoded as a whole: looking up its segments would take as long."""
_LONG_PART = 10_000
"""Length in characters above which the division of a template's text is not cached."""


class _Match(NamedTuple):
    start: int
    end: int
    text: str


class _Divided(NamedTuple):
    """A text of the template, divided after its last token that divides prompts."""

    head: str
    token: str
    rest: str


class _Segment(NamedTuple):
    """A segment of a prompt. Its ids do not depend on other segments."""

    before: str
    """The control token before it; empty at the start of a prompt."""
    parts: list[Part]
    """The parts of the segment. They end with a control token, except in the last segment."""


class _Cuts(NamedTuple):
    """The segments of a prompt, by their keys. Segments whose ids are cached are not made."""

    keys: list[tuple[object, ...]]
    """The key of each segment: the scope of the prompt, and everything on which the segment's ids depend."""
    ends: list[tuple[int, _Divided | None]]
    """The end of each segment: the index of the part that it ends in, with the division of this part. For a segment
    that ends with the prompt, the number of parts, with None."""


class OriginEncoder:
    """Encodes prompts with one tokenizer. Thread-safe if the tokenizer is. Takes one `encode` and about one check per
    token; several times as long if untrusted text contains control tokens.

    `template` is the source of the chat template, if any: the added tokens in it are markers, and so are those in
    `markers`. Added tokens in `placeholders`, which stand for images, are only accepted from the template. Token ids
    are cached for later prompts in at most `cache_bytes` bytes.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        template: str = "",
        markers: Iterable[str] = (),
        placeholders: Iterable[str] = (),
        cache_bytes: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        places = frozenset(placeholders)
        added = _added_tokens(tokenizer, template, [*markers, *places])
        named = places.union(markers)
        self._protected: dict[str, AddedToken] = {
            text: token
            for text, token in added.items()
            if text and (token.special or text in named or is_marker(text, template))
        }
        self._strict = frozenset(
            text
            for text, token in self._protected.items()
            if token.special or text in places or is_turn_marker(text)
        )
        """Tokens that are only accepted from the template, not from messages, even the assistant's."""
        ids = {token.id for token in self._protected.values()}
        self._unknown = frozenset(ids.intersection(tokenizer.encode(_NO_WORD) if ids else ()))
        """Ids that stand for characters outside the vocabulary. They also result from ordinary text."""
        self._ids = frozenset(ids - self._unknown)
        self._unknown_texts = [
            t for t, token in self._protected.items() if token.id in self._unknown
        ]
        checked = [t for t, token in self._protected.items() if token.id in self._ids]
        self._overlapping = _overlap(checked, added)
        """Whether one added token can begin inside another, so that untrusted text could take up a part of a token that
        the template has written."""
        self._longest = max(map(len, checked), default=0)
        self._pattern = any_of(checked, overlapping=False)
        self._everywhere = any_of(checked, overlapping=True) if self._overlapping else None
        self._text_of = {token.id: text for text, token in reversed(self._protected.items())}
        self._spelled: dict[int, tuple[int, ...]] = {}
        self._short: dict[bytes, int] | None = None
        self._in_template = lru_cache(maxsize=4096)(self._ids_in)
        self._dividing = frozenset(
            text
            for text, token in self._protected.items()
            if token.divides and token.id in self._ids and not self._overlapping
        )
        self._kept_division = lru_cache(maxsize=4096)(self._division)
        self._cache = TokenCache(cache_bytes) if cache_bytes and self._dividing else None

    def ordinary(self, text: str) -> list[int]:
        """The token ids of a text from outside. Control tokens in it are encoded as ordinary text."""
        return self.encode([(text, Origin.OUTSIDE)])

    def encode(self, parts: Sequence[Part], *, scope: str | None = None) -> list[int]:
        """The token ids of the prompt that consists of `parts`. They are cached for other prompts with the same
        `scope`, unless it is None."""
        cache, ids = self._cache, None
        long = sum([len(part) for part, _ in parts]) >= _LEAST_KEPT
        if long and cache is not None and scope is not None:
            ids = self._encode_segments(parts, scope, cache)
        return self._encode_whole(parts) if ids is None else ids

    def _encode_whole(self, parts: Sequence[Part]) -> list[int]:
        text = "".join([part for part, _ in parts])
        ids = self._tokenizer.encode(text)
        found: list[int] = []
        for start in range(0, len(ids), AT_ONCE):  # in pieces, between which other threads can run
            some = ids if len(ids) <= AT_ONCE else ids[start : start + AT_ONCE]
            found += filter(self._ids.__contains__, some)
        unknown = any(unknown in text for unknown in self._unknown_texts)
        if not unknown and not self._overlapping and found == self._expected_controls(text, parts):
            return ids
        return self._encode_protected(_Prompt(text, parts), ids, found)

    def _cuts(self, parts: Sequence[Part], scope: str) -> _Cuts:
        keys: list[tuple[object, ...]] = []
        ends: list[tuple[int, _Divided | None]] = []
        key: list[object] = [scope, ""]
        for number, (text, origin) in enumerate(parts):
            if origin is not _TEMPLATE:
                # A number instead of the origin: hashing a member of an enumeration is slow.
                key += (1 if origin is _OUTSIDE else 2, text)
                continue
            long = len(text) > _LONG_PART
            divided = self._division(text) if long else self._kept_division(text)
            if divided is None:
                key.append(text)
                continue
            head, token, rest = divided
            key.append(head)
            keys.append(tuple(key))
            ends.append((number, divided))
            key = [scope, token, rest] if rest else [scope, token]
        if len(key) > 2:
            keys.append(tuple(key))
            ends.append((len(parts), None))
        return _Cuts(keys, ends)

    def _segments(self, parts: Sequence[Part], cuts: _Cuts, first: int, end: int) -> list[_Segment]:
        """The segments with the indices from `first` up to, but not including, `end`."""
        segments: list[_Segment] = []
        start, last = cuts.ends[first - 1] if first else (-1, None)
        for stop, divided in cuts.ends[first:end]:
            before, rest = ("", "") if last is None else (last.token, last.rest)
            own: list[Part] = [(rest, _TEMPLATE)] if rest else []
            own += parts[start + 1 : stop]
            if divided is not None:
                own.append((divided.head, _TEMPLATE))
            segments.append(_Segment(before, own))
            start, last = stop, divided
        return segments

    def _division(self, text: str) -> _Divided | None:
        last = None
        for match in self._matches(text):
            if match.text in self._dividing:
                last = match
        return last and _Divided(text[: last.end], last.text, text[last.end :])

    def _encode_segments(
        self, parts: Sequence[Part], scope: str, cache: TokenCache
    ) -> list[int] | None:
        """The token ids of a prompt, with the use of the cache; None if the prompt must be encoded as a whole."""
        cuts = self._cuts(parts, scope)
        found = cache.get_all(cuts.keys)
        if None in found:
            first, end = found.index(None), len(found)
            while found[end - 1] is not None:
                end -= 1
            segments = self._segments(parts, cuts, first, end)
            made = self._ids_of(segments)
            if made is None:
                return None
            for key, segment, ids in zip(cuts.keys[first:end], segments, made, strict=True):
                cache.keep(key, [scope, *(text for text, _ in segment.parts)], ids)
            found[first:end] = made
        together = array("I")
        for known in found:
            together.extend(known or ())
        return together.tolist()

    def _ids_of(self, segments: Sequence[_Segment]) -> list[list[int]] | None:
        """The ids of each of several adjacent segments, from one call of the tokenizer. None if the tokenizer does not
        find exactly the control tokens that are in the text."""
        before = segments[0].before
        parts = [part for segment in segments for part in segment.parts]
        if before:
            parts.insert(0, (before, _TEMPLATE))
        text = "".join([part for part, _ in parts])
        if any(unknown in text for unknown in self._unknown_texts):
            return None
        ids = self._tokenizer.encode(text)
        places = [place for place, token in enumerate(ids) if token in self._ids]
        matches = list(self._matches(text))
        if [ids[place] for place in places] != [self._protected[each.text].id for each in matches]:
            return None
        if before and places[0] != 0:
            return None
        allowed: list[bool] | None = None
        own = sum(len(self._in_template(part)) for part, origin in parts if origin is _TEMPLATE)
        if own != len(matches):  # some are not written by the template
            prompt = _Prompt(text, parts)
            allowed = [self._allows(prompt, match) for match in matches]
        made: list[list[int]] = []
        at = len(before)
        number = place = 1 if before else 0
        for segment in segments:
            at += sum([len(part) for part, _ in segment.parts])
            start, start_number = place, number
            while number < len(matches) and matches[number].end <= at:
                number += 1
            place = len(ids) if at == len(text) else places[number - 1] + 1
            own_ids = ids[start:place]
            if allowed is not None:
                own_ids = self._replaced(own_ids, allowed[start_number:number])
            made.append(own_ids)
        return made

    def _expected_controls(self, text: str, parts: Sequence[Part]) -> Sequence[int]:
        """The control tokens that the prompt `text`, which consists of `parts`, may contain."""
        own: list[int] = []
        for part, origin in parts:
            if origin is _TEMPLATE:
                own += self._in_template(part)
        if self._number_of_matches(text) == len(own):
            return own  # all are written by the template, and no token takes up a part of another: none overlap
        expected: list[int] = []
        run: list[Part] = []
        for each in parts:
            if each[1] is not _OUTSIDE:
                run.append(each)
            elif run and each[0]:
                expected += self._controls_of(run)
                run = []
        return [*expected, *self._controls_of(run)] if run else expected

    def _controls_of(self, run: Sequence[Part]) -> Sequence[int]:
        """The control tokens in adjacent parts of the template and the assistant."""
        text = "".join([part for part, _ in run])
        if all(origin is _TEMPLATE for _, origin in run):
            return self._in_template(text)
        prompt = _Prompt(text, run)
        return [
            self._protected[match.text].id
            for match in self._matches(text)
            if self._allows(prompt, match)
        ]

    def _ids_in(self, text: str) -> tuple[int, ...]:
        return tuple(self._protected[match.text].id for match in self._matches(text))

    def _number_of_matches(self, text: str) -> int:
        if self._pattern is None:
            return 0
        if len(text) <= AT_ONCE:
            return len(self._pattern.findall(text))
        return sum(1 for _ in found_in(text, self._pattern, longest=self._longest))

    def _matches(self, text: str) -> Iterator[_Match]:
        if self._pattern is not None:
            for found in found_in(text, self._pattern, longest=self._longest):
                yield _Match(found.start(), found.end(), found[0])

    def _allows(self, prompt: _Prompt, match: _Match) -> bool:
        """Whether the control token `match` is accepted from the origin of its text."""
        strict = self._overlapping or match.text in self._strict
        most = Origin.TEMPLATE if strict else Origin.ASSISTANT
        return prompt.origin(match.start, match.end) <= most

    def _encode_protected(self, prompt: _Prompt, ids: list[int], found: list[int]) -> list[int]:
        text = prompt.text
        unknown = self._spells_unknown(prompt)
        if self._everywhere is not None:
            everywhere = found_in(text, self._everywhere, longest=self._longest)
            spelt = (_Match(at.start(), at.end(1), at[1]) for at in everywhere)
            if not unknown and all(self._allows(prompt, match) for match in spelt):
                return ids
            return self._in_pieces(prompt)
        matches = list(self._matches(text))
        allowed = [self._allows(prompt, match) for match in matches]
        in_text = [self._protected[match.text].id for match in matches]
        if not unknown and found == in_text:
            return self._replaced(ids, allowed)
        if not unknown and all(allowed) and _is_subsequence(found, in_text):
            return ids  # the tokenizer recognizes only some of them
        return self._in_pieces(prompt)

    def _spells_unknown(self, prompt: _Prompt) -> bool:
        """Whether any text contains the unknown token."""
        return any(
            prompt.origin(found.start(), found.end()) > Origin.TEMPLATE
            for unknown in self._unknown_texts
            for found in re.finditer(re.escape(unknown), prompt.text)
        )

    def _replaced(self, ids: list[int], allowed: Sequence[bool]) -> list[int]:
        """`ids` with disallowed control tokens replaced by ordinary tokens of their text; `allowed` is aligned with
        `ids`."""
        made: list[int] = []
        verdicts = iter(allowed)
        for token in ids:
            if token in self._ids and not next(verdicts):
                made += self._spell(token)
            else:
                made.append(token)
        return made

    def _in_pieces(self, prompt: _Prompt) -> list[int]:
        """Encode the text between the template's control tokens separately, and replace control tokens found in it."""
        made: list[int] = []
        at, before = 0, ""
        for match in self._trusted(prompt):
            made += self._piece(before, prompt.text[at : match.start])
            at, before = match.end, match.text
        return made + self._piece(before, prompt.text[at:])

    def _trusted(self, prompt: _Prompt) -> Iterator[_Match]:
        """The control tokens that are accepted from their origins. Text from outside is not searched."""
        for start, end in prompt.inside():
            run = prompt.text[start:end]
            for found in self._matches(run):
                match = _Match(start + found.start, start + found.end, found.text)
                if self._allows(prompt, match):
                    yield match

    def _piece(self, before: str, text: str) -> list[int]:
        """The ids of a control token, and of the text after it, encoded in this context."""
        head = [self._protected[before].id] if before else []
        if not text:
            return head
        first, *more = self._without_unknown(text)
        ids = self._tokenizer.encode(before + first)
        ids = ids[1:] if head and ids[:1] == head else self._tokenizer.encode(first)
        for piece in more:
            ids += self._tokenizer.encode(piece)
        made = head
        for token in ids:
            if token in self._ids:
                made += self._spell(token)
            else:
                made.append(token)
        return made

    def _without_unknown(self, text: str) -> list[str]:
        """Split the text so that no piece contains the unknown token."""
        cuts = sorted(
            {
                found.start() + 1
                for unknown in self._unknown_texts
                for found in re.finditer(re.escape(unknown), text)
            }
        )
        return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def _spell(self, token: int) -> tuple[int, ...]:
        """The text of a control token, encoded as ordinary tokens."""
        spelled = self._spelled.get(token)
        if spelled is None:
            spelled = self._spelled[token] = self._spelling(self._text_of[token])
        return spelled

    def _spelling(self, text: str) -> tuple[int, ...]:
        """Encode the text in two parts, so that it is no longer one token. If the parts contain control tokens, encode
        single characters."""
        data = text.encode()
        good: list[list[int]] = []
        for at in (2, 1, len(text) - 1):
            if not 0 < at < len(text):
                continue
            ids = self._plain(text[:at]) + self._plain(text[at:])
            if self._ids.isdisjoint(ids):
                if self._bytes(ids) == data:
                    return tuple(ids)
                good.append(ids)
        return tuple(self._of_bytes(data) or (good[0] if good else ()))

    def _of_bytes(self, data: bytes) -> list[int]:
        """Encode `data` as tokens of single characters or bytes, from the whole vocabulary. Empty if some are
        missing."""
        if self._short is None:
            self._short = self._find_short()
        short = self._short
        if data in short:
            return [short[data]]
        ids = [short.get(data[at : at + 1]) for at in range(len(data))]
        return [token for token in ids if token is not None] if None not in ids else []

    def _find_short(self) -> dict[bytes, int]:
        """The ordinary tokens of at most four bytes (one character), by their bytes."""
        found: dict[bytes, int] = {}
        missing = 0
        for token in range(_MAX_TOKENS):
            try:
                value = self._tokenizer.token_bytes(token)
            except ValueError:
                missing += 1
                if missing > _GAP:
                    break
                continue
            missing = 0
            if len(value) <= 4 and token not in self._ids and token not in self._unknown:
                found.setdefault(value, token)
        return found

    def _plain(self, text: str) -> list[int]:
        """The token ids that a text has inside another text, without a leading space."""
        ids = self._tokenizer.encode(text)
        data = text.encode()
        if self._bytes(ids) == data:
            return ids
        for anchor in _ANCHORS:
            longer = self._tokenizer.encode(anchor + text)
            for count in range(1, len(longer)):
                if self._bytes(longer[:count]).lstrip(b" ") == anchor.encode():
                    if self._bytes(longer[count:]) == data:
                        return longer[count:]
                    break
        return ids

    def _bytes(self, ids: Sequence[int]) -> bytes:
        return b"".join(map(self._tokenizer.token_bytes, ids))


class _Prompt:
    """A text with the origin of each part."""

    def __init__(self, text: str, parts: Sequence[Part]) -> None:
        self.text = text
        self._starts: list[int] = []
        self._origins: list[Origin] = []
        at = 0
        for part, origin in parts:
            if part:
                self._starts.append(at)
                self._origins.append(origin)
                at += len(part)

    def origin(self, start: int, end: int) -> Origin:
        """The least trusted origin in `text[start:end]`."""
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1)
        return max(self._origins[first:last])

    def inside(self) -> Iterator[tuple[int, int]]:
        """The ranges of the text that come from the template and the assistant."""
        start = 0
        for at, origin in zip(self._starts, self._origins, strict=True):
            if origin is _OUTSIDE:
                if at > start:
                    yield start, at
                start = -1
            elif start < 0:
                start = at
        if 0 <= start < len(self.text):
            yield start, len(self.text)


def _added_tokens(
    tokenizer: Tokenizer, template: str, markers: Iterable[str]
) -> Mapping[str, AddedToken]:
    """The tokenizer's added tokens, by their text. If it does not list them, well-known tokens are tried."""
    if isinstance(tokenizer, KnowsAddedTokens):
        return tokenizer.added_tokens
    found: dict[str, AddedToken] = {}
    for text in dict.fromkeys(
        (*KNOWN, *markers, *re.findall(r"<[^<>\s]+>|\[[^\[\]\s]+\]", template))
    ):
        ids = tokenizer.encode(text)
        if len(ids) == 1:
            found[text] = AddedToken(id=ids[0], special=True)
    return found


def _overlap(texts: Sequence[str], added: Iterable[str]) -> bool:
    """Whether one of `texts` and another added token can overlap in a text."""
    protected = set(texts)
    heads = {text[:end] for text in texts for end in range(1, len(text))}
    tails = {text[start:] for text in texts for start in range(1, len(text))}
    for text in added:
        size = len(text)
        if any(text[start:] in heads for start in range(1, size)):
            return True
        if any(text[:end] in tails for end in range(1, size)):
            return True
        inner = (text[a:b] for a in range(size) for b in range(a + 1, size + 1) if b - a < size)
        if any(each in protected for each in inner):
            return True
    return False


def _is_subsequence(few: Sequence[int], many: Sequence[int]) -> bool:
    rest = iter(many)
    return all(each in rest for each in few)
