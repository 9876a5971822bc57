"""A generation is the same however its outputs come, and tells its end whatever it is."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from gateway.base.deltas import TextDelta
from gateway.base.errors import EngineError, EngineUnavailable, GatewayError
from gateway.generation.generation import Generation, GenerationSettings
from gateway.generation.generation_run import GenerationRun, Observer
from gateway.generation.intake import MAX_TOGETHER
from gateway.generation.sinks import ACCEPTED, Accepted, HeldSink
from gateway.generation.text_stops import RequestStops
from gateway.items.assembler import ResponseAssembler
from gateway.observe.run_stats import RunStats
from gateway.plugins.protocols import (
    ChatPrompt,
    EngineOutput,
    EngineRequest,
    FinishReason,
    Prompt,
    RenderedPrompt,
    Sampling,
    TokenLogprob,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.tools.roles import CallRole
from gateway.wire.events import Event, OutputItemDone
from gateway.wire.response import Response
from tests.gateway.generation.told_engine import HANG, PushingTold, Step, ToldEngine, served
from tests.gateway.items.cut_outputs import batched, cut
from tests.gateway.items.random_deltas import DELTAS

CALL = '<tool_call>\n{"name": "client", "arguments": {"what": "x"}}\n</tool_call>'
TURN = Turn(items=[], tools=[ToolDefinition(name="client", parameters={"type": "object"})])
DEFAULT = Sampling()
TOKENS = TokensPrompt(token_ids=(1, 2, 3))


def generation(
    turn: Turn = TURN,
    *,
    prompt: Prompt = TOKENS,
    prefill: str = "",
    sampling: Sampling = DEFAULT,
) -> Generation:
    return Generation(
        turn=turn,
        rendered=RenderedPrompt(prompt=prompt, tail="text", prefill=prefill),
        request=EngineRequest(request_id="gen_1", prompt=prompt, sampling=sampling, tail="text"),
    )


class Result(Struct, frozen=True):
    """Everything that a generation has given."""

    items: Any
    error: str | None
    finish: FinishReason | None
    stop_reason: str | int | None
    tokens: int
    prompt: int
    cached: int
    reasoning: int
    has_output: bool
    has_answered: bool
    was_cancelled: bool
    has_content: bool
    counted: int
    """Number of tokens in the statistics."""


def assembler(*, quiet: bool = False) -> ResponseAssembler:
    numbers = itertools.count()
    return ResponseAssembler(
        Response(id="resp_1", created_at=0, model="m", status="in_progress"),
        roles={"client": CallRole()},
        new_id=lambda prefix: f"{prefix}{next(numbers)}",
        clock=lambda: 7.0,
        quiet=quiet,
    )


async def play(
    engine: ToldEngine,
    asked: Generation,
    *,
    parser: str = "qwen3",
    together: bool = False,
    accepts: Callable[[], bool] = lambda: True,
) -> Result:
    """Run a generation to its end, or cancel it where the engine hangs. `accepts`: whether the sink takes the next part at
    once."""
    written = assembler(quiet=together)
    stats = RunStats(api="responses")
    sent: list[Event] = []
    ended: list[GenerationRun[Any]] = []

    waiting = 0

    async def take_late() -> None:
        nonlocal waiting
        try:
            for _ in range(8):
                await asyncio.sleep(0)
        finally:
            waiting -= 1

    def sink(events: Sequence[Event]) -> Awaitable[None]:
        nonlocal waiting
        assert not waiting, "what was sent last is not taken yet"
        sent.extend(events)
        if accepts():
            return ACCEPTED
        waiting += 1
        return take_late()

    def end(run: GenerationRun[Any]) -> None:
        ended.append(run)
        assert engine.closed == 1, "the engine has ended before"

    run = GenerationRun(
        served(engine, parser),
        GenerationSettings(sampling=asked.request.sampling, stops=RequestStops(())),
        asked,
        written,
        sink,
        aligner=None,
        observer=None,
        stats=stats,
        together=together,
    )
    task = asyncio.create_task(run.run(end))
    hanging = asyncio.create_task(engine.hangs.wait())
    await asyncio.wait([task, hanging], return_when=asyncio.FIRST_COMPLETED)
    if hanging.done():
        task.cancel()
    hanging.cancel()
    [last, _] = await asyncio.gather(task, hanging, return_exceptions=True)
    if isinstance(last, BaseException):
        assert isinstance(last, GatewayError | ValueError | asyncio.CancelledError), last
        sent += written.fail("c", "m", None)
    else:
        sent += last
        sent += written.finish(None)
    assert ended == [run], "it ends once"
    assert len(engine.requests) == 1
    if isinstance(engine, PushingTold):
        assert engine.push is not None
        assert not engine.push(EngineOutput(text="late")), "nothing is taken after the end"
    assert not stats.generations
    assert [event.sequence_number for event in sent] == [*range(len(sent))], (
        "all were sent, in order"
    )
    assert together or not written.response.output or sent
    return Result(
        items=msgspec.to_builtins(written.response.output),
        error=repr(last) if isinstance(last, Exception) else None,
        finish=run.finish,
        stop_reason=run.stop_reason,
        tokens=run.tokens,
        prompt=run.count.prompt,
        cached=run.count.cached,
        reasoning=run.count.reasoning or run.parser.reasoning_tokens,
        has_output=run.has_output,
        has_answered=run.has_answered,
        was_cancelled=run.was_cancelled,
        has_content=run.at > 0,
        counted=stats.output_tokens,
    )


WORDS = ["Hello ", "<think>\nhm", "\n</think>\n\n", CALL, "<tool_call>\n{", '"name": "client"', "}", "<thi", "漢字", "\n"]  # fmt: skip
SIZES = st.lists(st.integers(0, 12), max_size=12)


REASONS: list[FinishReason] = ["stop", "length", "error", "abort"]
FAILURES: list[list[Step]] = [
    [EngineError("It failed.")],
    [EngineUnavailable("It is gone.")],
    [ValueError("a bug")],
    [],
    [HANG],
]


def ends(output: EngineOutput) -> st.SearchStrategy[list[Step]]:
    """The last steps of an engine. `output` is the last output, if there is one, without its reason."""
    last = st.builds(
        partial(msgspec.structs.replace, output),
        finish_reason=st.sampled_from(REASONS),
        stop_reason=st.sampled_from([None, 5]),
    )
    return st.sampled_from(FAILURES) | last.map(lambda each: [each])


@st.composite
def texts(draw: st.DrawFn) -> list[Step]:
    """Outputs of an engine that takes tokens: a text in pieces, which are often more than are kept."""
    text = "".join(draw(st.lists(st.sampled_from(WORDS), max_size=8)))
    pieces: Sequence[str] = cut(text, draw(SIZES))
    if draw(st.booleans()):
        pieces = [*text, *"and so on, and on. " * draw(st.integers(0, 12))]
    ids = draw(st.lists(st.integers(0, 3), max_size=8)) or [1]
    outputs = [
        EngineOutput(text=each, token_ids=(1,) * count)
        for each, count in zip(pieces, itertools.cycle(ids), strict=False)
    ]
    last = EngineOutput()
    if draw(st.booleans()) and outputs:
        outputs[0].prompt_tokens, outputs[0].cached_tokens = 7, 3
    else:
        last = EngineOutput(prompt_tokens=9, cached_tokens=0, text="end", token_ids=(4, 5))
    return [*outputs, *draw(ends(last))]


@st.composite
def messages(draw: st.DrawFn) -> list[Step]:
    """Outputs of an engine that takes messages: deltas."""
    outputs = [EngineOutput(deltas=each) for each in batched(draw(DELTAS), draw(SIZES))]
    last = EngineOutput(deltas=[TextDelta("end")])
    if draw(st.booleans()):
        last.prompt_tokens, last.output_tokens, last.reasoning_tokens = 9, 21, 4
    return [*outputs, *draw(ends(last))]


OFFERS = st.lists(st.booleans(), max_size=40)


def chances(seed: int) -> Callable[[], bool]:
    """A sink that accepts two parts of three, in an order that depends on `seed`."""
    random_ = random.Random(seed)
    return lambda: random_.random() < 2 / 3


@settings(max_examples=60)
@given(
    steps=texts(),
    offers=OFFERS,
    seed=st.integers(0, 99),
    parser=st.sampled_from(["qwen3", "hermes"]),
    prefill=st.sampled_from(["", "<think>\n", "So "]),
)
def test_texts_give_the_same_however_they_come(
    steps: list[Step], offers: list[bool], seed: int, parser: str, prefill: str
) -> None:
    asked = generation(prefill=prefill)
    run = partial(play, asked=asked, parser=parser)
    expected = asyncio.run(run(ToldEngine(steps)))
    assert asyncio.run(run(ToldEngine(steps), together=True)) == expected
    for together in (False, True):
        engine = PushingTold(steps, offers)
        assert asyncio.run(run(engine, together=together, accepts=chances(seed))) == expected


@settings(max_examples=60)
@given(steps=messages(), offers=OFFERS, seed=st.integers(0, 99))
def test_messages_give_the_same_however_they_come(
    steps: list[Step], offers: list[bool], seed: int
) -> None:
    asked = generation(prompt=ChatPrompt(messages=[{"role": "user", "content": "Hello"}]))
    made: Any = partial(ToldEngine, capability="messages")
    expected = asyncio.run(play(made(steps), asked))
    assert asyncio.run(play(made(steps), asked, together=True)) == expected
    for together in (False, True):
        engine = PushingTold(steps, offers, capability="messages")
        found = asyncio.run(play(engine, asked, together=together, accepts=chances(seed)))
        assert found == expected


async def forget(events: Sequence[Event]) -> None:
    """A sink of a test that does not look at what is sent."""


def begun(
    engine: ToldEngine,
    asked: Generation,
    sink: Callable[[Sequence[Event]], Awaitable[None]] = forget,
    *,
    observer: Observer | None = None,
    stats: RunStats | None = None,
    together: bool = False,
) -> GenerationRun[Sequence[Event]]:
    sampling = asked.request.sampling
    return GenerationRun(
        served(engine),
        GenerationSettings(sampling=sampling, stops=RequestStops(sampling.stop)),
        asked,
        assembler(),
        sink,
        aligner=None,
        observer=observer,
        stats=stats,
        together=together,
    )


async def done(run: GenerationRun[Sequence[Event]]) -> Sequence[Event]:
    """The last part of what a generation gives."""
    return await run.run(lambda run: None)


async def failure(run: GenerationRun[Sequence[Event]]) -> GatewayError:
    """The error with which a generation fails."""
    with pytest.raises(GatewayError) as caught:
        await done(run)
    return caught.value


def finished(events: Sequence[Event]) -> list[str]:
    """The types of the items that ended."""
    return [
        str(msgspec.to_builtins(each.item)["type"])
        for each in events
        if isinstance(each, OutputItemDone)
    ]


def text_of(events: Sequence[Event]) -> str:
    return "".join(getattr(event, "delta", "") for event in events)


END = EngineOutput(finish_reason="stop")


@pytest.mark.anyio
async def test_the_last_part_is_returned_and_not_sent() -> None:
    sent: list[Event] = []

    async def sink(events: Sequence[Event]) -> None:
        sent.extend(events)

    steps = [EngineOutput(text="One"), EngineOutput(text=" two", finish_reason="stop")]
    last = await done(begun(ToldEngine(steps), generation(), sink))
    assert text_of(sent) == "One"
    assert text_of(last) == " two"
    assert sent[-1].sequence_number + 1 == last[0].sequence_number


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (None, "without a finish reason"),
        (EngineOutput(finish_reason="error"), "before it was complete"),
        (EngineOutput(finish_reason="abort"), "before it was complete"),
        (EngineUnavailable("It is gone."), "It is gone."),
    ],
)
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.anyio
async def test_an_engine_that_fails_fails_after_everything_was_written(
    step: Step | None, message: str, *, together: bool
) -> None:
    sent: list[Event] = []

    async def sink(events: Sequence[Event]) -> None:
        sent.extend(events)

    steps: list[Step] = [EngineOutput(text="So <tool_c"), *([] if step is None else [step])]
    run = begun(ToldEngine(steps), generation(), sink, together=together)
    error = await failure(run)
    assert isinstance(error, EngineError | EngineUnavailable)
    assert message in error.message
    if not together:
        assert text_of(sent) == "So <tool_c", "also what the parser held back"
    assert run.has_answered


@pytest.mark.parametrize("max_tokens", [16, 17, None])
@pytest.mark.anyio
async def test_only_a_short_generation_is_read_in_the_task_of_its_caller(
    max_tokens: int | None,
) -> None:
    engine = ToldEngine([END])
    asked = generation(sampling=Sampling(max_tokens=max_tokens))
    caller = asyncio.create_task(begun(engine, asked).run(lambda run: None))
    await caller
    assert (engine.task is caller) == (max_tokens == 16)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("first", "released"),
    [
        (EngineOutput(text="Hello"), True),
        (EngineOutput(prompt_tokens=3), True),
        (EngineOutput(finish_reason="stop"), True),
        (EngineOutput(finish_reason="error"), False),
        (EngineOutput(finish_reason="abort"), False),
        (EngineError("It failed."), False),
    ],
)
@pytest.mark.anyio
async def test_a_held_start_is_sent_with_the_first_output_that_is_no_failure(
    first: Step, *, released: bool, together: bool
) -> None:
    sent: list[str] = []

    async def sink(events: Any) -> None:
        sent.append("start" if events == ["start"] else "output")

    held = HeldSink[Any](sink)
    await held(["start"])
    run = begun(ToldEngine([first, END]), generation(), held, together=together)
    await asyncio.gather(done(run), return_exceptions=True)
    assert held.released == released == run.has_answered
    assert sent[:1] == (["start"] if released else [])
    assert run.has_output == isinstance(first, EngineOutput)


@pytest.mark.anyio
async def test_the_output_ends_after_its_first_call_where_one_is_allowed() -> None:
    engine = ToldEngine([EngineOutput(text=CALL + CALL + "more <tool_c", token_ids=(1, 2)), HANG])
    one = msgspec.structs.replace(TURN, parallel_tool_calls=False)
    run = begun(engine, generation(one))
    assert finished(await done(run)) == ["function_call"]
    assert (run.finish, run.stop_reason) == ("stop", None)
    assert engine.closed == 1, "the engine generates no more"


@pytest.mark.parametrize(("choice", "found"), [("auto", ["message", "function_call"]), ("none", ["message"])])  # fmt: skip
@pytest.mark.anyio
async def test_calls_that_are_not_allowed_are_dropped(choice: Any, found: list[str]) -> None:
    turn = msgspec.structs.replace(TURN, tool_choice=choice)
    output = EngineOutput(text=f"So: {CALL}", finish_reason="stop")
    assert finished(await done(begun(ToldEngine([output]), generation(turn)))) == found


class Seeing:
    """An observer that keeps what it has seen, and what the parser had read of it by then."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def begin(self, generation: Generation) -> None:
        self.seen.append(generation.request.request_id)

    def see(self, output: EngineOutput) -> None:
        self.seen.append(output.text)

    async def see_prompt(self, scores: Sequence[TokenLogprob | None]) -> None:
        self.seen.append(scores)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.anyio
