"""Checks of a scoring engine: one score per pair, reproducible, and in the right order."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Sequence

from gateway.sdk import InvalidRequest, ScoreRequest, ScoreResult, ScoringEngine, TextPair
from gateway_doctor.checks.engine_probe import GuaranteeViolated, NotClaimed, Probe, require
from gateway_doctor.checks.pooled_checks import adapters_are_known, after_cancelling

QUERY = "What is the capital of France?"
DOCUMENTS = (
    "The capital of France is Paris.",
    "Horses and cows are both animals.",
    "größer 漢字 🦊",
    "x",
    "A longer text, which goes on for a while, so that not all documents are of one length.",
)
PAIRS: Sequence[TextPair] = [(QUERY, document) for document in DOCUMENTS]
_numbers = itertools.count(1)


def scorer(probe: Probe) -> ScoringEngine:
    """The engine as a `ScoringEngine`. Raises `NotClaimed` if it does not rerank."""
    probe.needs("rerank")
    engine = probe.engine
    if not isinstance(engine, ScoringEngine):
        raise GuaranteeViolated("it claims rerank, but is not a ScoringEngine")
    return engine


async def score(
    probe: Probe,
    pairs: Sequence[TextPair],
    *,
    truncate_to: int | None = None,
    max_tokens_per_document: int | None = None,
    adapter: str | None = None,
) -> ScoreResult:
    """Score `pairs` within the probe's time limit."""
    request = ScoreRequest(
        request_id=f"contract-score-{next(_numbers)}",
        pairs=pairs,
        truncate_to=truncate_to,
        max_tokens_per_document=max_tokens_per_document,
        adapter=adapter,
    )
    async with asyncio.timeout(probe.time_limit):
        return await scorer(probe).score(request)


def same(one: float, other: float) -> bool:
    """Whether two scores count as equal. Batching changes the last digits."""
    return math.isclose(one, other, rel_tol=0.02, abs_tol=1e-3)


async def scoring_says_what_it_is(probe: Probe) -> None:
    """The reported length is valid."""
    most = scorer(probe).scoring.max_input_tokens
    require(most is None or most > 0, "max_input_tokens is not positive")


async def each_pair_gets_its_score(probe: Probe) -> None:
    """There is a finite score for each pair, and tokens are counted."""
    result = await score(probe, PAIRS)
    require(len(result.scores) == len(PAIRS), f"{len(result.scores)} scores for {len(PAIRS)} pairs")
    require(all(map(math.isfinite, result.scores)), "a score is not a finite number")
    require(all(type(each) is float for each in result.scores), "a score is not a float")
    require(result.prompt_tokens >= len(PAIRS), f"{result.prompt_tokens} tokens of {len(PAIRS)}")


async def a_pair_has_one_score(probe: Probe) -> None:
    """A pair has the same score alone, among others, at another index, and together with other queries. Other pairs
    have different scores."""
    together = (await score(probe, PAIRS)).scores
    turned = (await score(probe, PAIRS[::-1])).scores[::-1]
    mixed: list[TextPair] = [each for pair in PAIRS for each in (pair, (pair[1], QUERY))]
    among = (await score(probe, mixed)).scores[::2]
    for index, (_, document) in enumerate(PAIRS):
        alone = (await score(probe, [PAIRS[index]])).scores[0]
        for other, where in (
            (alone, "alone"),
            (turned[index], "at another place"),
            (among[index], "beside other queries"),
        ):
            require(
                same(together[index], other),
                f"{document!r} scores {together[index]} among others and {other} {where}",
            )
    alike = all(same(together[0], each) for each in together)
    require(not alike, f"all documents score about {together[0]}")


async def scorings_do_not_mix(probe: Probe) -> None:
    """Sixteen concurrent requests, each with the documents in its own order, get the right scores."""
    whole = (await score(probe, PAIRS)).scores
    orders = list(itertools.islice(itertools.permutations(range(len(PAIRS))), 0, 96, 6))
    answers = await asyncio.gather(
        *(score(probe, [PAIRS[index] for index in order]) for order in orders)
    )
    for order, answer in zip(orders, answers, strict=True):
        for index, found in zip(order, answer.scores, strict=True):
            require(
                same(whole[index], found),
                f"{DOCUMENTS[index]!r} scores {whole[index]} alone and {found} under load",
            )


async def what_is_too_long_is_refused(probe: Probe) -> None:
    """The engine rejects a pair that is longer than the model's limit, with the position of the pair, and stays
    alive."""
    most = scorer(probe).scoring.max_input_tokens
    if most is None:
        raise NotClaimed("the engine does not know how long a pair may be")
    long = (QUERY, "a word and " * most)
    for pairs in ([long], [PAIRS[0], long]):
        try:
            await score(probe, pairs)
        except InvalidRequest as error:
            head = error.at[:1]
            require(head in (("pairs",), ("input",)), f"it is at pairs, not at {error.param}")
            code = error.code
            require(code == "context_length_exceeded", f"a long pair has the code {code}")
        else:
            raise GuaranteeViolated(f"it scored a pair of more than {most} tokens")
    await score(probe, PAIRS[:1])


async def texts_are_truncated(probe: Probe) -> None:
    """A pair and a document are truncated, if the engine claims it."""
    info = scorer(probe).scoring
    if not info.truncates:
        raise NotClaimed("the engine does not claim truncation")
    words = "word " * 60
    whole = (await score(probe, [(QUERY, words)])).prompt_tokens
    short = (await score(probe, [(QUERY, words)], max_tokens_per_document=5)).prompt_tokens
    require(short < whole, f"{short} tokens with a shorter document, {whole} without")
    cut = (await score(probe, [(QUERY, words)], truncate_to=20)).prompt_tokens
    require(cut <= 20, f"{cut} tokens of 20")
    if info.max_input_tokens is not None:
        long = (QUERY, "a word and " * info.max_input_tokens)
        most = (await score(probe, [long], truncate_to=-1)).prompt_tokens
        require(most <= info.max_input_tokens, f"{most} tokens of {info.max_input_tokens}")


async def cancelling_aborts_scoring(probe: Probe) -> None:
    """After requests were cancelled before and during their execution, the next request is answered."""
    pairs = list(PAIRS) * 20
    result = await after_cancelling(
        probe, lambda: score(probe, pairs), lambda: score(probe, pairs[:1])
    )
    require(len(result.scores) == 1, "the next request was not answered")
    await probe.engine.health()


async def adapters_score(probe: Probe) -> None:
    """Each adapter scores by its name. An unknown name is rejected."""
    scorer(probe)
    await adapters_are_known(probe, lambda name: score(probe, PAIRS[:1], adapter=name))
