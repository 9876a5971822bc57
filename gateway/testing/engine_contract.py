"""What every engine promises, as tests to inherit."""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.constraints import Constraint
from gateway.errors import InvalidRequest, Unsupported
from gateway.protocols import (
    Capability,
    ChatPrompt,
    Engine,
    EngineRequest,
    Prompt,
    Sampling,
    TokensPrompt,
)
from gateway.testing.generating import CONSTRAINTS, generate, satisfies


@pytest.mark.anyio
class EngineContract:
    """Subclass it, and give a fixture `engine`: an open engine, whose asynchronous fixture may have any scope up to the
    module's. With a model that seldom ends by itself, or a prompt that makes it talk, everything is tested.
    """

    prompt: ClassVar[str] = (
        "Please repeat after me: the quick brown fox jumps over the lazy dog, then naps in warm "
        "sunshine, and dreams of chasing seven rabbits through an endless summer meadow."
    )
    """Something that the model answers with at least 24 tokens, if it may go on after its end token."""
    bad_token_ids: ClassVar[Sequence[int]] = (-1, 2**40)
    """Ids that are outside of the vocabulary."""
    time_limit: ClassVar[float] = 60.0
    """Seconds in which any single step must be over."""

    _number = 0

    @pytest.fixture(scope="module")
    @classmethod
    def anyio_backend(cls) -> str:
        return "asyncio"

    def request(
        self,
        engine: Engine,
        *,
        prompt: Prompt | None = None,
        constraint: Constraint | None = None,
        **sampling: Any,
    ) -> EngineRequest:
        """A greedy request for 24 tokens, with a fresh id."""
        EngineContract._number += 1
        wanted = {"max_tokens": 24, "temperature": 0.0, "ignore_eos": True, **sampling}
        return EngineRequest(
            request_id=f"contract-{EngineContract._number}",
            prompt=prompt or self.prompt_for(engine),
            sampling=Sampling(**wanted),
            constraint=constraint,
        )

    def prompt_for(self, engine: Engine) -> Prompt:
        """`prompt` in the form that the engine takes."""
        if "tokens" in engine.capabilities:
            assert engine.tokenizer is not None
            return TokensPrompt(token_ids=engine.tokenizer.encode(self.prompt))
        return ChatPrompt(messages=[{"role": "user", "content": self.prompt}])

    def needs(self, engine: Engine, capability: Capability) -> None:
        """Skip what an engine does not claim."""
        if capability not in engine.capabilities:
            pytest.skip(f"the engine does not claim {capability}")

    async def test_it_says_what_it_is(self, engine: Engine) -> None:
        assert engine.info.name
        assert engine.info.engine
        assert engine.capabilities & {"tokens", "messages"}
        assert engine.info.max_model_len is None or engine.info.max_model_len > 0
        assert engine.tokenizer is not None or "tokens" not in engine.capabilities

    async def test_a_running_engine_is_healthy(self, engine: Engine) -> None:
        await engine.health()

    async def test_the_last_output_and_only_the_last_has_a_finish_reason(
        self, engine: Engine
    ) -> None:
        done = await generate(engine, self.request(engine))
        assert [output.finish_reason for output in done.outputs[:-1]] == [None] * (
            len(done.outputs) - 1
        )
        assert done.finish in ("stop", "length")

    async def test_checking_starts_nothing_and_accepts_what_is_generated(
        self, engine: Engine
    ) -> None:
        request = self.request(engine)
        await engine.check(request)
        await engine.check(request)
        assert (await generate(engine, request)).outputs

    async def test_the_text_is_what_the_tokens_decode_to(self, engine: Engine) -> None:
        """Whole, and never cumulative."""
        self.needs(engine, "tokens")
        assert engine.tokenizer is not None
        done = await generate(engine, self.request(engine, skip_special_tokens=False))
        assert done.token_ids
        # A character that the limit cut in two may be left out, or shown by a replacement character.
        decoded = engine.tokenizer.decode(done.token_ids).rstrip("\ufffd")
        assert done.text.rstrip("\ufffd") == decoded

    async def test_max_tokens_is_kept(self, engine: Engine) -> None:
        for limit in (1, 5):
            done = await generate(engine, self.request(engine, max_tokens=limit))
            assert done.finish == "length"
            if "tokens" in engine.capabilities:
                assert len(done.token_ids) == limit

    async def test_the_prompt_is_counted(self, engine: Engine) -> None:
        self.needs(engine, "tokens")
        request = self.request(engine, max_tokens=2)
        assert isinstance(request.prompt, TokensPrompt)
        done = await generate(engine, request)
        told = {o.prompt_tokens for o in done.outputs if o.prompt_tokens is not None}
        assert told <= {len(request.prompt.token_ids)}

    async def test_a_greedy_request_gives_the_same_again(self, engine: Engine) -> None:
        one = await generate(engine, self.request(engine))
        assert (await generate(engine, self.request(engine))).text == one.text

    async def test_a_seed_makes_sampling_repeatable(self, engine: Engine) -> None:
        wanted: dict[str, Any] = {"temperature": 1.0, "seed": 1234}
        one = await generate(engine, self.request(engine, **wanted))
        assert (await generate(engine, self.request(engine, **wanted))).text == one.text

    async def test_eight_requests_at_once_do_not_mix(self, engine: Engine) -> None:
        """Each has its own limit, by which its output is told from the others'."""
        limits = range(1, 9)
        requests = [self.request(engine, max_tokens=limit) for limit in limits]
        async with asyncio.timeout(self.time_limit):
            done = await asyncio.gather(*(generate(engine, request) for request in requests))
        assert [each.finish for each in done] == ["length"] * 8
        if "tokens" in engine.capabilities:
            assert [len(each.token_ids) for each in done] == list(limits)

    async def test_closing_early_aborts_and_the_engine_goes_on(self, engine: Engine) -> None:
        """More requests than an engine runs at once are begun and left: were they not aborted, the last would wait."""
        async with asyncio.timeout(self.time_limit):
            for _ in range(16):
                request = self.request(engine, max_tokens=self._long(engine))
                async with aclosing(engine.generate(request)) as stream:
                    assert await anext(stream) is not None
            assert (await generate(engine, self.request(engine))).finish is not None
        await engine.health()

    async def test_cancelling_aborts_and_the_engine_goes_on(self, engine: Engine) -> None:
        async def consume(request: EngineRequest) -> None:
            async with aclosing(engine.generate(request)) as stream:
                async for _ in stream:
                    started.set()
                    await asyncio.sleep(3600)

        async with asyncio.timeout(self.time_limit):
            for _ in range(4):
                started = asyncio.Event()
                task = asyncio.create_task(
                    consume(self.request(engine, max_tokens=self._long(engine)))
                )
                await started.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            # Also before the first output.
            unstarted = asyncio.create_task(generate(engine, self.request(engine)))
            await asyncio.sleep(0)
            unstarted.cancel()
            with pytest.raises(asyncio.CancelledError):
                await unstarted
            assert (await generate(engine, self.request(engine))).finish is not None
        await engine.health()

    async def test_token_ids_outside_the_vocabulary_are_refused(self, engine: Engine) -> None:
        self.needs(engine, "tokens")
        for bad in self.bad_token_ids:
            request = self.request(engine, prompt=TokensPrompt(token_ids=[1, bad]))
            await self.refused(engine, request)

    async def test_an_empty_prompt_is_refused(self, engine: Engine) -> None:
        self.needs(engine, "tokens")
        await self.refused(engine, self.request(engine, prompt=TokensPrompt(token_ids=[])))

    async def test_a_prompt_that_is_too_long_is_refused(self, engine: Engine) -> None:
        self.needs(engine, "tokens")
        length, tokenizer = engine.info.max_model_len, engine.tokenizer
        if length is None or tokenizer is None:
            pytest.skip("the engine does not know how long a prompt may be")
        ids = (tokenizer.encode("a word and ") * length)[: length + 1]
        await self.refused(engine, self.request(engine, prompt=TokensPrompt(token_ids=ids)))

    async def test_a_prompt_of_the_other_kind_is_refused(self, engine: Engine) -> None:
        if {"tokens", "messages"} <= engine.capabilities:
            pytest.skip("the engine takes both kinds")
        other: Prompt = TokensPrompt(token_ids=[1, 2])
        if "tokens" in engine.capabilities:
            other = ChatPrompt(messages=[{"role": "user", "content": "Hello"}])
        await self.refused(engine, self.request(engine, prompt=other))

    async def refused(self, engine: Engine, request: EngineRequest) -> None:
        """Both doors refuse the request, and the engine lives."""
        with pytest.raises(InvalidRequest):
            await engine.check(request)
        with pytest.raises(InvalidRequest):
            await generate(engine, request)
        await engine.health()

    async def test_a_stop_string_ends_the_text_before_it(self, engine: Engine) -> None:
        """Wherever the tokens' borders are."""
        whole = (await generate(engine, self.request(engine))).text
        stops = [
            whole[at : at + 3]
            for at in range(len(whole) // 3, len(whole) - 3)
            if "\ufffd" not in whole[: at + 3] and whole[at : at + 3].strip()
        ]
        if not stops:
            pytest.skip("the model says nothing that could be stopped at; give another prompt")
        for stop in stops[:4]:
            done = await generate(engine, self.request(engine, stop=("\0never", stop)))
            assert done.text == whole[: whole.index(stop)]
            assert done.finish == "stop"
            assert done.stop_reason == stop
        kept = await generate(
            engine, self.request(engine, stop=(stops[0],), include_stop_str_in_output=True)
        )
        assert kept.text == whole[: whole.index(stops[0]) + len(stops[0])]

    async def test_a_stop_token_ends_the_output(self, engine: Engine) -> None:
        self.needs(engine, "tokens")
        whole = (await generate(engine, self.request(engine))).token_ids
        stop = whole[len(whole) // 2]
        done = await generate(engine, self.request(engine, stop_token_ids=(stop,)))
        assert done.finish == "stop"
        assert done.stop_reason == stop
        before = whole[: whole.index(stop)]
        assert done.token_ids in (before, [*before, stop])

    async def test_logprobs_add_up_to_the_text(self, engine: Engine) -> None:
        self.needs(engine, "logprobs")
        for wanted in (0, 3):
            done = await generate(engine, self.request(engine, logprobs=wanted))
            assert [each.token_id for each in done.logprobs] == done.token_ids
            for output in done.outputs:
                assert len(output.logprobs or ()) == len(output.token_ids)
            said = b"".join(each.bytes for each in done.logprobs)
            assert said.decode("utf-8", "ignore") == done.text.rstrip("\ufffd")
            for each in done.logprobs:
                assert each.logprob <= 0
                assert len(each.top) == wanted
                chances = [top.logprob for top in each.top]
                assert chances == sorted(chances, reverse=True)

    async def test_logprobs_stop_where_the_text_stops(self, engine: Engine) -> None:
        self.needs(engine, "logprobs")
        whole = (await generate(engine, self.request(engine))).text
        stop = whole[len(whole) // 2 :][:3]
        if not stop.strip() or "\ufffd" in whole:
            pytest.skip("the model says nothing that could be stopped at; give another prompt")
        done = await generate(engine, self.request(engine, stop=(stop,), logprobs=0))
        assert b"".join(each.bytes for each in done.logprobs).decode() == done.text

    @pytest.mark.parametrize(
        ("capability", "constraint"),
        CONSTRAINTS,
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_a_constraint_is_enforced_or_refused(
        self, engine: Engine, capability: Capability, constraint: Constraint
    ) -> None:
        """What an engine claims it enforces; what it does not claim it may enforce, and must not pass over."""
        request = self.request(
            engine, constraint=constraint, ignore_eos=False, max_tokens=512, temperature=None
        )
        try:
            await engine.check(request)
        except Unsupported:
            assert capability not in engine.capabilities
            return
        done = await generate(engine, request)
        if done.finish == "length":
            # A model of random weights may fill an object for ever; what it wrote cannot be judged.
            assert capability == "json_object"
            return
        assert satisfies(done.text, constraint), done.text

    async def test_the_tokenizer_takes_any_text_there_and_back(self, engine: Engine) -> None:
        """Texts in normal form: some vocabularies normalise."""
        self.needs(engine, "tokens")
        tokenizer = engine.tokenizer
        assert tokenizer is not None

        @settings(max_examples=100, deadline=None)
        @given(st.text(st.characters(exclude_categories=("Cs", "Cc"))))
        def there_and_back(text: str) -> None:
            text = unicodedata.normalize("NFC", text)
            ids = tokenizer.encode(text)
            assert tokenizer.decode(ids) == text
            assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
            assert tokenizer.encode(text) == ids

        there_and_back()

    async def test_the_tokenizer_refuses_ids_outside_the_vocabulary(self, engine: Engine) -> None:
        self.needs(engine, "tokens")
        assert engine.tokenizer is not None
        for bad in self.bad_token_ids:
            with pytest.raises(ValueError):  # noqa: PT011 (the promise is no narrower)
                engine.tokenizer.token_bytes(bad)

    def _long(self, engine: Engine) -> int:
        """As many tokens as there is room for, within reason."""
        return min(4096, (engine.info.max_model_len or 4096) // 2)
