"""Checks of an engine that embeds: a vector for each input, the same each time, and nothing mixed up."""

from __future__ import annotations

import asyncio
import itertools
import math
from array import array
from collections.abc import Sequence
from operator import mul

from gateway.errors import InvalidRequest
from gateway.protocols import EmbeddingEngine, EmbeddingInput, EmbeddingRequest, EmbeddingResult
from gateway.testing.engine_probe import CheckFailed, NotOffered, Probe, require

TEXTS = (
    "The cat sat on the mat.",
    "Quarterly revenue rose by four percent.",
    "größer 漢字 🦊",
    "x",
    "A longer text, which goes on for a while, so that not all inputs are of one length.",
)
_SAME = 0.995
"""The cosine of what counts as the same: batches change the last bits."""
_numbers = itertools.count(1)


def embedder(probe: Probe) -> EmbeddingEngine:
    """The engine, as one that embeds. Raises `NotOffered`."""
    probe.needs("embeddings")
    engine = probe.engine
    if not isinstance(engine, EmbeddingEngine):
        raise CheckFailed("it claims embeddings, and is no EmbeddingEngine")
    return engine


def inputs_of(probe: Probe, texts: Sequence[str]) -> list[EmbeddingInput]:
    """Texts, in the form in which the gateway hands them over."""
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
    """What the engine makes of `inputs`, within the probe's time."""
    request = EmbeddingRequest(
        request_id=f"contract-embedding-{next(_numbers)}",
        inputs=inputs,
        dimensions=dimensions,
        adapter=adapter,
    )
    async with asyncio.timeout(probe.time_limit):
        return await embedder(probe).embed(request)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """1 for the same direction."""
    product = float(sum(map(mul, one, other)))
    return product / (math.hypot(*one) * math.hypot(*other))


async def embedding_says_what_it_is(probe: Probe) -> None:
    """Dimensions and lengths that can be."""
    info = embedder(probe).embedding
    require(info.dimensions is None or info.dimensions > 0, "dimensions is not positive")
    require(
        info.max_input_tokens is None or info.max_input_tokens > 0,
        "max_input_tokens is not positive",
    )


async def each_input_gets_its_vector(probe: Probe) -> None:
    """32-bit floats, as many as were told, finite, and counted tokens."""
    inputs = inputs_of(probe, TEXTS)
    result = await embed(probe, inputs)
    vectors, told = result.vectors, embedder(probe).embedding.dimensions
    require(len(vectors) == len(inputs), f"{len(vectors)} vectors for {len(inputs)} inputs")
    for vector in vectors:
        require(isinstance(vector, array) and vector.typecode == "f", "a vector is no array of f")
        require(told in (None, len(vector)), f"{len(vector)} numbers, where {told} were told")
        require(math.isfinite(sum(vector)) and any(vector), "a vector has no direction")
    if probe.engine.tokenizer is not None:
        length = sum(map(len, inputs))
        require(result.prompt_tokens == length, f"{result.prompt_tokens} tokens of {length}")


async def a_text_has_one_vector(probe: Probe) -> None:
    """Alone, beside others, at another place, again; and another text has another."""
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
    """Sixteen at once, each with its own texts in its own order."""
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
    """Where they may be asked for: cut, and of length 1 again."""
    info = embedder(probe).embedding
    if info.shorter is None or info.shorter is False:
        raise NotOffered("the engine does not claim shorter vectors")
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
    """Ids outside of the vocabulary, and one token more than there may be; the engine lives."""
    if probe.engine.tokenizer is None:
        raise NotOffered("the engine keeps its tokens to itself")
    good, most = inputs_of(probe, TEXTS[:1])[0], embedder(probe).embedding.max_input_tokens
    bad: list[tuple[str, EmbeddingInput]] = [
        (f"the token id {each}", [each]) for each in probe.bad_token_ids
    ]
    if most is not None:
        text = "a word and " * most
        long = probe.engine.tokenizer.encode(text)[: most + 1]
        bad.append((f"an input of {len(long)} tokens", long))
    for what, given in bad:
        for inputs, param in (([given], "input"), ([good, given], "input[1]")):
            try:
                await embed(probe, inputs)
            except InvalidRequest as error:
                require(error.param == param, f"{what} is at {param}, not at {error.param}")
            else:
                raise CheckFailed(f"it embedded {what}")
    await embed(probe, [good])


async def cancelling_aborts_embedding(probe: Probe) -> None:
    """Before it begins and in the middle: were they not aborted, the last would wait."""
    inputs = inputs_of(probe, TEXTS) * 20
    async with asyncio.timeout(probe.time_limit):
        for pause in (0.0, 0.0, 0.001, 0.01, 0.01):
            task = asyncio.create_task(embed(probe, inputs))
            await asyncio.sleep(pause)
            task.cancel()
            await asyncio.wait([task])
        result = await embed(probe, inputs[:1])
    require(len(result.vectors) == 1, "the next request was not answered")
    await probe.engine.health()


async def adapters_embed(probe: Probe) -> None:
    """Each by its name; another name is refused."""
    embedder(probe)
    probe.needs("adapters")
    inputs = inputs_of(probe, TEXTS[:1])
    for name in probe.engine.info.adapters:
        await embed(probe, inputs, adapter=name)
    try:
        await embed(probe, inputs, adapter="no-such-adapter")
    except InvalidRequest as error:
        require(error.param == "model", f"a missing adapter is at model, not at {error.param}")
    else:
        raise CheckFailed("it took an adapter that is not there")
