"""The contract of policies, as tests to inherit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.base.deltas import (
    BlockEnded,
    CallArgumentsDelta,
    CallEnded,
    CallStarted,
    Delta,
    ReasoningDelta,
    TextDelta,
)
from gateway.base.errors import GatewayError
from gateway.plugins.protocols import OutputFilter, Policy, PolicyRefusal, PolicyRequest, Turn
from gateway.wire.common import encode
from gateway.wire.item_decoding import decode_items
from gateway_doctor.checks.loop_watch import loop_stays_free, no_waiting
from gateway_testing.closing_contract import ClosingContract
from gateway_testing.linear_cost import check_cost_is_linear
from gateway_testing.on_asyncio import OnAsyncio
from gateway_testing.reading import Block, blocks, check_grammar, cut

HOSTILE = (
    "",
    " " * 10_000,
    "x" * 200_000,
    "\x00\u202e",
    "((((" * 1000,
    "a" * 5000 + "!",
    "🙂" * 500,
)
_BIG = 100_000


@pytest.mark.anyio
class PolicyContract(ClosingContract, OnAsyncio):
    """Subclass this and provide a fixture `policy`: an open policy."""

    refused: ClassVar[str | None] = None
    """A text that the policy refuses at any position of a prompt; None if it refuses no text."""
    accepted: ClassVar[str] = "Please write to me@"
    """A text that the policy accepts and does not change."""
    words: ClassVar[Sequence[str]] = ()
    """Words that the filter changes, or at which it ends the output. Random outputs are made of them."""
    most_held: ClassVar[int] = 20_000
    """Maximum number of characters that the filter may hold back."""

    @pytest.fixture
    def policy(self) -> Policy:
        raise NotImplementedError("give the fixture `policy`")

    def request(self, text: str, *, raw: bool = False) -> PolicyRequest:
        """A conversation with `text` as the user's message, or `text` as a raw prompt."""
        if raw:
            return PolicyRequest(api="completions", model="m", owner=None, texts=[text])
        items = decode_items([{"role": "user", "content": text}])
        return PolicyRequest(api="responses", model="m", owner="ada", turn=Turn(items=items))

    async def use_once(self, opened: Policy) -> None:
        await opened.check(self.request(self.accepted))
        found = opened.output(self.request(self.accepted))
        if found is not None:
            _filtered(found, [TextDelta(self.accepted)])

    async def test_what_it_accepts_stays_as_it_is(self, policy: Policy) -> None:
        for raw in (False, True):
            request = self.request(self.accepted, raw=raw)
            before = encode(structs.asdict(request))
            found = await policy.check(request)
            assert isinstance(found, PolicyRequest), f"it refuses {self.accepted!r}"
            assert encode(structs.asdict(request)) == before, "it changes the request in place"
            assert (found.api, found.owner) == (request.api, request.owner)

    async def test_what_it_has_decided_is_decided_the_same_again(self, policy: Policy) -> None:
        """This also holds for a changed text, because later prompts of the answer contain it."""
        for text in (self.accepted, self.refused or "w", *self.words):
            for raw in (False, True):
                first = await policy.check(self.request(text, raw=raw))
                again = await policy.check(self.request(text, raw=raw))
                assert _decision(again) == _decision(first)
                if isinstance(first, PolicyRequest):
                    assert _decision(await policy.check(first)) == _decision(first)

    async def test_it_refuses_wherever_the_text_stands(self, policy: Policy) -> None:
        """The text is in a raw prompt, in the instructions, in the conversation, or in the result of a tool."""
        if self.refused is None:
            pytest.skip("it refuses no text")
        text = self.refused
        call: dict[str, Any] = {
            "type": "function_call",
            "call_id": "c",
            "name": "f",
            "arguments": "{}",
        }
        result = {"type": "function_call_output", "call_id": "c", "output": text}
        turns = {
            "instructions": Turn(items=decode_items([{"role": "user", "content": "w"}]), instructions=text),
            "an earlier message": Turn(
                items=decode_items([{"role": "user", "content": text}, {"role": "user", "content": "w"}])
            ),
            "the result of a tool": Turn(
                items=decode_items([{"role": "user", "content": "w"}, call, result])
            ),
        }  # fmt: skip
        requests = {where: structs.replace(self.request("w"), turn=turn) for where, turn in turns.items()}  # fmt: skip
        requests["a raw prompt"] = self.request(text, raw=True)
        for where, request in requests.items():
            assert await self._refuses(policy, request), f"{text!r} in {where} is accepted"

    async def _refuses(self, policy: Policy, request: PolicyRequest) -> bool:
        try:
            found = await policy.check(request)
        except GatewayError:
            return True
        assert isinstance(found, PolicyRequest | PolicyRefusal)
        return isinstance(found, PolicyRefusal)

    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    async def test_any_text_is_decided_upon(self, text: str, policy: Policy) -> None:
        """The only errors are those for the client, and the event loop is not blocked."""
        for raw in (False, True):
            async with loop_stays_free("the policy's check"):
                await self._refuses(policy, self.request(text, raw=raw))

    async def test_how_the_output_is_cut_does_not_matter(self, policy: Policy) -> None:
        part = st.sampled_from([self.accepted, *self.words, " ", "word", "@", "\n"])

        @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(part, max_size=8).map("".join), st.lists(st.integers(0, 400), max_size=10))
        def holds(text: str, places: list[int]) -> None:
            found = [
                self._shown(policy, [TextDelta(part) for part in parts if part])
                for parts in ([text], cut(text, places), list(text))
            ]
            assert found[0] == found[1] == found[2]

        holds()

    async def test_what_is_held_at_the_end_is_not_lost(self, policy: Policy) -> None:
        """An output that ends anywhere within the accepted text is shown completely."""
        for end in range(1, len(self.accepted) + 1):
            text = self.accepted[:end]
            shown, ended = self._shown(policy, [TextDelta(letter) for letter in text])
            assert (shown, ended) == ([Block("text", text)], None)

    async def test_calls_and_reasoning_pass_in_their_order(self, policy: Policy) -> None:
        output: list[Delta] = [
            ReasoningDelta(self.accepted), TextDelta(self.accepted), CallStarted("look_up"),
            CallArgumentsDelta('{"city": '), CallArgumentsDelta('"Oslo"}'), CallEnded(),
            TextDelta("word"), BlockEnded(), TextDelta("word"),
        ]  # fmt: skip
        shown, ended = self._shown(policy, output)
        assert (shown, ended) == (blocks(output), None)

    async def test_outputs_do_not_share_anything(self, policy: Policy) -> None:
        """Two interleaved generations are filtered independently."""
        request = self.request(self.accepted)
        parts = [self.accepted, *self.words, " and more of it"]
        filters = [policy.output(request) for _ in range(2)]
        texts = ["".join(order) for order in (parts, parts[::-1])]
        shown: list[list[Delta]] = [[], []]
        for pair in zip_longest(*texts):
            for found, letter, seen in zip(filters, pair, shown, strict=True):
                if found is None:
                    pytest.skip("it filters no output")
                if letter is not None and found.ended is None:
                    seen.extend(found.feed([TextDelta(letter)]))
        for found, seen in zip(filters, shown, strict=True):
            if found is not None and found.ended is None:
                seen.extend(found.finish())
        alone = [self._shown(policy, [TextDelta(letter) for letter in text])[0] for text in texts]
        assert [blocks(seen) for seen in shown] == alone

    async def test_little_is_held_back(self, policy: Policy) -> None:
        """At most `most_held` characters are held back, so that a stream continues."""
        found = policy.output(self.request(self.accepted))
        if found is None:
            pytest.skip("it filters no output")
        seen = shown = 0
        while seen < _BIG and found.ended is None:
            shown += sum(
                len(getattr(each, "text", "")) for each in found.feed([TextDelta("word ")])
            )
            seen += 5
            assert seen - shown <= self.most_held, f"after {seen} characters, {shown} were shown"

    async def test_filtering_waits_for_nothing_and_its_cost_is_linear(self, policy: Policy) -> None:
        """100,000 characters take less than 24 times the CPU time of an eighth of them; quadratic work takes 64 times."""
        if policy.output(self.request(self.accepted)) is None:
            pytest.skip("it filters no output")
        with no_waiting("the policy's filter"):
            self._shown(policy, [TextDelta(self.accepted)])
        short, long = ([TextDelta("word ")] * (size // 5) for size in (_BIG // 8, _BIG))
        check_cost_is_linear(
            lambda: self._shown(policy, short), lambda: self._shown(policy, long), "the filter"
        )

    def _shown(self, policy: Policy, output: Sequence[Delta]) -> tuple[list[Block], str | None]:
        """The output that the client sees if the model's output has these deltas, and the reason if the policy ended
        it."""
        found = policy.output(self.request(self.accepted))
        if found is None:
            return blocks(output), None
        return _filtered(found, output)


def _filtered(found: OutputFilter, output: Sequence[Delta]) -> tuple[list[Block], str | None]:
    shown: list[Delta] = []
    for delta in output:
        shown.extend(found.feed([delta]))
        if found.ended is not None:
            break
    else:
        shown.extend(found.finish())
    assert found.ended in (None, "stop", "content_filter"), f"it ends with {found.ended!r}"
    if found.ended is None:
        # The deltas' positions refer to the output before it was filtered.
        check_grammar([TextDelta(each.text) if isinstance(each, TextDelta) else each for each in shown], "")  # fmt: skip
    return blocks(shown), found.ended


def _decision(found: PolicyRequest | PolicyRefusal) -> Any:
    return found.text if isinstance(found, PolicyRefusal) else encode(structs.asdict(found))