async def test_an_observer_sees_each_output_even_of_an_engine_that_could_push(
    *, together: bool
) -> None:
    engine = PushingTold(
        [EngineOutput(text="a", prompt_logprobs=[None]), EngineOutput(text="b"), END], ()
    )
    observer = Seeing()
    await done(begun(engine, generation(), observer=observer, together=together))
    assert observer.seen == ["gen_1", "a", [None], "b", ""]
    assert engine.push is None


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.anyio
async def test_what_a_stop_string_ends_is_not_pushed(*, together: bool) -> None:
    engine = PushingTold([EngineOutput(text="a", token_ids=(1,)), EngineOutput(text="b stop", token_ids=(1,)), HANG], ())  # fmt: skip
    asked = generation(sampling=Sampling(stop=("stop",)))
    run = begun(engine, asked, together=together)
    last = await done(run)
    assert (run.finish, run.stop_reason) == ("stop", "stop")
    assert text_of(last) == "b "
    assert engine.push is None
    assert engine.closed == 1


def accept(events: Sequence[Event]) -> Accepted:
    """A sink that never has to be waited for."""
    return ACCEPTED


@pytest.mark.parametrize(
    ("together", "yielded"),
    [(False, [1]), (True, [1, 1 + MAX_TOGETHER, 2 + 2 * MAX_TOGETHER])],
)
@pytest.mark.anyio
async def test_all_between_the_first_and_the_last_output_may_be_pushed(
    yielded: list[int], *, together: bool
) -> None:
    """If they are kept, up to as many as are parsed together: the next one is yielded."""
    outputs = [EngineOutput(text="x", token_ids=(1,)) for _ in range(150)]
    engine = PushingTold([*outputs, END], ())
    run = begun(engine, generation(), accept, together=together)
    await done(run)
    assert [number for number, taken in enumerate(engine.taken, 1) if not taken] == [*yielded, 151]
    assert run.tokens == len(outputs)


