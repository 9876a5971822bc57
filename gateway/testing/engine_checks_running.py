"""Checks of an engine: that it generates, streams, keeps requests apart, and lets go of what is left."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from gateway.protocols import EngineRequest, TokensPrompt
from gateway.testing.engine_probe import CheckFailed, NotOffered, Probe, require
from gateway.testing.generating import generate


async def says_what_it_is(probe: Probe) -> None:
    """Name, kind and capabilities."""
    engine, info = probe.engine, probe.engine.info
    require(info.name and info.engine, "info has no name or no engine")
    require(
        engine.capabilities & {"tokens", "messages", "embeddings"},
        "it takes neither tokens nor messages, and embeds nothing",
    )
    require(info.max_model_len is None or info.max_model_len > 0, "max_model_len is not positive")
    require(engine.tokenizer is not None or not probe.has("tokens"), "it has no tokenizer")


async def is_healthy(probe: Probe) -> None:
    """A running engine says so."""
    await probe.engine.health()


async def only_the_last_output_has_a_finish_reason(probe: Probe) -> None:
    """The last, and only the last."""
    done = await generate(probe.engine, probe.request())
    early = [output.finish_reason for output in done.outputs[:-1]]
    require(early == [None] * len(early), f"finish reasons before the end: {early}")
    require(done.finish in ("stop", "length"), f"it finished with {done.finish!r}")


async def streams(probe: Probe) -> None:
    """A long answer comes in several outputs."""
    done = await generate(probe.engine, probe.request(max_tokens=min(64, probe.long)))
    given = [each for each in done.outputs if each.text or each.token_ids or each.deltas]
    require(len(given) > 1, f"all {len(done.token_ids)} tokens came in one output")


async def checking_starts_nothing(probe: Probe) -> None:
    """And accepts what is then generated."""
    request = probe.request()
    await probe.engine.check(request)
    await probe.engine.check(request)
    require((await generate(probe.engine, request)).outputs, "nothing was generated")


async def the_text_is_what_the_tokens_decode_to(probe: Probe) -> None:
    """Whole, and never cumulative."""
    probe.needs("tokens")
    tokenizer = probe.engine.tokenizer
    assert tokenizer is not None
    done = await generate(probe.engine, probe.request(skip_special_tokens=False))
    require(done.token_ids, "there are no token ids")
    # A character that the limit cut in two may be left out, or shown by a replacement character.
    decoded = tokenizer.decode(done.token_ids).rstrip("\ufffd")
    require(done.text.rstrip("\ufffd") == decoded, f"text {done.text!r}, tokens {decoded!r}")


async def max_tokens_is_kept(probe: Probe) -> None:
    """To the token."""
    for limit in (1, 5):
        done = await generate(probe.engine, probe.request(max_tokens=limit))
        require(done.finish == "length", f"it finished with {done.finish!r}")
        if probe.has("tokens"):
            made = len(done.token_ids)
            require(made == limit, f"{made} tokens where the limit was {limit}")


async def the_prompt_is_counted(probe: Probe) -> None:
    """Where the engine tells the prompt's length, it is the prompt's length."""
    probe.needs("tokens")
    request = probe.request(max_tokens=2)
    assert isinstance(request.prompt, TokensPrompt)
    done = await generate(probe.engine, request)
    told = {o.prompt_tokens for o in done.outputs if o.prompt_tokens is not None}
    length = len(request.prompt.token_ids)
    require(told <= {length}, f"told {told} for {length} tokens")


async def greedy_is_the_same_again(probe: Probe) -> None:
    """The same request, the same text."""
    one = await generate(probe.engine, probe.request())
    other = await generate(probe.engine, probe.request())
    require(one.text == other.text, f"{one.text!r}, then {other.text!r}")


async def a_seed_makes_sampling_repeatable(probe: Probe) -> None:
    """The same seed, the same text."""
    wanted: dict[str, Any] = {"temperature": 1.0, "seed": 1234}
    one = await generate(probe.engine, probe.request(**wanted))
    other = await generate(probe.engine, probe.request(**wanted))
    require(one.text == other.text, f"{one.text!r}, then {other.text!r}")


async def eight_at_once_do_not_mix(probe: Probe) -> None:
    """Each has its own limit, by which its output is told from the others'."""
    limits = range(1, 9)
    requests = [probe.request(max_tokens=limit) for limit in limits]
    async with asyncio.timeout(probe.time_limit):
        done = await asyncio.gather(*(generate(probe.engine, request) for request in requests))
    finishes = [each.finish for each in done]
    require(finishes == ["length"] * 8, f"they finished with {finishes}")
    if probe.has("tokens"):
        made = [len(each.token_ids) for each in done]
        require(made == list(limits), f"{made} tokens where the limits were 1 to 8")


async def closing_aborts(probe: Probe) -> None:
    """More requests than an engine runs at once are begun and left: were they not aborted, the last would wait."""
    async with asyncio.timeout(probe.time_limit):
        for _ in range(16):
            request = probe.request(max_tokens=probe.long)
            async with aclosing(probe.engine.generate(request)) as stream:
                await anext(stream)
        done = await generate(probe.engine, probe.request())
    require(done.finish is not None, "the next request did not finish")
    await probe.engine.health()


async def cancelling_aborts(probe: Probe) -> None:
    """Between outputs, and before the first."""

    async def consume(request: EngineRequest) -> None:
        async with aclosing(probe.engine.generate(request)) as stream:
            async for _ in stream:
                started.set()
                await asyncio.sleep(3600)

    async with asyncio.timeout(probe.time_limit):
        for _ in range(4):
            started = asyncio.Event()
            task = asyncio.create_task(consume(probe.request(max_tokens=probe.long)))
            await started.wait()
            await _cancelled(task)
        unstarted = asyncio.create_task(generate(probe.engine, probe.request()))
        await asyncio.sleep(0)
        await _cancelled(unstarted)
        done = await generate(probe.engine, probe.request())
    require(done.finish is not None, "the next request did not finish")
    await probe.engine.health()


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        raise CheckFailed(f"a cancelled request ended with {task.exception() or task.result()!r}")


async def adapters_generate(probe: Probe) -> None:
    """Each by its name; another name is refused."""
    probe.needs("adapters")
    for name in probe.engine.info.adapters:
        done = await generate(probe.engine, probe.request(adapter=name, max_tokens=4))
        require(done.finish == "length", f"'{name}' finished with {done.finish!r}")
    if not probe.engine.info.adapters:
        raise NotOffered("no adapter is configured")
    await probe.refused(probe.request(adapter="no-such-adapter"), "an adapter that is not there")
