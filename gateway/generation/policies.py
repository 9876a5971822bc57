"""Applying policies to the prompts and the outputs of models."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar

import msgspec

from gateway.base.deltas import Delta
from gateway.base.errors import GatewayError, InvalidRequest, ParamPath, Unsupported
from gateway.generation.text_stops import TextStops
from gateway.plugins.protocols import (
    FinishReason,
    OutputFilter,
    Policy,
    PolicyRefusal,
    PolicyRequest,
    Sampling,
    Tokenizer,
    Turn,
)

_asking: ContextVar[tuple[Policy, ...]] = ContextVar("gateway.asking_policies", default=())
"""The policies whose `check` is running and has led to the current task."""


class Rerouted(GatewayError):
    """Raised if a policy sends the request to another model. `gateway.answers.attempts` handles it. Clients see it only
    after too many reroutes."""

    def __init__(self, model: str) -> None:
        super().__init__("A policy of this server sent the request in a circle.")
        self.model = model


class Policies:
    """The policies that apply to one request to one model."""

    def __init__(
        self, policies: Sequence[Policy], *, api: str, model: str, owner: str | None
    ) -> None:
        self._policies = policies
        self._about = PolicyRequest(api=api, model=model, owner=owner)

    async def turn(self, turn: Turn, *, first: bool) -> Turn | PolicyRefusal:
        """Return the turn as the model may read it, or a refusal. `first`: whether this is the answer's first prompt.
        Raises `Rerouted`."""
        decided = await self._check(msgspec.structs.replace(self._about, turn=turn), first=first)
        if isinstance(decided, PolicyRefusal):
            return decided
        return turn if decided.turn is None else decided.turn

    async def texts(self, texts: Sequence[str]) -> Sequence[str] | PolicyRefusal:
        """Return the texts as the model may read them, or a refusal. Raises `Rerouted`."""
        decided = await self._check(msgspec.structs.replace(self._about, texts=texts), first=True)
        if isinstance(decided, PolicyRefusal):
            return decided
        if len(decided.texts) != len(texts):
            raise RuntimeError("a policy has changed the number of texts")
        return decided.texts

    async def inputs(
        self, inputs: Sequence[str | Sequence[int]], tokenizer: Tokenizer | None, param: str
    ) -> list[str | Sequence[int]]:
        """Return `inputs`, which are texts or token ids, as the model may read them. Raises `Rerouted`,
        `InvalidRequest` for a refusal, and `Unsupported` for token ids without a tokenizer."""
        written: list[str] = []
        for each in inputs:
            if isinstance(each, str):
                written.append(each)
            elif tokenizer is None:
                raise Unsupported(
                    "The policies of this server read texts, and token ids cannot be decoded for this model. Send text.",
                    param=param,
                )
            else:
                written.append(tokenizer.decode(each, skip_special_tokens=False))
        decided = await self.texts(written)
        if isinstance(decided, PolicyRefusal):
            raise refused(decided, param)
        return [
            each if new == old else new
            for each, old, new in zip(inputs, written, decided, strict=True)
        ]

    def filters(self) -> list[OutputFilter]:
        """Return new filters for the output of one generation."""
        made = (policy.output(self._about) for policy in self._policies)
        return [each for each in made if each is not None]

    def check_shown(self, sampling: Sampling, *, token_ids: bool = False) -> None:
        """Raise `Unsupported` for parameters that would show unfiltered output, if there are filters."""
        for shown, param in (
            (sampling.logprobs is not None, "logprobs"),
            (token_ids, "return_token_ids"),
        ):
            if shown and self.filters():
                raise Unsupported(
                    "The output of this server is filtered, so its tokens are not shown. Leave the parameter out.",
                    param=param,
                )

    async def _check(self, request: PolicyRequest, *, first: bool) -> PolicyRequest | PolicyRefusal:
        asking = _asking.get()
        for policy in self._policies:
            _asking.set((*asking, policy))
            try:
                decided = await policy.check(request)
            finally:
                _asking.set(asking)
            if isinstance(decided, PolicyRefusal):
                return decided
            request = decided
        if first and request.model != self._about.model:
            raise Rerouted(request.model)
        return request


def policies_for(
    policies: Sequence[Policy], *, api: str, model: str, owner: str | None
) -> Policies | None:
    """Return the policies for one request, or None if there are none. A policy is not applied to requests that it
    sends."""
    if policies and (asking := _asking.get()):
        policies = [each for each in policies if not any(each is other for other in asking)]
    return Policies(policies, api=api, model=model, owner=owner) if policies else None


def refused(refusal: PolicyRefusal, param: str | ParamPath) -> InvalidRequest:
    """Return the error of a refused request, for APIs whose answers cannot contain a refusal."""
    return InvalidRequest(refusal.text, param=param, code="content_filter")


class OutputFilters:
    """Applies the filters of one generation, after the search for stop strings. Has the same interface as
    `TextStops`."""

    def __init__(self, filters: Sequence[OutputFilter], stops: TextStops | None) -> None:
        self.matched: str | None = None
        """The stop string that was found, if any."""
        self.ended: FinishReason | None = None
        """Why the output was ended early; None if it was not."""
        self._filters = list(filters)
        self._stops = stops

    def read(self, deltas: Sequence[Delta], *, searching: bool = True) -> Sequence[Delta]:
        stops = self._stops
        if stops is not None:
            deltas = stops.read(deltas, searching=searching)
            self.matched, self.ended = stops.matched, stops.ended
        return self._through(deltas)

    def rest(self) -> list[Delta]:
        """Return the deltas that are held back at the end of the output."""
        held = [] if self._stops is None else self._stops.rest()
        out = [*self._through(held)] if held else []
        while self._filters:
            last = self._filters.pop(0).finish()
            out += self._through(last) if last else ()
        return out

    def _through(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        for index, each in enumerate(self._filters):
            deltas = each.feed(deltas)
            if each.ended is not None:
                self.matched, self.ended = None, each.ended
                rest = self._filters[index + 1 :]
                self._filters = []
                # The deltas before the end still pass the later filters, which then release what they hold back.
                for later in rest:
                    deltas = [*later.feed(deltas), *later.finish()]
                    if later.ended is not None:
                        self.ended = later.ended
                return deltas
        return deltas
