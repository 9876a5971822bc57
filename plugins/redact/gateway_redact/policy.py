"""The policy: prompts are redacted or refused, output is redacted."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from gateway.sdk import InvalidRequest, PolicyRefusal, PolicyRequest
from gateway.sdk.policies import changed_turn, texts_of
from gateway_redact.redaction import RedactingFilter, Redaction

_AT_ONCE = 20_000
"""Characters that are searched before the event loop gets its turn."""


class RedactPolicy:
    """Implements `gateway.sdk.Policy`."""

    def __init__(
        self,
        prompts: Redaction | None,
        output: Redaction | None,
        *,
        refusal: str | None,
        max_chars: int,
    ) -> None:
        """`refusal`: the answer to a prompt with a match, in place of redacting it."""
        self._prompts = prompts
        self._output = output
        self._refusal = refusal
        self._max_chars = max_chars

    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        redaction = self._prompts
        if redaction is None:
            return request
        texts = [*request.texts, *(() if request.turn is None else texts_of(request.turn))]
        if sum(map(len, texts)) > self._max_chars:
            raise InvalidRequest(
                f"This server checks prompts of at most {self._max_chars} characters. Send a shorter one."
            )
        changed: dict[str, str] = {}
        searched = 0
        for text in dict.fromkeys(texts):
            searched += len(text)
            if searched > _AT_ONCE:
                searched = 0
                await asyncio.sleep(0)
            if len(text) > _AT_ONCE:
                new = await asyncio.to_thread(redaction.apply, text)
            else:
                new = redaction.apply(text)
            if new != text:
                changed[text] = new
        if not changed:
            return request
        if self._refusal is not None:
            return PolicyRefusal(self._refusal)
        turn = request.turn
        return replace(
            request,
            texts=[changed.get(text, text) for text in request.texts],
            turn=None if turn is None else changed_turn(turn, lambda text: changed.get(text, text)),
        )

    def output(self, request: PolicyRequest) -> RedactingFilter | None:
        return None if self._output is None else RedactingFilter(self._output)
