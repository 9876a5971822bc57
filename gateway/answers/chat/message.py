"""Writing a choice as one message, for non-streaming answers."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from gateway.items.logprobs import logprob
from gateway.plugins.protocols import TokenLogprob
from gateway.wire import chat as wire
from gateway.wire.chat_messages import CalledCustom, CalledFunction
from gateway.wire.content import Logprob


class WrittenCall:
    """A tool call of the message."""

    def __init__(self, call_id: str, name: str, *, custom: bool) -> None:
        self.call_id = call_id
        self.name = name
        self.custom = custom
        self.input: list[str] = []

    def function(self) -> CalledFunction:
        return CalledFunction(name=self.name, arguments="".join(self.input))

    def tool_call(self) -> wire.MessageToolCall:
        if self.custom:
            custom = CalledCustom(name=self.name, input="".join(self.input))
            return wire.MessageToolCall(id=self.call_id, type="custom", custom=custom)
        return wire.MessageToolCall(id=self.call_id, function=self.function())


class ChoiceCollector:
    """Collects a choice; its methods return no bytes. Implements `gateway.answers.chat.assembler.ChoiceWriter`."""

    def __init__(
        self,
        index: int,
        *,
        reasoning_fields: Sequence[str],
        logprobs: bool,
        legacy: bool,
        token_ids: list[int] | None,
    ) -> None:
        """`token_ids` is the list to which the choice's token ids are appended; None if they are not shown."""
        self._index = index
        self._reasoning_fields = reasoning_fields
        self._legacy = legacy
        self._token_ids = token_ids
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._annotations: list[wire.UrlAnnotation] = []
        self._calls: list[WrittenCall] = []
        self._logprobs: list[Logprob] | None = [] if logprobs else None
        self._finish: wire.FinishReason | None = None
        self._stop_reason: str | int | None = None

    def role(self) -> bytes:
        return b""

    def text(self, text: str, logprobs: Sequence[TokenLogprob]) -> bytes:
        self._text.append(text)
        if logprobs and self._logprobs is not None:
            self._logprobs += map(logprob, logprobs)
        return b""

    def reasoning(self, text: str) -> bytes:
        self._reasoning.append(text)
        return b""

    def refusal(self, text: str) -> bytes:
        self._refusal.append(text)
        return b""

    def call(self, index: int, call_id: str, name: str, *, custom: bool) -> bytes:
        self._calls.append(WrittenCall(call_id, name, custom=custom))
        return b""

    def call_input(self, index: int, text: str, *, custom: bool) -> bytes:
        self._calls[index].input.append(text)
        return b""

    def annotate(self, annotations: Sequence[wire.UrlAnnotation]) -> bytes:
        self._annotations += annotations
        return b""

    def finish(self, reason: wire.FinishReason, stop_reason: str | int | None) -> bytes:
        self._finish, self._stop_reason = reason, stop_reason
        return b""

    @property
    def finished(self) -> bool:
        """Whether the choice is complete."""
        return self._finish is not None

    def choice(self) -> wire.Choice:
        """Return the finished choice."""
        assert self._finish is not None, "a choice is finished before it is shown"
        return wire.Choice(
            index=self._index,
            message=self._message(),
            logprobs=(
                None if self._logprobs is None else wire.ChoiceLogprobs(content=self._logprobs)
            ),
            finish_reason=self._finish,
            stop_reason=UNSET if self._stop_reason is None else self._stop_reason,
            token_ids=UNSET if self._token_ids is None else self._token_ids,
        )

    def _message(self) -> wire.AnswerMessage:
        content: str | None = "".join(self._text)
        if not content and (self._calls or self._refusal):
            content = None
        reasoning: str | None = "".join(self._reasoning) or None
        shown: dict[str, str | UnsetType | None] = dict.fromkeys(self._reasoning_fields, reasoning)
        calls = self._calls
        return wire.AnswerMessage(
            content=content,
            refusal="".join(self._refusal) or None,
            annotations=self._annotations,
            reasoning_content=shown.get("reasoning_content", UNSET),
            reasoning=shown.get("reasoning", UNSET),
            tool_calls=UNSET if self._legacy or not calls else [call.tool_call() for call in calls],
            function_call=calls[0].function() if self._legacy and calls else UNSET,
        )
