"""Writing a choice as the chunks of a stream: server-sent events, built from precomputed parts and the new content."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.answers.chunks import SSE_END
from gateway.items.logprobs import logprob
from gateway.plugins.protocols import TokenLogprob
from gateway.wire.chat import CompletionUsage, FinishReason, UrlAnnotation
from gateway.wire.common import encode


class ChunkWriter:
    """Writes a choice as chunks. Implements `gateway.answers.chat.assembler.ChoiceWriter`."""

    def __init__(
        self,
        head: bytes,
        index: int,
        *,
        reasoning_fields: Sequence[str],
        logprobs: bool,
        legacy: bool,
        token_ids: list[int] | None,
        includes_usage: bool,
        usage_so_far: Callable[[], CompletionUsage] | None,
        first: bytes = b"",
    ) -> None:
        """`head` is the common beginning of all chunks. `token_ids` collects the token ids that no chunk has shown yet;
        None if they are not shown. `usage_so_far` returns the usage for each chunk, if chunks show it; otherwise, with
        `includes_usage`, each chunk contains a null. `first` is appended to the first chunk."""
        self._legacy = legacy
        self._shows_logprobs = logprobs
        self._token_ids = token_ids
        self._usage = usage_so_far
        self._null_usage = b',"usage":null' if includes_usage else b""
        self._first = first
        self._begin = b'%b{"index":%d,"delta":' % (head, index)
        self._is_plain = not (logprobs or token_ids is not None or usage_so_far is not None)
        self._plain_end = b',"logprobs":null,"finish_reason":null}]' + self._null_usage + SSE_END
        self._text_begin = self._begin + b'{"content":'
        self._text_end = b"}" + self._plain_end
        self._reasoning = [b'"%b":' % name.encode() for name in reasoning_fields]

    def role(self) -> bytes:
        delta = b'{"role":"assistant","content":"","refusal":null}'
        end = b',"logprobs":null,"finish_reason":null}]' + self._usage_now()
        return self._begin + delta + end + self._first + SSE_END

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        if self._is_plain:
            return self._text_begin + encode(text) + self._text_end
        return self._chunk(b'{"content":%b}' % encode(text), logprobs)

    def reasoning(self, text: str) -> bytes:
        encoded = encode(text)
        return self._chunk(b"{%b}" % b",".join([name + encoded for name in self._reasoning]))

    def refusal(self, text: str) -> bytes:
        return self._chunk(b'{"refusal":%b}' % encode(text))

    def call(self, index: int, call_id: str, name: str, *, custom: bool) -> bytes:
        if self._legacy:
            return self._chunk(b'{"function_call":{"name":%b,"arguments":""}}' % encode(name))
        return self._chunk(
            b'{"tool_calls":[{"index":%d,"id":%b,"type":"%b","%b":{"name":%b,"%b":""}}]}'
            % (
                index,
                encode(call_id),
                b"custom" if custom else b"function",
                b"custom" if custom else b"function",
                encode(name),
                b"input" if custom else b"arguments",
            )
        )

    def call_input(self, index: int, text: str, *, custom: bool) -> bytes:
        if self._legacy:
            return self._chunk(b'{"function_call":{"arguments":%b}}' % encode(text))
        form = (
            b'{"tool_calls":[{"index":%d,"custom":{"input":%b}}]}'
            if custom
            else b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}'
        )
        return self._chunk(form % (index, encode(text)))

    def annotate(self, annotations: Sequence[UrlAnnotation]) -> bytes:
        return self._chunk(b'{"annotations":%b}' % encode(annotations))

    def finish(self, reason: FinishReason, stop_reason: str | int | None) -> bytes:
        end = b',"logprobs":null,"finish_reason":"%b"' % reason.encode()
        if stop_reason is not None:
            end += b',"stop_reason":%b' % encode(stop_reason)
        return b"".join(
            (self._begin, b"{}", end, self._tokens(), b"}]", self._usage_now(), SSE_END)
        )

    def _chunk(self, delta: bytes, logprobs: Sequence[TokenLogprob] = ()) -> bytes:
        if self._is_plain:
            return self._begin + delta + self._plain_end
        part = b"null"
        if logprobs and self._shows_logprobs:
            part = b'{"content":%b,"refusal":null}' % encode([*map(logprob, logprobs)])
        return b"".join(
            (
                self._begin, delta, b',"logprobs":', part, b',"finish_reason":null', self._tokens(),
                b"}]", self._usage_now(), SSE_END,
            )
        )  # fmt: skip

    def _tokens(self) -> bytes:
        """Return the field with the token ids that no chunk has shown yet."""
        if self._token_ids is None:
            return b""
        part = b',"token_ids":%b' % encode(self._token_ids)
        self._token_ids.clear()
        return part

    def _usage_now(self) -> bytes:
        if self._usage is None:
            return self._null_usage
        return b',"usage":%b' % encode(self._usage())
