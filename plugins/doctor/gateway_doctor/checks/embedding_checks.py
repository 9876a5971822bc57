"""Checks of an embedding engine: one vector per input, reproducible, and in the right order."""

from __future__ import annotations

import asyncio
import itertools
import math
from array import array
from collections.abc import Sequence
from operator import mul

from gateway.sdk import (
    EmbeddingEngine,
    EmbeddingInput,
    EmbeddingRequest,
    EmbeddingResult,
    InvalidRequest,
)
from gateway_doctor.checks.engine_probe import GuaranteeViolated, NotClaimed, Probe, require
from gateway_doctor.checks.pooled_checks import adapters_are_known, after_cancelling

TEXTS = (
    "The cat sat on the mat.",
    "Quarterly revenue rose by four percent.",
    "größer 漢字 🦊",
    "x",
    "A longer text, which goes on for a while, so that not all inputs are of one length.",
)
_SAME = 0.995
"""Minimum cosine similarity of vectors that count as equal: batching changes the last bits."""
_numbers = itertools.count(1)


def embedder(probe: Probe) -> EmbeddingEngine:
    """The engine as an `EmbeddingEngine`. Raises `NotClaimed` if it does not embed."""
    probe.needs("embeddings")
    engine = probe.engine
    if not isinstance(engine, EmbeddingEngine):
        raise GuaranteeViolated("it claims embeddings, but is not an EmbeddingEngine")
    return engine


def inputs_of(probe: Probe, texts: Sequence[str]) -> list[EmbeddingInput]:
    """`texts` in the form in which the gateway passes them to the engine."""
    tokenizer = probe.engine.tokenizer
    if tokenizer is None:
        return list(texts)
    return [tokenizer.encode(text, add_special_tokens=True) for text in texts]


