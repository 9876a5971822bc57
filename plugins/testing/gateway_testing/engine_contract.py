"""The contract of engines, as tests to inherit. The checks are in `gateway_doctor.checks.engine_checks`."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.constraints import Constraint
from gateway.plugins.protocols import Capability, Engine, EngineRequest
from gateway_doctor.checks import engine_checks as checks
from gateway_doctor.checks import engine_checks_media as media
from gateway_doctor.checks import engine_checks_running as running
from gateway_doctor.checks import engine_checks_steering as steering
from gateway_doctor.checks.engine_probe import PROMPT, Probe
from gateway_doctor.checks.generating import CONSTRAINTS
from gateway_testing.closing_contract import ClosingContract
from gateway_testing.probed_engine import ProbedEngine


@pytest.mark.anyio
class EngineContract(ClosingContract, ProbedEngine):
    """Subclass this and provide a fixture `engine`: an open engine. The asynchronous fixture may have any scope up to
    module scope. To run all tests, use a model whose answers are long, or a prompt that leads to a long answer, and
    provide the fixture `reopen`.
    """

    prompt: ClassVar[str] = PROMPT
    """A prompt that produces at least 24 tokens if generation continues after the end token."""
    bad_token_ids: ClassVar[Sequence[int]] = (-1, 2**40)
    """Ids outside the vocabulary."""
    image_text: ClassVar[str] = ""
    """The text of the model's chat template for an image. For engines with the capability `images` whose
    `ModelInfo.placeholders` is `template`."""
    placeholder_index: ClassVar[int] = 0
    """The placeholder's index among the tokens of `image_text`."""

    def probe(self, engine: Engine) -> Probe:
        return Probe(
            engine,
            prompt=self.prompt,
            bad_token_ids=self.bad_token_ids,
            time_limit=self.time_limit,
            image_text=self.image_text,
            placeholder_index=self.placeholder_index,
        )

    def request(self, engine: Engine, **settings: Any) -> EngineRequest:
        """A greedy request for 24 tokens, with a new id. `settings` are arguments of `Probe.request`."""
        return self.probe(engine).request(**settings)

    async def use_once(self, opened: Engine) -> None:
        if not opened.capabilities & {"tokens", "messages"}:
            await opened.health()
            return
        async with aclosing(opened.generate(self.request(opened))) as stream:
            async for _ in stream:
                pass

    async def test_it_says_what_it_is(self, engine: Engine) -> None:
        await self.holds(engine, running.info_is_complete)

    async def test_a_running_engine_is_healthy(self, engine: Engine) -> None:
        await self.holds(engine, running.is_healthy)

    async def test_the_last_output_and_only_the_last_has_a_finish_reason(
        self, engine: Engine
    ) -> None:
        await self.holds(engine, running.only_the_last_output_has_a_finish_reason)

    async def test_a_long_answer_comes_in_several_outputs(self, engine: Engine) -> None:
        await self.holds(engine, running.streams)

    async def test_other_tasks_run_while_it_generates(self, engine: Engine) -> None:
        await self.holds(engine, running.leaves_the_loop_free)

    async def test_requests_leave_nothing_running(self, engine: Engine) -> None:
        await self.holds(engine, running.requests_leave_nothing_running)

    async def test_checking_starts_nothing_and_accepts_what_is_generated(
        self, engine: Engine
    ) -> None:
        await self.holds(engine, running.checking_starts_nothing)

    async def test_the_text_is_what_the_tokens_decode_to(self, engine: Engine) -> None:
        await self.holds(engine, running.the_text_is_what_the_tokens_decode_to)

    async def test_max_tokens_is_kept(self, engine: Engine) -> None:
        await self.holds(engine, running.max_tokens_is_kept)

    async def test_min_tokens_is_kept(self, engine: Engine) -> None:
        await self.holds(engine, steering.min_tokens_is_kept)

    async def test_the_prompt_is_counted(self, engine: Engine) -> None:
        await self.holds(engine, running.the_prompt_is_counted)

    async def test_a_greedy_request_gives_the_same_again(self, engine: Engine) -> None:
        await self.holds(engine, running.greedy_is_the_same_again)

    async def test_pushed_outputs_are_those_that_are_yielded(self, engine: Engine) -> None:
        await self.holds(engine, running.pushed_outputs_are_those_that_are_yielded)

    async def test_a_seed_makes_sampling_repeatable(self, engine: Engine) -> None:
        await self.holds(engine, running.a_seed_makes_sampling_repeatable)

    async def test_eight_requests_at_once_do_not_mix(self, engine: Engine) -> None:
        await self.holds(engine, running.eight_at_once_do_not_mix)

    async def test_closing_early_aborts_and_the_engine_goes_on(self, engine: Engine) -> None:
        await self.holds(engine, running.closing_aborts)

    async def test_cancelling_aborts_and_the_engine_goes_on(self, engine: Engine) -> None:
        await self.holds(engine, running.cancelling_aborts)

    async def test_images_are_seen(self, engine: Engine) -> None:
        await self.holds(engine, media.images_are_seen)

    async def test_images_are_seen_in_their_order(self, engine: Engine) -> None:
        await self.holds(engine, media.images_are_in_order)

    async def test_images_are_counted(self, engine: Engine) -> None:
        await self.holds(engine, media.images_are_counted)

    async def test_a_broken_image_fails_its_own_request_at_most(self, engine: Engine) -> None:
        await self.holds(engine, media.a_broken_image_fails_alone)

    async def test_adapters_are_asked_for_by_name(self, engine: Engine) -> None:
        await self.holds(engine, running.adapters_generate)

    async def test_token_ids_outside_the_vocabulary_are_refused(self, engine: Engine) -> None:
        await self.holds(engine, checks.foreign_token_ids_are_refused)

    async def test_an_empty_prompt_is_refused(self, engine: Engine) -> None:
        await self.holds(engine, checks.an_empty_prompt_is_refused)

    async def test_a_prompt_that_is_too_long_is_refused(self, engine: Engine) -> None:
        await self.holds(engine, checks.a_prompt_that_is_too_long_is_refused)

    async def test_a_prompt_of_the_other_kind_is_refused(self, engine: Engine) -> None:
        await self.holds(engine, checks.a_prompt_of_the_other_kind_is_refused)

    async def test_a_stop_string_ends_the_text_before_it(self, engine: Engine) -> None:
        await self.holds(engine, steering.a_stop_string_ends_the_text_before_it)

    async def test_a_stop_token_ends_the_output(self, engine: Engine) -> None:
        await self.holds(engine, steering.a_stop_token_ends_the_output)

    async def test_a_bias_is_heeded(self, engine: Engine) -> None:
        await self.holds(engine, steering.a_bias_is_heeded)

    async def test_allowed_tokens_are_kept(self, engine: Engine) -> None:
        await self.holds(engine, steering.allowed_tokens_are_kept)

    async def test_bad_words_stay_out(self, engine: Engine) -> None:
        await self.holds(engine, steering.bad_words_stay_out)

    async def test_logprobs_add_up_to_the_text(self, engine: Engine) -> None:
        await self.holds(engine, steering.logprobs_add_up_to_the_text)

    async def test_logprobs_stop_where_the_text_stops(self, engine: Engine) -> None:
        await self.holds(engine, steering.logprobs_stop_where_the_text_stops)

    async def test_prompt_logprobs_are_one_for_each_token(self, engine: Engine) -> None:
        await self.holds(engine, steering.prompt_logprobs_are_one_for_each_token)

    @pytest.mark.parametrize(
        ("capability", "constraint"),
        CONSTRAINTS,
        ids=lambda value: value if isinstance(value, str) else "",
    )
    async def test_a_constraint_is_enforced_or_refused(
        self, engine: Engine, capability: Capability, constraint: Constraint
    ) -> None:
        await self.holds(
            engine, steering.a_constraint_is_enforced_or_refused, capability, constraint
        )

    async def test_what_a_trigger_begins_is_enforced(self, engine: Engine) -> None:
        await self.holds(engine, steering.what_a_trigger_begins_is_enforced)

    async def test_the_tokenizer_takes_any_text_there_and_back(self, engine: Engine) -> None:
        """The texts are in Unicode normal form, because some vocabularies normalize them."""
        await self.holds(engine, checks.the_tokenizer_goes_there_and_back)
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
        if "tokens" not in engine.capabilities:
            pytest.skip("the engine does not claim tokens")
        assert engine.tokenizer is not None
        for bad in self.bad_token_ids:
            with pytest.raises(ValueError):  # noqa: PT011 (the promise is no narrower)
                engine.tokenizer.token_bytes(bad)
