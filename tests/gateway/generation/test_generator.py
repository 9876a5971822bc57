"""The generations of one answer: what is counted, what its policies may do, and what is left out to make it fit."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from gateway.base.deltas import Delta, RefusalDelta
from gateway.base.errors import EngineError, InvalidRequest
from gateway.config import SchemaLimits
from gateway.generation.generation import Generation, GenerationSettings
from gateway.generation.generator import Generator
from gateway.generation.policies import Policies, Rerouted
from gateway.generation.sinks import HeldSink
from gateway.generation.text_stops import RequestStops
from gateway.generation.truncation import droppable, without_oldest
from gateway.generation.usage import TurnTokens
from gateway.models.served_model import ServedModel
from gateway.observe.metrics import Metrics
from gateway.plugins.protocols import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    OutputFilter,
    PolicyRefusal,
    PolicyRequest,
    RenderedPrompt,
    Sampling,
    TextFormat,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway.wire.content import InputText
from gateway.wire.items import FunctionCall, FunctionCallOutput, Item, Message
from gateway_scripted import ScriptedEngine, ScriptedTokenizer
from tests.gateway.generation.told_engine import OneToken, Step, ToldEngine, served

pytestmark = pytest.mark.anyio

TURN = Turn(items=[])


def generator(model: ServedModel, *, made_at: float | None = None, **settings: Any) -> Generator:
    sampling = settings.pop("sampling", Sampling())
    made = GenerationSettings(sampling=sampling, stops=RequestStops(()), **settings)
    return Generator(model, made, Metrics(), made_at=made_at)


class Collected:
    """A writer whose output is what it was given."""

    def feed(self, deltas: Sequence[Delta]) -> list[object]:
        return [*deltas]

    def end(self, held: Sequence[Delta], reason: FinishReason) -> list[object]:
        return [*held, reason]


async def forget(deltas: Sequence[object]) -> None:
    """A sink of a test that does not look at what is sent."""


async def run(made: Generator, turn: Turn = TURN) -> list[object]:
    return await made.run(await made.prepare(turn), Collected(), forget)


# What is counted.


class Counts(Struct, frozen=True):
    """The tokens of one generation, of which the first output tells those of the prompt."""

    prompt: int | None
    cached: int | None
    thought: int
    """Number of tokens of reasoning."""
    said: int
    counted: bool
    """Whether its prompt counts."""
    broken: bool

    def steps(self) -> list[Step]:
        outputs = [EngineOutput(prompt_tokens=self.prompt, cached_tokens=self.cached)]
        outputs += [EngineOutput(text="hm ", token_ids=(1,)) for _ in range(self.thought)]
        outputs += [EngineOutput(text="</think>")]
        outputs += [EngineOutput(text="so ", token_ids=(1,)) for _ in range(self.said)]
        return [*outputs, EngineError("x") if self.broken else EngineOutput(finish_reason="stop")]


NUMBER = st.none() | st.integers(0, 99)
COUNTS = st.builds(
    Counts, NUMBER, NUMBER, st.integers(0, 5), st.integers(0, 5), st.booleans(), st.booleans()
)


@given(st.lists(COUNTS, max_size=4), st.none() | st.integers(1, 20))
def test_the_tokens_of_all_generations_add_up(turns: list[Counts], limit: int | None) -> None:
    async def play() -> None:
        engine = ToldEngine(())
        rendered = RenderedPrompt(prompt=TokensPrompt(token_ids=(1, 2)), tail="reasoning")
        model = served(engine, renderer=OneToken(rendered))
        made = generator(model, sampling=Sampling(max_tokens=limit))
        for number, each in enumerate(turns):
            engine.steps = each.steps()
            made.counts_prompt = each.counted
            assert made.spent == (
                limit is not None and sum(t.thought + t.said for t in turns[:number]) >= limit
            )
            await asyncio.gather(run(made), return_exceptions=True)
            assert made.counts_prompt, "only the next prompt is left out"
            assert (
                made.context
                == (2 if each.prompt is None else each.prompt) + each.thought + each.said
            )
        tokens = made.tokens
        found = [
            TurnTokens(
                2 if each.prompt is None else each.prompt,
                each.cached or 0,
                each.thought + each.said,
            )
            for each in turns
        ]
        assert tokens.turns == found
        counted = [one for one, each in zip(found, turns, strict=True) if each.counted]
        assert tokens.input == sum(each.input for each in counted)
        assert tokens.cached == sum(each.cached for each in counted)
        assert tokens.output == sum(each.output for each in found)
        assert tokens.reasoning == sum(each.thought for each in turns)
        assert made.began == bool(turns)

    asyncio.run(play())


async def test_an_upstream_counts_no_more_reasoning_than_output() -> None:
    last = EngineOutput(deltas=(), finish_reason="stop", prompt_tokens=1, output_tokens=3, reasoning_tokens=9)  # fmt: skip
    made = generator(served(ToldEngine([last])))
    await run(made)
    assert (made.tokens.output, made.tokens.reasoning) == (3, 3)


@pytest.mark.parametrize("first", [EngineError("x"), EngineOutput(finish_reason="error")])
async def test_an_engine_that_fails_at_once_has_not_begun(first: Step) -> None:
    made = generator(served(ToldEngine([first])))
    with pytest.raises(EngineError):
        await run(made)
    assert not made.began


async def test_a_reason_is_told_unless_it_is_the_models_own_end() -> None:
    own = ToldEngine(()).info.eos_token_ids[0]
    for reason, asked, told in (
        (own, (), None),
        (own, (own,), own),
        (7, (7,), 7),
        ("word", (), "word"),
        (None, (), None),
    ):
        engine = ToldEngine([EngineOutput(finish_reason="stop", stop_reason=reason)])
        made = generator(served(engine), sampling=Sampling(stop_token_ids=asked))
        await run(made)
        assert made.stop_reason == told


@pytest.mark.parametrize(("arguments", "mended"), [('{"a": 1}', 0), ("nothing of the kind", 1)])
async def test_what_the_parser_could_not_read_is_counted(arguments: str, mended: int) -> None:
    call = f'<tool_call>\n{{"name": "f", "arguments": {arguments}}}\n</tool_call>'
    engine = ToldEngine([EngineOutput(text=call, finish_reason="stop")])
    settings, metrics = GenerationSettings(sampling=Sampling(), stops=RequestStops(())), Metrics()
    made = Generator(served(engine), settings, metrics)
    await run(made, Turn(items=[], tools=[ToolDefinition(name="f")]))
    counted = metrics.registry.get_sample_value("gateway_parser_recoveries_total", {"model": "m"})
    assert (counted or 0) == mended


# Prompts.


class Dated:
    """A renderer whose prompts name the date."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def date_at(self, time: float) -> str | None:
        return datetime.datetime.fromtimestamp(time, datetime.UTC).date().isoformat()

    def render(self, turn: Turn) -> RenderedPrompt:
        self.turns.append(turn)
        return RenderedPrompt(prompt=TokensPrompt(token_ids=(1,)))


