"""Converts a server's token ids to engine outputs: text, tokens, log probabilities and the end of one generation.

Text is decoded here from the tokens' bytes, and stop strings and stop tokens are matched here. Text, tokens and log
probabilities therefore agree, and do not depend on the server. Pure and synchronous.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from gateway.sdk import EngineOutput, FinishReason, Sampling, TokenLogprob, TopLogprob
from gateway.sdk.engines import LOWEST_LOGPROB, StopStrings
from gateway_remote.tokenizer import JsonTokenizer


class SampledToken(NamedTuple):
    """A sampled token with its log probability and its most likely alternatives, best first."""

    token_id: int
    logprob: float
    top: Sequence[tuple[int, float]] = ()


class _HeldToken(NamedTuple):
    """A token whose text is held back. `end` is the offset of its end in the text's bytes."""

    token: SampledToken
    data: bytes
    end: int


class OutputBuilder:
    """State of one generation. Feed it with `add` and `end`; `take` returns what is ready."""

    def __init__(
        self, tokenizer: JsonTokenizer, sampling: Sampling, *, eos_is_last: bool, prompt_tokens: int
    ) -> None:
        """`eos_is_last`: the server ends with the token that ended the output, whichever it is."""
        self._tokenizer = tokenizer
        self._table = tokenizer.shown_of if sampling.skip_special_tokens else tokenizer.bytes_of
        self._eos_is_last = eos_is_last
        self._keeps_stop = sampling.include_stop_str_in_output
        self.stop_token_ids = frozenset(sampling.stop_token_ids)
        self._enders = tokenizer.special_ids | self.stop_token_ids
        self._stops = StopStrings(sampling.stop) if any(sampling.stop) else None
        self._min_tokens = sampling.min_tokens or 0
        self._wanted = sampling.logprobs
        self._held: deque[_HeldToken] = deque()
        self._group: list[tuple[SampledToken, bytes]] = []
        """Tokens of an incomplete character."""
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._decode = self._utf8.decode
        self._whole = tokenizer.whole_of
        self._simple = self._stops is None and self._wanted is None
        """Fast path: no stop strings and no log probabilities are needed, so whole characters pass through."""
        self._inside = False
        """Whether the next token's text depends on earlier ones: an incomplete character or an undecided token."""
        self._undecided: list[tuple[SampledToken | None, bytes]] = []
        """A last token that counts as text only if another follows."""
        self._made_bytes = 0
        self._given_bytes = 0
        self._prompt_tokens: int | None = prompt_tokens
        self._cached_tokens: int | None = None
        self._ids: list[int] = []
        self._text = ""
        self._finish: FinishReason | None = None
        self._stop_reason: str | int | None = None
        self._cut = False
        self.count = 0
        """Number of tokens so far."""
        self.complete = False
        """Whether the server's output is complete."""

    @property
    def finished(self) -> bool:
        """Whether the finish reason is known."""
        return self._finish is not None

    def usage(self, prompt_tokens: int | None, cached_tokens: int | None) -> None:
        """Set the server's token counts."""
        if prompt_tokens:
            self._prompt_tokens = prompt_tokens
        if cached_tokens is not None:
            self._cached_tokens = cached_tokens

    def add(
        self,
        ids: Sequence[int],
        scored: Sequence[SampledToken] | None = None,
        *,
        before: bytes = b"",
        finish: FinishReason | None = None,
        stop_reason: str | int | None = None,
    ) -> None:
        """Add tokens, and the finish reason with the last ones. `scored`, if given, has the length of `ids`.

        `before` is text of tokens whose ids the server did not return; it precedes the last token.
        """
        if self._finish is not None:
            # A stop string was found here, but the server continued.
            self._cut = self._cut or bool(ids) or finish is not None
            return
        self.count += len(ids)
        if self._simple and finish is None and len(ids) == 1:
            token = ids[0]
            text = self._whole[token] if token < len(self._whole) else None
            if text is not None and not self._inside and token not in self._enders:
                self._ids.append(token)
                self._text += text
                return
        if self._wanted is not None:
            self._add_scored(ids, scored, before, finish, stop_reason)
        else:
            data = self._bytes_of(ids)
            if before:
                last = len(self._table_bytes(ids[-1])) if ids else 0
                data = data[: len(data) - last] + before + data[len(data) - last :]
            if self._undecided:
                data = self._undecided.pop()[1] + data
            if ids and (finish is not None or ids[-1] in self._enders):
                data = self._without_ender(ids[-1], data, finish, stop_reason)
            self._ids += ids
            self._search(self._decode(data))
            self._inside = bool(self._undecided or self._utf8.getstate()[0])
        if finish is not None:
            self.end(finish, stop_reason)

    def add_text(self, text: str) -> None:
        """Add text from a server that returns no token ids. The text is re-encoded."""
        if self._finish is None and text:
            ids = self._tokenizer.encode(text)
            self.count += len(ids)
            self._ids += ids
            self._text += text

    def cut(self) -> None:
        """End the output and ignore what the server adds."""
        self._cut = True

    def end(self, finish: FinishReason, stop_reason: str | int | None) -> None:
        """Record the end of the server's output."""
        if self._finish is not None:
            return
        if self._undecided:
            token, data = self._undecided.pop()
            if finish != "stop" or self._keeps_stop:
                self._feed(token, data)
            else:
                self._feed(token, b"")
        if self._finish is None:
            self._finish, self._stop_reason = finish, stop_reason
            if self._stops is not None:
                self._text += self._stops.rest()
            self._release_all(None)

    def take(self) -> EngineOutput | None:
        """Return the available output, or None. The last one has the finish reason, once `complete`."""
        finish = self._finish
        if finish is None and self._simple and self._prompt_tokens is None:
            if not self._ids and not self._text:
                return None
            output = EngineOutput(text=self._text, token_ids=self._ids)
            self._text, self._ids = "", []
            return output
        if finish is not None:
            if not (self.complete or self._cut):
                return None
        elif not self._ids and not self._text and not self._held:
            return None
        output = EngineOutput(text=self._text, token_ids=self._ids)
        if self._wanted is not None and not self._ids:
            output.logprobs = self._released()
            output.token_ids = [token.token_id for token in output.logprobs]
            if finish is None and not output.token_ids and not output.text:
                return None
        self._text, self._ids = "", []
        if self._prompt_tokens is not None:
            output.prompt_tokens, self._prompt_tokens = self._prompt_tokens, None
        if finish is not None:
            output.finish_reason = finish
            output.stop_reason = self._stop_reason
            output.cached_tokens = self._cached_tokens
        return output

    def _bytes_of(self, ids: Sequence[int]) -> bytes:
        table = self._table
        try:
            if len(ids) == 1:
                return table[ids[0]]
            return b"".join([table[index] for index in ids])
        except IndexError:
            return b"".join(map(self._table_bytes, ids))

    def _table_bytes(self, token_id: int) -> bytes:
        """The bytes of a token. Ids that pad the vocabulary have none."""
        return self._table[token_id] if 0 <= token_id < len(self._table) else b""

    def _without_ender(
        self, last: int, data: bytes, finish: FinishReason | None, stop_reason: str | int | None
    ) -> bytes:
        """`data` without the bytes of `last` if that token may have ended the output."""
        own = self._table_bytes(last)
        if not own:
            return data
        if finish is None:
            self._undecided.append((None, own))
        elif self._keeps_stop or not self._is_ender(last, finish, stop_reason):
            return data
        return data[: len(data) - len(own)]

    def _is_ender(self, last: int, finish: FinishReason, stop_reason: str | int | None) -> bool:
        if finish != "stop" or isinstance(stop_reason, str):
            return False
        return (
            last in self._enders
            or last == stop_reason
            or (self._eos_is_last and stop_reason is None)
        )

    def _feed(self, token: SampledToken | None, data: bytes) -> None:
        if token is None:
            self._search(self._decode(data))
        else:
            self._search(self._settle(token, data))

    def _add_scored(
        self,
        ids: Sequence[int],
        scored: Sequence[SampledToken] | None,
        before: bytes,
        finish: FinishReason | None,
        stop_reason: str | int | None,
    ) -> None:
        tokens = scored or [SampledToken(index, LOWEST_LOGPROB) for index in ids]
        for place, token in enumerate(tokens):
            if self._finish is not None:
                return
            last = place == len(tokens) - 1
            data = self._table_bytes(token.token_id)
            if self._undecided:
                held, bytes_held = self._undecided.pop()
                self._feed(held, bytes_held)
                if self._finish is not None:
                    return
            if last and finish is None and data and token.token_id in self._enders:
                self._undecided.append((token, before + data))
                return
            if last and finish is not None and not self._keeps_stop:
                ended = self._is_ender(token.token_id, finish, stop_reason)
                data = b"" if ended else data
            self._feed(token, before + data if last else data)

    def _settle(self, token: SampledToken, data: bytes) -> str:
        """The text that `token` completes. Bytes become text at the end of a character."""
        self._group.append((token, data))
        whole = b"".join(part for _, part in self._group)
        text = codecs.getincrementaldecoder("utf-8")("replace")
        decoded = text.decode(whole)
        if text.getstate()[0] and len(whole) < 64:
            return ""
        encoded = decoded.encode()
        for place, (member, part) in enumerate(self._group):
            own = part if encoded == whole else encoded if place == 0 else b""
            self._made_bytes += len(own)
            self._held.append(_HeldToken(member, own, self._made_bytes))
        self._group.clear()
        return decoded

    def _search(self, text: str) -> None:
        """Emit `text` up to the part that may belong to a stop string."""
        stops = self._stops
        if stops is None:
            self._text += text
            return
        if self.count <= self._min_tokens:
            self._text += stops.rest() + text
            return
        ready, stop, after = stops.feed(text)
        self._text += ready
        if stop is None:
            return
        beyond = len(after.encode())
        if self._keeps_stop:
            self._text += stop
        else:
            beyond += len(stop.encode())
        self._finish, self._stop_reason = "stop", stop
        self._release_all(self._made_bytes - beyond)

    def _release_all(self, text_end: int | None) -> None:
        """Emit all held tokens at the end of the output, with their bytes cut at `text_end` (None: not cut)."""
        for token, _ in self._group:
            self._held.append(_HeldToken(token, b"", self._made_bytes))
        self._group.clear()
        if text_end is None:
            return
        cut: deque[_HeldToken] = deque()
        for held in self._held:
            start = held.end - len(held.data)
            cut.append(held._replace(data=held.data[: max(0, text_end - start)]))
        self._held = cut

    def _released(self) -> list[TokenLogprob]:
        """Take the tokens whose text was emitted or is empty."""
        self._given_bytes += len(self._text.encode())
        ready: list[TokenLogprob] = []
        while self._held and (self._finish is not None or self._held[0].end <= self._given_bytes):
            held = self._held.popleft()
            ready.append(self._logprob(held.token, held.data))
        return ready

    def _logprob(self, token: SampledToken, data: bytes) -> TokenLogprob:
        texts, table = self._tokenizer.text_of, self._tokenizer.bytes_of
        size = len(table)
        return TokenLogprob(
            token.token_id,
            texts[token.token_id] if 0 <= token.token_id < size else "",
            max(token.logprob, LOWEST_LOGPROB),
            data,
            tuple(
                TopLogprob(index, texts[index], max(logprob, LOWEST_LOGPROB), table[index])
                for index, logprob in token.top[: self._wanted]
                if 0 <= index < size
            ),
        )
