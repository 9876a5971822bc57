"""Checks of an engine: stops, biases, log probabilities and constraints."""

from __future__ import annotations

import re

from gateway.sdk import Capability, FormatAwareEngine, TokensPrompt, Unsupported
from gateway.sdk.constraints import Const, Constraint, Regex, Sequence, Triggered
from gateway_doctor.checks.engine_probe import GuaranteeViolated, NotClaimed, Probe, require
from gateway_doctor.checks.generating import generate, satisfies

_SILENT = "the model says nothing that could be stopped at; give another prompt"
_CALL = re.compile(r"<call>\d{2}</call>")


async def a_stop_string_ends_the_text_before_it(probe: Probe) -> None:
    """The text ends before the stop string, wherever the boundaries between tokens are."""
    whole = (await generate(probe.engine, probe.request())).text
    stops = [
        whole[at : at + 3]
        for at in range(len(whole) // 3, len(whole) - 3)
        if "\ufffd" not in whole[: at + 3] and whole[at : at + 3].strip()
    ]
    if not stops:
        raise NotClaimed(_SILENT)
    for stop in stops[:4]:
        done = await generate(probe.engine, probe.request(stop=("\0never", stop)))
        before = whole[: whole.index(stop)]
        require(done.text == before, f"stop {stop!r}: {done.text!r}, where {before!r} comes first")
        require(done.finish == "stop", f"stop {stop!r}: it finished with {done.finish!r}")
        # The APIs of engines that take messages do not report the stop string.
        known = (stop,) if probe.has("tokens") else (stop, None)
        require(done.stop_reason in known, f"stop {stop!r}: the reason is {done.stop_reason!r}")
    stop = stops[0]
    kept = await generate(
        probe.engine, probe.request(stop=(stop,), include_stop_str_in_output=True)
    )
    wanted = whole[: whole.index(stop) + len(stop)]
    require(kept.text == wanted, f"included: {kept.text!r} instead of {wanted!r}")


async def a_stop_token_ends_the_output(probe: Probe) -> None:
    """A stop token ends the output, and is reported as the reason."""
    probe.needs("tokens")
    whole = (await generate(probe.engine, probe.request())).token_ids
    stop = whole[len(whole) // 2]
    done = await generate(probe.engine, probe.request(stop_token_ids=(stop,)))
    require(done.finish == "stop", f"it finished with {done.finish!r}")
    require(done.stop_reason == stop, f"the reason is {done.stop_reason!r} instead of {stop}")
    before = whole[: whole.index(stop)]
    require(done.token_ids in (before, [*before, stop]), f"{done.token_ids} instead of {before}")


async def logprobs_add_up_to_the_text(probe: Probe) -> None:
    """There is one log probability per token, with the requested number of alternatives, best first. Their bytes are
    the text."""
    probe.needs("logprobs")
    for wanted in (0, 3):
        done = await generate(probe.engine, probe.request(logprobs=wanted))
        require(done.logprobs, "there are none")
        if probe.has("tokens"):
            ids = [each.token_id for each in done.logprobs]
            require(ids == done.token_ids, f"of tokens {ids}, where {done.token_ids} were made")
            for output in done.outputs:
                counts = len(output.logprobs or ()), len(output.token_ids)
                require(counts[0] == counts[1], f"an output has {counts[0]} for {counts[1]} tokens")
        said = b"".join(each.bytes for each in done.logprobs).decode("utf-8", "ignore")
        require(said == done.text.rstrip("\ufffd"), f"bytes {said!r}, text {done.text!r}")
        for each in done.logprobs:
            require(each.logprob <= 0, f"a log probability of {each.logprob}")
            require(len(each.top) == wanted, f"{len(each.top)} alternatives instead of {wanted}")
            chances = [top.logprob for top in each.top]
            require(chances == sorted(chances, reverse=True), f"not best first: {chances}")


async def logprobs_stop_where_the_text_stops(probe: Probe) -> None:
    """Tokens whose text is removed by a stop string have no bytes."""
    probe.needs("logprobs")
    whole = (await generate(probe.engine, probe.request())).text
    stop = whole[len(whole) // 2 :][:3]
    if not stop.strip() or "\ufffd" in whole:
        raise NotClaimed(_SILENT)
    done = await generate(probe.engine, probe.request(stop=(stop,), logprobs=0))
    said = b"".join(each.bytes for each in done.logprobs).decode()
    require(said == done.text, f"bytes {said!r}, text {done.text!r}")


async def prompt_logprobs_are_one_for_each_token(probe: Probe) -> None:
    """Each prompt token has a log probability, except the first. Requested twice, because the prompt may be cached
    then."""
    probe.needs("prompt_logprobs")
    for _ in range(2):
        request = probe.request(prompt_logprobs=1, max_tokens=1)
        assert isinstance(request.prompt, TokensPrompt)
        done = await generate(probe.engine, request)
        reported = [output.prompt_logprobs for output in done.outputs if output.prompt_logprobs]
        require(len(reported) == 1, f"reported {len(reported)} times")
        ids = [None if each is None else each.token_id for each in reported[0]]
        wanted = [None, *request.prompt.token_ids[1:]]
        require(ids == wanted, f"of tokens {ids} instead of {wanted}")


async def a_bias_is_heeded(probe: Probe) -> None:
    """A strongly favoured token is generated, and an excluded one is not."""
    probe.needs("tokens")
    probe.needs_a_model()
    first = (await generate(probe.engine, probe.request(max_tokens=4))).token_ids[0]
    request = probe.request(max_tokens=4, logit_bias={first: -100.0})
    await probe.accepted(request, "logit_bias")
    made = (await generate(probe.engine, request)).token_ids
    require(first not in made, f"token {first} was ruled out and came: {made}")
    other = made[0]
    made = (
        await generate(probe.engine, probe.request(max_tokens=4, logit_bias={other: 100.0}))
    ).token_ids
    require(made == [other] * 4, f"token {other} was favoured, and {made} came")


async def allowed_tokens_are_kept(probe: Probe) -> None:
    """Only allowed tokens are generated."""
    probe.needs("tokens")
    probe.needs("allowed_token_ids")
    probe.needs_a_model()
    made = (await generate(probe.engine, probe.request(max_tokens=6))).token_ids
    allowed = (made[0], made[-1])
    request = probe.request(max_tokens=6, allowed_token_ids=allowed)
    await probe.accepted(request, "allowed_token_ids")
    done = (await generate(probe.engine, request)).token_ids
    require(set(done) <= set(allowed), f"only {allowed} were allowed, and {done} came")


async def bad_words_stay_out(probe: Probe) -> None:
    """Bad words are not generated, although the model would generate them first."""
    probe.needs("tokens")
    probe.needs_a_model()
    assert probe.engine.tokenizer is not None
    free = await generate(probe.engine, probe.request(ignore_eos=False))
    if not free.token_ids or not (
        word := probe.engine.tokenizer.decode(free.token_ids[:1]).strip()
    ):
        raise NotClaimed(_SILENT)
    request = probe.request(ignore_eos=False, bad_words=(word,))
    await probe.accepted(request, "bad_words")
    done = await generate(probe.engine, request)
    encoded = probe.engine.tokenizer.encode(word)
    if len(encoded) == 1:
        require(encoded[0] not in done.token_ids, f"{word!r} was ruled out: {done.text!r}")


async def min_tokens_is_kept(probe: Probe) -> None:
    """At least `min_tokens` tokens are generated, even if the model would end immediately."""
    probe.needs("tokens")
    ends = probe.engine.info.eos_token_ids
    if not ends:
        raise NotClaimed("the engine does not tell how an output ends")
    request = probe.request(ignore_eos=False, min_tokens=5, logit_bias={ends[0]: 50.0})
    await probe.accepted(request, "min_tokens with logit_bias")
    done = await generate(probe.engine, request)
    require(len(done.token_ids) >= 5, f"{len(done.token_ids)} tokens instead of at least 5")


async def a_constraint_is_enforced_or_refused(
    probe: Probe, capability: Capability, constraint: Constraint
) -> None:
    """Claimed capabilities are enforced. Other constraints may be enforced or rejected, but not ignored."""
    request = probe.request(
        constraint=constraint, ignore_eos=False, max_tokens=512, temperature=None
    )
    try:
        await probe.engine.check(request)
    except Unsupported as error:
        if probe.has(capability):
            raise GuaranteeViolated(
                f"it claims {capability}, and refuses it: {error.message}"
            ) from error
        raise NotClaimed(f"the engine does not claim {capability}") from error
    done = await generate(probe.engine, request)
    if done.finish == "length":
        # A model with random weights may extend an object endlessly. Incomplete output cannot be
        # checked.
        require(capability == "json_object", f"it came to no end: {done.text[:80]!r}")
        return
    require(satisfies(done.text, constraint), f"it wrote {done.text!r}")


async def what_a_trigger_begins_is_enforced(probe: Probe) -> None:
    """Text without the trigger is free; text after the trigger follows the constraint."""
    probe.needs("triggered")
    body = Sequence((Const("<call>"), Regex("[0-9]{2}"), Const("</call>")))
    free = await generate(probe.engine, probe.request(ignore_eos=False))
    constrained = probe.request(ignore_eos=False, constraint=Triggered("<call>", body))
    done = await generate(probe.engine, constrained)
    calls = done.text.split("<call>")[1:]
    whole = [f"<call>{call}" for call in calls[:-1] or (calls if done.finish == "stop" else [])]
    require(all(map(_CALL.match, whole)), f"it wrote {done.text!r}")
    if not calls and "<call>" not in free.text and not isinstance(probe.engine, FormatAwareEngine):
        require(bool(done.text) == bool(free.text), f"{done.text!r} instead of free text")