async def test_all_prompts_have_the_date_of_the_answer() -> None:
    renderer = Dated()
    made = generator(served(ToldEngine(()), renderer=renderer), made_at=86_400.0 * 365)
    await made.prepare(TURN)
    await made.fitting(TURN)
    assert [turn.today for turn in renderer.turns] == ["1971-01-01"] * 2


async def test_a_turn_has_the_scope_of_the_request_unless_it_has_its_own() -> None:
    renderer = Dated()
    model = served(ToldEngine(()), renderer=renderer)
    made = generator(model, cache_scope="ada", thinking_budget=5)
    await made.prepare(TURN)
    await made.prepare(msgspec.structs.replace(TURN, cache_scope="own", thinking_budget=7))
    assert [(turn.cache_scope, turn.thinking_budget) for turn in renderer.turns] == [
        ("ada", 5),
        ("own", 7),
    ]


SMALL = {"type": "object", "properties": {"a": {}}}
TOOLS = [ToolDefinition(name="f", parameters=SMALL)]
LARGE = {"type": "object", "properties": {"a": {}, "b": {}}}


@pytest.mark.parametrize(
    "turn",
    [
        Turn(items=[], tools=[ToolDefinition(name="f", parameters=LARGE)]),
        Turn(items=[], tools=TOOLS, text_format=TextFormat(kind="json_schema", schema=LARGE)),
    ],
)
async def test_schemas_of_every_turn_have_the_limits(turn: Turn) -> None:
    model = msgspec.structs.replace(served(ToldEngine(())), schema_limits=SchemaLimits(max_properties=1))  # fmt: skip
    made = generator(model)
    await made.prepare(Turn(items=[], tools=TOOLS))
    with pytest.raises(InvalidRequest) as caught:
        await made.prepare(turn)
    assert caught.value.code == "schema_too_large"


class Refusing(ToldEngine):
    """Refuses long prompts for their length, and the others for another reason."""

    def __init__(self, fits: int) -> None:
        """`fits`: the length of the longest prompt that is not too long."""
        super().__init__(())
        self._fits = fits

    async def check(self, request: EngineRequest) -> None:
        assert isinstance(request.prompt, TokensPrompt)
        if len(request.prompt.token_ids) > self._fits:
            raise InvalidRequest("It is too long.", code="context_length_exceeded")
        raise InvalidRequest("No.", param="temperature")


# Policies.


class Deciding:
    """A policy that does what it is told to with each prompt."""

    def __init__(self, *decisions: Any) -> None:
        self._decisions = iter(decisions)

    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        decision = next(self._decisions)
        if isinstance(decision, PolicyRefusal):
            return decision
        return msgspec.structs.replace(request, **decision)

    def output(self, request: PolicyRequest) -> OutputFilter | None:
        return None


def decided(*decisions: Any) -> Policies:
    return Policies([Deciding(*decisions)], api="responses", model="m", owner=None)