async def embed(
    probe: Probe,
    inputs: Sequence[EmbeddingInput],
    *,
    dimensions: int | None = None,
    adapter: str | None = None,
) -> EmbeddingResult:
    """Embed `inputs` within the probe's time limit."""
    request = EmbeddingRequest(
        request_id=f"contract-embedding-{next(_numbers)}",
        inputs=inputs,
        dimensions=dimensions,
        adapter=adapter,
    )
    async with asyncio.timeout(probe.time_limit):
        return await embedder(probe).embed(request)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine similarity of two vectors; 1 if they have the same direction."""
    product = float(sum(map(mul, one, other)))
    return product / (math.hypot(*one) * math.hypot(*other))


async def embedding_info_is_complete(probe: Probe) -> None:
    """The reported dimensions and lengths are valid."""
    info = embedder(probe).embedding
    require(info.dimensions is None or info.dimensions > 0, "dimensions is not positive")
    require(
        info.max_input_tokens is None or info.max_input_tokens > 0,
        "max_input_tokens is not positive",
    )


async def each_input_gets_its_vector(probe: Probe) -> None:
    """Vectors consist of finite 32-bit floats and have the reported length, and tokens are counted."""
    inputs = inputs_of(probe, TEXTS)
    result = await embed(probe, inputs)
    vectors, reported = result.vectors, embedder(probe).embedding.dimensions
    require(len(vectors) == len(inputs), f"{len(vectors)} vectors for {len(inputs)} inputs")
    for vector in vectors:
        require(
            isinstance(vector, array) and vector.typecode == "f", "a vector is not an array of f"
        )
        require(
            reported in (None, len(vector)),
            f"{len(vector)} numbers, where {reported} were reported",
        )
        require(math.isfinite(sum(vector)) and any(vector), "a vector has no direction")
    if probe.engine.tokenizer is not None:
        length = sum(map(len, inputs))
        require(result.prompt_tokens == length, f"{result.prompt_tokens} tokens of {length}")


async def a_text_has_one_vector(probe: Probe) -> None:
    """A text has the same vector alone, in a batch, at another index, and repeated. Another text has a different
    vector."""
    inputs = inputs_of(probe, TEXTS)
    together = (await embed(probe, inputs)).vectors
    turned = (await embed(probe, inputs[::-1])).vectors[::-1]
    for index, text in enumerate(TEXTS):
        alone = (await embed(probe, [inputs[index]])).vectors[0]
        for other, where in ((alone, "alone"), (turned[index], "at another place")):
            near = cosine(together[index], other)
            require(near > _SAME, f"{text!r} {where} is {near:.4f} like itself among others")
    near = cosine(together[0], together[1])
    require(near < _SAME, f"two different texts are {near:.4f} alike")


async def requests_do_not_mix(probe: Probe) -> None:
    """Sixteen concurrent requests, each with its own texts in its own order, get the right vectors."""
    inputs = inputs_of(probe, TEXTS)
    whole = (await embed(probe, inputs)).vectors
    orders = list(itertools.islice(itertools.permutations(range(len(inputs))), 0, 96, 6))
    answers = await asyncio.gather(
        *(embed(probe, [inputs[index] for index in order]) for order in orders)
    )
    for order, answer in zip(orders, answers, strict=True):
        for index, vector in zip(order, answer.vectors, strict=True):
            near = cosine(whole[index], vector)
            require(near > _SAME, f"{TEXTS[index]!r} is {near:.4f} like itself under load")


async def shorter_vectors_are_the_beginnings(probe: Probe) -> None:
    """If shorter vectors are supported, they are prefixes of the whole vector, normalized to length 1."""
    info = embedder(probe).embedding
    if info.shorter is None or info.shorter is False:
        raise NotClaimed("the engine does not claim shorter vectors")
    inputs = inputs_of(probe, TEXTS[:2])
    whole = (await embed(probe, inputs)).vectors
    wanted = (max(1, len(whole[0]) // 2),) if info.shorter is True else info.shorter
    for dimensions in wanted:
        cut = (await embed(probe, inputs, dimensions=dimensions)).vectors
        for long, short in zip(whole, cut, strict=True):
            require(len(short) == dimensions, f"{len(short)} numbers, not {dimensions}")
            require(abs(math.hypot(*short) - 1) < 0.01, "a shorter vector is not of length 1")
            near = cosine(long[:dimensions], short)
            require(near > _SAME, f"a shorter vector is {near:.4f} like the longer one's beginning")


async def what_cannot_be_embedded_is_refused(probe: Probe) -> None:
    """The engine rejects ids outside the vocabulary and inputs that are one token too long, and stays alive."""
    if probe.engine.tokenizer is None:
        raise NotClaimed("the engine does not report token ids")
    good, most = inputs_of(probe, TEXTS[:1])[0], embedder(probe).embedding.max_input_tokens
    bad: list[tuple[str, EmbeddingInput]] = [
        (f"the token id {each}", [each]) for each in probe.bad_token_ids
    ]
    if most is not None:
        text = "a word and " * most
        long = probe.engine.tokenizer.encode(text)[: most + 1]
        bad.append((f"an input of {len(long)} tokens", long))
    for what, given in bad:
        for inputs, places in (
            ([given], {("input",), ("input", 0)}),
            ([good, given], {("input", 1)}),
        ):
            try:
                await embed(probe, inputs)
            except InvalidRequest as error:
                place = f"input[{len(inputs) - 1}]"
                require(error.at in places, f"{what} is at {place}, not at {error.param}")
            else:
                raise GuaranteeViolated(f"it embedded {what}")
    await embed(probe, [good])


async def cancelling_aborts_embedding(probe: Probe) -> None:
    """After requests were cancelled before and during their execution, the next request is answered."""
    inputs = inputs_of(probe, TEXTS) * 20
    result = await after_cancelling(
        probe, lambda: embed(probe, inputs), lambda: embed(probe, inputs[:1])
    )
    require(len(result.vectors) == 1, "the next request was not answered")
    await probe.engine.health()


async def adapters_embed(probe: Probe) -> None:
    """Each adapter embeds by its name. An unknown name is rejected."""
    embedder(probe)
    inputs = inputs_of(probe, TEXTS[:1])
    await adapters_are_known(probe, lambda name: embed(probe, inputs, adapter=name))