@pytest.mark.anyio
async def test_a_push_that_cannot_be_sent_fails_the_generation() -> None:
    sent: list[str] = []

    def sink(events: Sequence[Event]) -> Accepted:
        if sent:
            raise EngineError("The store is gone.")
        sent.append(text_of(events))
        return ACCEPTED

    engine = PushingTold([*(EngineOutput(text=each) for each in "abcdef"), END], ())
    error = await failure(begun(engine, generation(), sink))
    assert error.message == "The store is gone."
    assert sent == ["a"]
    assert engine.taken == [False, True, False]
    assert engine.closed == 1


@pytest.mark.anyio
async def test_what_the_prompt_has_of_the_output_is_parsed_and_sent_first_and_not_counted() -> None:
    sent: list[Event] = []

    async def sink(events: Sequence[Event]) -> None:
        sent.extend(events)
        asked.append(len(engine.requests))

    asked: list[int] = []
    engine = ToldEngine([EngineOutput(text=" two", token_ids=(1,)), END])
    run = begun(engine, generation(prefill="<think>\nOne"), sink)
    last = await done(run)
    assert finished(last) == ["reasoning"]
    assert text_of(sent) == "One two"
    assert asked == [0, 1], "the engine is asked after the first part was sent"
    assert run.tokens == 1


