"""Checks of an engine: generating, streaming, isolation of requests, and aborts."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any, Final

from gateway.sdk import EngineOutput, EngineRequest, PushingEngine, TokensPrompt
from gateway_doctor.checks.engine_probe import GuaranteeViolated, NotClaimed, Probe, require
from gateway_doctor.checks.generating import generate, generated
from gateway_doctor.checks.loop_watch import Leftovers, loop_stays_free

_ANSWERS: Final = 5
"""Number of answers that are tried. One of them must arrive in several outputs, and let other tasks run."""
_REQUESTS: Final = 8
"""Number of requests, to detect tasks and threads that each request leaves behind."""


async def info_is_complete(probe: Probe) -> None:
    """Name, kind and capabilities are set."""
    engine, info = probe.engine, probe.engine.info
    require(info.name and info.engine, "info has no name or no engine")
    require(
        engine.capabilities & {"tokens", "messages", "embeddings", "rerank"},
        "it takes neither tokens nor messages, and neither embeds nor reranks",
    )
    require(info.max_model_len is None or info.max_model_len > 0, "max_model_len is not positive")
    require(engine.tokenizer is not None or not probe.has("tokens"), "it has no tokenizer")


async def is_healthy(probe: Probe) -> None:
    """A running engine reports that it is healthy."""
    await probe.engine.health()


async def only_the_last_output_has_a_finish_reason(probe: Probe) -> None:
    """The last output, and no other, has a finish reason."""
    done = await generate(probe.engine, probe.request())
    early = [output.finish_reason for output in done.outputs[:-1]]
    require(early == [None] * len(early), f"finish reasons before the end: {early}")
    require(done.finish in ("stop", "length"), f"it finished with {done.finish!r}")


async def streams(probe: Probe) -> None:
    """A long answer is sent in several outputs.

    On a busy machine, outputs may arrive together because they are read more slowly than they are made. Therefore
    several answers are tried.
    """
    for _ in range(_ANSWERS):
        done = await generate(probe.engine, probe.request(max_tokens=min(64, probe.long)))
        given = [each for each in done.outputs if each.text or each.token_ids or each.deltas]
        if len(given) > 1:
            return
    raise GuaranteeViolated(
        f"each of {_ANSWERS} long answers came in one output, such as {done.text!r}"
    )


async def leaves_the_loop_free(probe: Probe) -> None:
    """Other tasks run while the engine generates.

    Outputs that are ready may be returned without waiting. Therefore several answers are tried.
    """
    outputs = 0
    for _ in range(_ANSWERS):
        request = probe.request(max_tokens=min(64, probe.long))
        others = asyncio.Event()
        async with loop_stays_free("the engine"):
            asyncio.get_running_loop().call_soon(others.set)
            async with aclosing(probe.engine.generate(request)) as stream:
                async for _ in stream:
                    outputs += 1
            free = others.is_set()
        if free:
            return
    raise GuaranteeViolated(
        f"no other task could run while {_ANSWERS} answers ({outputs} outputs) were generated: generate never waits. Run the "
        "model in a thread or a process, and await its outputs"
    )


async def requests_leave_nothing_running(probe: Probe) -> None:
    """A request that has ended or was aborted leaves no task and no thread behind."""
    for index in range(2 + _REQUESTS):
        if index == 2:  # tasks and threads started by the first requests may be permanent
            before = Leftovers()
        await generate(probe.engine, probe.request(max_tokens=2))
        async with aclosing(probe.engine.generate(probe.request(max_tokens=probe.long))) as stream:
            await anext(stream)
    left = await before.settled(_REQUESTS // 2, probe.time_limit)
    require(
        len(left) <= _REQUESTS // 2,
        f"{2 * _REQUESTS} requests have left {len(left)} tasks and threads, such as {'; '.join(left[:3])}. End in generate, by "
        "try and finally, what a request has started",
    )


async def checking_starts_nothing(probe: Probe) -> None:
    """`check` accepts a request that can be generated, and does not start the generation."""
    request = probe.request()
    await probe.engine.check(request)
    await probe.engine.check(request)
    require((await generate(probe.engine, request)).outputs, "nothing was generated")


async def the_text_is_what_the_tokens_decode_to(probe: Probe) -> None:
    """The text equals the decoded tokens. It is complete, and no output repeats the text of earlier ones."""
    probe.needs("tokens")
    tokenizer = probe.engine.tokenizer
    assert tokenizer is not None
    done = await generate(probe.engine, probe.request(skip_special_tokens=False))
    require(done.token_ids, "there are no token ids")
    # A character that was cut in two by the limit is not text. Tokenizers decode it as replacement
    # characters.
    decoded = tokenizer.decode(done.token_ids)
    whole = decoded.rstrip("\ufffd")
    require(done.text in (decoded, whole), f"text {done.text!r}, tokens {decoded!r}")


async def max_tokens_is_kept(probe: Probe) -> None:
    """The output has exactly `max_tokens` tokens."""
    for limit in (1, 5):
        done = await generate(probe.engine, probe.request(max_tokens=limit))
        require(done.finish == "length", f"it finished with {done.finish!r}")
        if probe.has("tokens"):
            made = len(done.token_ids)
            require(made == limit, f"{made} tokens where the limit was {limit}")


async def the_prompt_is_counted(probe: Probe) -> None:
    """If the engine reports the prompt's length, it is correct."""
    probe.needs("tokens")
    request = probe.request(max_tokens=2)
    assert isinstance(request.prompt, TokensPrompt)
    done = await generate(probe.engine, request)
    counts = {o.prompt_tokens for o in done.outputs if o.prompt_tokens is not None}
    length = len(request.prompt.token_ids)
    require(counts <= {length}, f"reported {counts} for {length} tokens")