@pytest.mark.parametrize("first", ["prepare", "fitting"])
async def test_what_a_policy_refuses_is_answered_without_the_engine(first: str) -> None:
    sent: list[object] = []

    async def sink(deltas: Sequence[object]) -> None:
        sent.extend(deltas)

    engine = Refusing(0)
    made = generator(served(engine), policies=decided(PolicyRefusal("No."), PolicyRefusal("")))
    held = HeldSink(sink)
    await held(["start"])
    refused = await getattr(made, first)(TURN)
    await made.accept(refused)
    assert await made.run(refused, Collected(), held) == [RefusalDelta("No."), "content_filter"]
    assert sent == ["start"]
    assert made.began
    assert await run(made) == ["content_filter"], "an empty refusal has no text"
    assert not engine.requests
    assert not made.tokens.turns


async def test_a_policy_sends_only_the_first_prompt_to_another_model() -> None:
    other = {"model": "other"}
    with pytest.raises(Rerouted):
        await generator(served(ToldEngine(())), policies=decided(other)).prepare(TURN)
    with pytest.raises(Rerouted):
        await generator(served(ToldEngine(())), policies=decided(other)).fitting(TURN)
    made = generator(served(ToldEngine(())), policies=decided({}, other))
    await made.fitting(TURN)
    await made.prepare(TURN)


async def test_the_model_reads_what_a_policy_has_made_of_the_turn() -> None:
    changed = Turn(items=[said("user", 3)])
    made = generator(served(ToldEngine(())), policies=decided({"turn": changed}, {"turn": changed}))
    assert (await made.prepare(TURN)).turn.items == changed.items
    assert (await made.fitting(TURN)).turn.items == changed.items


# Fitting.


[LETTER] = ScriptedTokenizer().encode("x")


class Lengths:
    """Renders a message as many tokens as it has characters, and everything else as one."""

    def __init__(self) -> None:
        self.rendered = 0

    def render(self, turn: Turn) -> RenderedPrompt:
        self.rendered += 1
        return RenderedPrompt(prompt=TokensPrompt(token_ids=(LETTER,) * length(turn.items)))


def length(items: Sequence[Item]) -> int:
    return 1 + sum(len(each.text) if isinstance(each, Message) else 1 for each in items)


def said(role: Any, size: int) -> Message:
    return Message(role=role, content=[InputText(text="x" * size)])


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    sizes = st.integers(1, 9)
    items: list[Item] = [said("system", draw(sizes))] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 4))):
        items += [said("user", draw(sizes)) for _ in range(draw(st.integers(1, 3)))]
        for number in range(draw(st.integers(0, 3))):
            call_id = f"c{turn}-{number}"
            items.append(FunctionCall(call_id=call_id, name="f", arguments="{}"))
            items.append(FunctionCallOutput(call_id=call_id, output="x"))
        if draw(st.booleans()):
            items.append(said("assistant", draw(sizes)))
    return items


@given(conversations(), st.integers(0, 3), st.integers(2, 60), st.booleans())
def test_as_little_is_left_out_as_makes_the_conversation_fit(
    items: list[Item], preamble: int, room: int, truncate: bool
) -> None:
    turn = Turn(items=items)
    preamble = min(preamble, len(items))
    parts = len(droppable(items[preamble:])) if truncate else 0
    shorter = (without_oldest(items, count, preamble=preamble) for count in range(parts + 1))
    expected = next((each for each in shorter if length(each) < room), None)
    renderer = Lengths()
    made = generator(served(ScriptedEngine(max_model_len=room), renderer=renderer))
    fitting = made.fitting(turn, truncate=truncate, preamble=preamble)
    if expected is None:
        with pytest.raises(InvalidRequest) as caught:
            asyncio.run(_result(fitting))
        assert caught.value.code == "context_length_exceeded"
    else:
        found = asyncio.run(_result(fitting))
        assert found.turn.items == expected
        assert isinstance(found.request.prompt, TokensPrompt)
        assert len(found.request.prompt.token_ids) == length(expected)
    assert renderer.rendered <= 1 + parts.bit_length()


async def _result(fitting: Any) -> Generation:
    result: Generation = await fitting
    return result


@pytest.mark.parametrize(("fits", "rendered"), [(9, 1), (3, 2)])
async def test_another_reason_than_the_length_is_told_at_once(fits: int, rendered: int) -> None:
    """Also where it is found when something was left out."""
    renderer = Lengths()
    made = generator(served(Refusing(fits), renderer=renderer))
    turn = Turn(items=[said("user", 2), said("assistant", 2), said("user", 2)])
    with pytest.raises(InvalidRequest) as caught:
        await made.fitting(turn, truncate=True)
    assert caught.value.param == "temperature"
    assert renderer.rendered == rendered


async def test_a_prepared_generation_may_still_be_refused() -> None:
    made = generator(served(Refusing(9)))
    generation = await made.prepare(TURN)
    with pytest.raises(InvalidRequest):
        await made.accept(generation)