@pytest.mark.parametrize(("output", "told"), [(None, 2), (30, 30)])
@pytest.mark.anyio
async def test_tokens_that_an_upstream_does_not_report_are_estimated(
    output: int | None, told: int
) -> None:
    prompt = ChatPrompt(messages=[{"role": "user", "content": "Hello"}])
    last = EngineOutput(finish_reason="stop", deltas=(), prompt_tokens=9, output_tokens=output)
    text = EngineOutput(deltas=[TextDelta("12345678")])
    run = begun(ToldEngine([text, last], capability="messages"), generation(prompt=prompt))
    await done(run)
    assert (run.count.prompt, run.tokens) == (9, told)
    run = begun(ToldEngine([EngineError("It failed.")], capability="messages"), generation(prompt=prompt))  # fmt: skip
    await failure(run)
    assert (run.count.prompt, run.tokens) == (0, 0), "it had no output"


@pytest.mark.anyio
async def test_a_failure_stays_one_if_what_the_parser_held_back_has_a_stop_string() -> None:
    engine = ToldEngine([EngineOutput(text="So <tool", token_ids=(1,)), EngineError("It failed.")])
    run = begun(engine, generation(sampling=Sampling(stop=("<tool",))))
    assert (await failure(run)).message == "It failed."
    assert run.finish is None


class ClosingSlowly(ToldEngine):
    """Has given all outputs, and never ends."""

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        try:
            yield EngineOutput(text="One", token_ids=(1,))
            yield EngineOutput(text=" two", token_ids=(2,), finish_reason="stop")
        finally:
            self.hangs.set()
            await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.anyio
async def test_the_last_output_is_sent_even_if_the_generation_is_cancelled_while_the_engine_ends(
    *, together: bool
) -> None:
    sent: list[Event] = []

    async def sink(events: Sequence[Event]) -> None:
        sent.extend(events)

    engine = ClosingSlowly(())
    run = begun(engine, generation(), sink, together=together)
    task = asyncio.create_task(run.run(lambda run: None))
    await engine.hangs.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert text_of(sent) == "One two"
    assert run.was_cancelled
    assert run.tokens == 2