class _Taker:
    """Takes pushed outputs, except each `every`th one and those that must be yielded."""

    def __init__(self, every: int) -> None:
        self.outputs: list[EngineOutput] = []
        self.closed = False
        self._every = every
        self._pushed = 0
        self._waits = False

    def push(self, output: EngineOutput) -> bool:
        require(not self.closed, "it pushes an output after its generator was closed")
        if self._waits or not self.outputs or output.finish_reason is not None:
            return False
        self._pushed += 1
        if self._pushed % self._every == 0:
            self._waits = True
            return False
        self.outputs.append(output)
        return True

    def see(self, output: EngineOutput) -> None:
        self.outputs.append(output)
        self._waits = False


async def pushed_outputs_are_those_that_are_yielded(probe: Probe) -> None:
    """An engine that pushes outputs gives the same text and tokens in the same order, whichever outputs are taken, and
    pushes none after it was closed."""
    engine = probe.engine
    if not isinstance(engine, PushingEngine):
        raise NotClaimed("it pushes no outputs")
    plain = await generate(engine, probe.request())
    for every in (1, 2, 3):  # with 1, no output is taken
        taker = _Taker(every)
        async with aclosing(engine.generate_pushing(probe.request(), taker.push)) as stream:
            async for output in stream:
                taker.see(output)
        taker.closed = True
        done = generated(taker.outputs)
        require(
            (done.text, done.token_ids, done.finish) == (plain.text, plain.token_ids, plain.finish),
            f"with pushed outputs the text is {done.text!r}, without them {plain.text!r}",
        )
        aborted = _Taker(every)
        async with aclosing(engine.generate_pushing(probe.request(), aborted.push)) as stream:
            aborted.see(await anext(stream))
        aborted.closed = True
        await generate(engine, probe.request(max_tokens=2))


async def greedy_is_the_same_again(probe: Probe) -> None:
    """The same greedy request gives the same text."""
    one = await generate(probe.engine, probe.request())
    other = await generate(probe.engine, probe.request())
    require(one.text == other.text, f"{one.text!r}, then {other.text!r}")


async def a_seed_makes_sampling_repeatable(probe: Probe) -> None:
    """Sampling with the same seed gives the same text."""
    wanted: dict[str, Any] = {"temperature": 1.0, "seed": 1234}
    one = await generate(probe.engine, probe.request(**wanted))
    other = await generate(probe.engine, probe.request(**wanted))
    require(one.text == other.text, f"{one.text!r}, then {other.text!r}")


async def eight_at_once_do_not_mix(probe: Probe) -> None:
    """Eight concurrent requests get their own outputs. Each has another limit, which identifies its output."""
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
    """Closing a generation aborts it: after more requests were started and closed than an engine runs concurrently, the
    next one does not have to wait."""
    async with asyncio.timeout(probe.time_limit):
        for _ in range(16):
            request = probe.request(max_tokens=probe.long)
            async with aclosing(probe.engine.generate(request)) as stream:
                await anext(stream)
        done = await generate(probe.engine, probe.request())
    require(done.finish is not None, "the next request did not finish")
    await probe.engine.health()


async def cancelling_aborts(probe: Probe) -> None:
    """Cancelling a task aborts its generation, between two outputs and before the first one."""

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
        raise GuaranteeViolated(
            f"a cancelled request ended with {task.exception() or task.result()!r}"
        )


async def adapters_generate(probe: Probe) -> None:
    """Each adapter generates by its name. An unknown name is rejected."""
    probe.needs("adapters")
    for name in probe.engine.info.adapters:
        done = await generate(probe.engine, probe.request(adapter=name, max_tokens=4))
        require(done.finish == "length", f"'{name}' finished with {done.finish!r}")
    if not probe.engine.info.adapters:
        raise NotClaimed("no adapter is configured")
    await probe.refused(probe.request(adapter="no-such-adapter"), "an adapter that is not there")
