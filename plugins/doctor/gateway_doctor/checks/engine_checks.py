"""The whole contract of an engine, as checks that do not need pytest. Used by `gateway doctor --generate` and
`EngineContract`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from msgspec import Struct

from gateway.sdk import ChatPrompt, Prompt, TokensPrompt
from gateway_doctor.checks import embedding_checks as embedding
from gateway_doctor.checks import engine_checks_media as media
from gateway_doctor.checks import engine_checks_running as running
from gateway_doctor.checks import engine_checks_steering as steering
from gateway_doctor.checks import scoring_checks as scoring
from gateway_doctor.checks.engine_probe import GuaranteeViolated, NotClaimed, Probe, require
from gateway_doctor.checks.generating import CONSTRAINTS

__all__ = ["CHECKS", "EngineCheck", "GuaranteeViolated", "NotClaimed", "Probe"]


class EngineCheck(Struct, frozen=True):
    """A check of one guarantee. `run` raises `GuaranteeViolated` if it is violated, and `NotClaimed` if the engine does
    not claim it."""

    what: str
    run: Callable[[Probe], Awaitable[None]]


async def foreign_token_ids_are_refused(probe: Probe) -> None:
    """The engine rejects ids outside the vocabulary."""
    probe.needs("tokens")
    for bad in probe.bad_token_ids:
        prompt = TokensPrompt(token_ids=[1, bad])
        await probe.refused(probe.request(prompt=prompt), f"the token id {bad}")


async def an_empty_prompt_is_refused(probe: Probe) -> None:
    """The engine rejects a prompt without tokens."""
    probe.needs("tokens")
    await probe.refused(probe.request(prompt=TokensPrompt(token_ids=[])), "an empty prompt")


async def a_prompt_that_is_too_long_is_refused(probe: Probe) -> None:
    """The engine rejects a prompt that is one token longer than the context."""
    probe.needs("tokens")
    length, tokenizer = probe.engine.info.max_model_len, probe.engine.tokenizer
    if length is None or tokenizer is None:
        raise NotClaimed("the engine does not know how long a prompt may be")
    ids = (tokenizer.encode("a word and ") * length)[: length + 1]
    prompt = TokensPrompt(token_ids=ids)
    await probe.refused(probe.request(prompt=prompt), f"a prompt of {length + 1} tokens")


async def a_prompt_of_the_other_kind_is_refused(probe: Probe) -> None:
    """An engine that takes tokens rejects messages. An engine that takes messages rejects tokens."""
    if probe.has("tokens") and probe.has("messages"):
        raise NotClaimed("the engine takes both kinds")
    other: Prompt = TokensPrompt(token_ids=[1, 2])
    if probe.has("tokens"):
        other = ChatPrompt(messages=[{"role": "user", "content": "Hello"}])
    await probe.refused(probe.request(prompt=other), "a prompt of the other kind")


async def the_tokenizer_goes_there_and_back(probe: Probe) -> None:
    """Encoding and decoding returns the same text. Tried with some texts here, and with random texts by
    `EngineContract`."""
    probe.needs("tokens")
    tokenizer = probe.engine.tokenizer
    assert tokenizer is not None
    for text in (
        "Hello, world!",
        " two  spaces\n\tand a tab",
        "größer 漢字 🦊",
        '{"a": [1, null]}',
    ):
        ids = tokenizer.encode(text)
        back = tokenizer.decode(ids)
        require(back == text, f"{text!r} came back as {back!r}")
        whole = b"".join(map(tokenizer.token_bytes, ids))
        require(whole == text.encode(), f"the bytes of {text!r} are {whole!r}")


def _checks() -> Iterator[EngineCheck]:
    yield EngineCheck("complete information", running.info_is_complete)
    yield EngineCheck("is healthy", running.is_healthy)
    yield EngineCheck("tokenizer, there and back", the_tokenizer_goes_there_and_back)
    yield EngineCheck("finish reason, last only", running.only_the_last_output_has_a_finish_reason)
    yield EngineCheck("streams", running.streams)
    yield EngineCheck("leaves the event loop free", running.leaves_the_loop_free)
    yield EngineCheck("check starts nothing", running.checking_starts_nothing)
    yield EngineCheck("text is the tokens'", running.the_text_is_what_the_tokens_decode_to)
    yield EngineCheck("max_tokens", running.max_tokens_is_kept)
    yield EngineCheck("prompt counted", running.the_prompt_is_counted)
    yield EngineCheck("pushed outputs", running.pushed_outputs_are_those_that_are_yielded)
    yield EngineCheck("greedy, same again", running.greedy_is_the_same_again)
    yield EngineCheck("seed", running.a_seed_makes_sampling_repeatable)
    yield EngineCheck("eight at once", running.eight_at_once_do_not_mix)
    yield EngineCheck("closing aborts", running.closing_aborts)
    yield EngineCheck("cancelling aborts", running.cancelling_aborts)
    yield EngineCheck("requests leave nothing running", running.requests_leave_nothing_running)
    yield EngineCheck("stop strings", steering.a_stop_string_ends_the_text_before_it)
    yield EngineCheck("stop tokens", steering.a_stop_token_ends_the_output)
    yield EngineCheck("min_tokens", steering.min_tokens_is_kept)
    yield EngineCheck("logit_bias", steering.a_bias_is_heeded)
    yield EngineCheck("allowed_token_ids", steering.allowed_tokens_are_kept)
    yield EngineCheck("bad_words", steering.bad_words_stay_out)
    yield EngineCheck("logprobs", steering.logprobs_add_up_to_the_text)
    yield EngineCheck("logprobs at a stop", steering.logprobs_stop_where_the_text_stops)
    yield EngineCheck("prompt_logprobs", steering.prompt_logprobs_are_one_for_each_token)
    for capability, constraint in CONSTRAINTS:
        enforced = partial(
            steering.a_constraint_is_enforced_or_refused,
            capability=capability,
            constraint=constraint,
        )
        yield EngineCheck(f"constraint {capability}", enforced)
    yield EngineCheck("constraint triggered", steering.what_a_trigger_begins_is_enforced)
    yield EngineCheck("images seen", media.images_are_seen)
    yield EngineCheck("images in order", media.images_are_in_order)
    yield EngineCheck("images counted", media.images_are_counted)
    yield EngineCheck("broken image fails alone", media.a_broken_image_fails_alone)
    yield EngineCheck("adapters", running.adapters_generate)
    yield EngineCheck("refuses foreign token ids", foreign_token_ids_are_refused)
    yield EngineCheck("refuses an empty prompt", an_empty_prompt_is_refused)
    yield EngineCheck("refuses a prompt too long", a_prompt_that_is_too_long_is_refused)
    yield EngineCheck("refuses the other kind", a_prompt_of_the_other_kind_is_refused)
    yield EngineCheck("complete information on embeddings", embedding.embedding_info_is_complete)
    yield EngineCheck("embeddings, one each", embedding.each_input_gets_its_vector)
    yield EngineCheck("embeddings, same again", embedding.a_text_has_one_vector)
    yield EngineCheck("embeddings, sixteen at once", embedding.requests_do_not_mix)
    yield EngineCheck("embeddings, shorter", embedding.shorter_vectors_are_the_beginnings)
    yield EngineCheck("embeddings, refused", embedding.what_cannot_be_embedded_is_refused)
    yield EngineCheck("embeddings, cancelled", embedding.cancelling_aborts_embedding)
    yield EngineCheck("embeddings, adapters", embedding.adapters_embed)
    yield EngineCheck("scores, what they are", scoring.scoring_says_what_it_is)
    yield EngineCheck("scores, one each", scoring.each_pair_gets_its_score)
    yield EngineCheck("scores, same again", scoring.a_pair_has_one_score)
    yield EngineCheck("scores, sixteen at once", scoring.scorings_do_not_mix)
    yield EngineCheck("scores, too long", scoring.what_is_too_long_is_refused)
    yield EngineCheck("scores, truncated", scoring.texts_are_truncated)
    yield EngineCheck("scores, cancelled", scoring.cancelling_aborts_scoring)
    yield EngineCheck("scores, adapters", scoring.adapters_score)
    yield EngineCheck("is healthy afterwards", running.is_healthy)


CHECKS = tuple(_checks())
"""All checks, in an order in which each may rely on the guarantees of the previous ones."""
