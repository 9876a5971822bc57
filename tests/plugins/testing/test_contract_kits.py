"""The contract kits have teeth: what breaks a promise fails, by the test that is named after it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import strategies as st
from msgspec import structs

from gateway.base.deltas import CallArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta
from gateway.base.errors import EngineUnavailable, InvalidRequest
from gateway.plugins.protocols import (
    EngineOutput,
    EngineRequest,
    FinishReason,
    OutputParser,
    ParserContext,
    Piece,
    PlacedMedia,
    ServerTool,
    SessionContext,
    StoredResponse,
    Tail,
    TokensPrompt,
    ToolCall,
    ToolDefinition,
    ToolResult,
    ToolServer,
    Turn,
)
from gateway_doctor.checks.engine_probe import Probe
from gateway_doctor.checks.generating import CONSTRAINTS
from gateway_memory import MemoryStore
from gateway_scripted import ScriptedEngine
from gateway_testing import (
    EngineContract,
    OutputParserContract,
    ResponseStoreContract,
    ToolServerContract,
)
from gateway_testing.closing_contract import Reopen


async def fails(promise: Callable[..., Coroutine[Any, Any, None]], *subject: Any) -> None:
    """The test fails on `subject`, whichever way."""
    try:
        await promise(*subject)
    except (Exception, pytest.fail.Exception):  # an assertion, or what the broken thing raises
        return
    raise AssertionError(f"{promise.__name__} passed")


class Broken(ScriptedEngine):
    """A scripted engine whose outputs go through `change`."""

    def __init__(self, change: Callable[[EngineOutput, int], EngineOutput]) -> None:
        super().__init__(max_model_len=4096)
        self._change = change

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        number = 0
        async for output in super().generate(request):
            yield self._change(output, number)
            number += 1


class Seeing(ScriptedEngine):
    """A scripted engine that sees images as `change` shows them to it."""

    def __init__(
        self,
        change: Callable[[Sequence[PlacedMedia]], Sequence[PlacedMedia]] = tuple,
        extra: int = 0,
    ) -> None:
        super().__init__(max_model_len=4096, media=["image"])
        self._change = change
        self._extra = extra
        self.broken = False

    async def count(self, prompt: TokensPrompt) -> int:
        return await super().count(prompt) + (self._extra if prompt.media else 0)

    async def health(self) -> None:
        if self.broken:
            raise EngineUnavailable("It has stopped.")

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        prompt = request.prompt
        assert isinstance(prompt, TokensPrompt)
        self.broken = any(b"broken" in each.media.data for each in prompt.media)
        changed = structs.replace(prompt, media=self._change(prompt.media))
        async for output in super().generate(structs.replace(request, prompt=changed)):
            yield output


def _sorted(media: Sequence[PlacedMedia]) -> Sequence[PlacedMedia]:
    """The images in the order of their hashes, at the same places."""
    images = sorted((each.media for each in media), key=lambda image: image.sha256)
    return [structs.replace(each, media=image) for each, image in zip(media, images, strict=True)]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("test", "engine"),
    [
        ("test_images_are_seen", lambda: Seeing(lambda media: ())),
        ("test_images_are_seen_in_their_order", lambda: Seeing(_sorted)),
        ("test_images_are_counted", lambda: Seeing(extra=1)),
        ("test_images_are_counted", lambda: Seeing(lambda media: ())),
        ("test_a_broken_image_fails_its_own_request_at_most", Seeing),
    ],
)
async def test_an_engine_that_sees_wrongly_is_caught(
    test: str, engine: Callable[[], ScriptedEngine]
) -> None:
    await fails(getattr(EngineContract(), test), engine())


_never_twice = itertools.count()


def _cumulative() -> Callable[[EngineOutput, int], EngineOutput]:
    said = ""

    def change(output: EngineOutput, number: int) -> EngineOutput:
        nonlocal said
        said += output.text
        return structs.replace(output, text=said)

    return change


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("test", "change"),
    [
        (
            "test_the_last_output_and_only_the_last_has_a_finish_reason",
            lambda output, number: structs.replace(output, finish_reason="stop"),
        ),
        (
            "test_the_last_output_and_only_the_last_has_a_finish_reason",
            lambda output, number: structs.replace(output, finish_reason=None),
        ),
        ("test_the_text_is_what_the_tokens_decode_to", _cumulative()),
        (
            "test_max_tokens_is_kept",
            lambda output, number: structs.replace(output, token_ids=(*output.token_ids, 1)),
        ),
        (
            "test_a_greedy_request_gives_the_same_again",
            lambda output, number: structs.replace(output, text=f"{next(_never_twice)}"),
        ),
        (
            "test_logprobs_add_up_to_the_text",
            lambda output, number: structs.replace(output, logprobs=None),
        ),
        (
            "test_the_prompt_is_counted",
            lambda output, number: structs.replace(output, prompt_tokens=1),
        ),
    ],
)
async def test_an_engine_that_breaks_a_promise_is_caught(
    test: str, change: Callable[[EngineOutput, int], EngineOutput]
) -> None:
    await fails(getattr(EngineContract(), test), Broken(change))


@pytest.mark.anyio
async def test_an_engine_that_never_streams_is_caught() -> None:
    class AtOnce(ScriptedEngine):
        async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
            outputs = [output async for output in super().generate(request)]
            ids = [each for output in outputs for each in output.token_ids]
            text = "".join(output.text for output in outputs)
            self.answers = getattr(self, "answers", 0) + 1
            if self.answers == streamed:
                yield EngineOutput(text=text[:1])
            yield structs.replace(outputs[-1], token_ids=ids, text=text)

    promise = EngineContract().test_a_long_answer_comes_in_several_outputs
    streamed: int | None = None
    await fails(promise, AtOnce())
    streamed = 3  # what came together before was read late
    await promise(AtOnce())


class NeverWaiting(ScriptedEngine):
    """Yields all its outputs without letting another task run."""

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        stream = super().generate(request)
        while True:
            step = stream.__anext__()
            try:
                while True:
                    step.send(None)  # instead of awaiting it
            except StopIteration as found:
                yield found.value
            except StopAsyncIteration:
                return


class SleepingEngine(ScriptedEngine):
    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        async for output in super().generate(request):
            time.sleep(0.0001)  # noqa: ASYNC251  # the mistake
            yield output


class LeakingEngine(ScriptedEngine):
    """Starts for each request what it never ends."""

    tasks: list[asyncio.Task[Any]]

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        self.tasks = [*getattr(self, "tasks", ()), asyncio.create_task(asyncio.sleep(3600))]
        async for output in super().generate(request):
            yield output


class ImpatientEngineKit(EngineContract):
    """Not collected: its tests are called here."""

    close_seconds = 0.05
    time_limit = 5.0


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (NeverWaiting, "generate never waits. Run the model in a thread"),
        (SleepingEngine, r"blocks the event loop: time.sleep. Await instead"),
    ],
)
async def test_an_engine_that_blocks_the_loop_is_caught(
    engine: Callable[..., ScriptedEngine], message: str
) -> None:
    promise = EngineContract().test_other_tasks_run_while_it_generates
    await promise(ScriptedEngine(max_model_len=4096))
    with pytest.raises(AssertionError, match=message):
        await promise(engine(max_model_len=4096))


@asynccontextmanager
async def opened(made: object) -> AsyncIterator[Any]:
    yield made


@pytest.mark.anyio
async def test_an_engine_whose_requests_go_on_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    kit, engine = ImpatientEngineKit(), LeakingEngine(max_model_len=4096)
    monkeypatch.setattr(kit, "probe", lambda engine: Probe(engine, time_limit=0.05))
    with pytest.raises(AssertionError, match=r"have left .* End in generate"):
        await kit.test_requests_leave_nothing_running(engine)
    with pytest.raises(AssertionError, match="after closing, there is still: task"):
        await kit.test_nothing_runs_after_it_is_closed(lambda: opened(engine))
    for task in engine.tasks:
        task.cancel()
    await asyncio.wait(engine.tasks)
    await kit.test_nothing_runs_after_it_is_closed(lambda: opened(ScriptedEngine()))


@pytest.mark.anyio
async def test_an_engine_that_passes_over_a_constraint_is_caught() -> None:
    class Careless(ScriptedEngine):
        async def check(self, request: EngineRequest) -> None:
            await super().check(structs.replace(request, constraint=None))

        def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
            return super().generate(structs.replace(request, constraint=None))

    promise = EngineContract().test_a_constraint_is_enforced_or_refused
    for capability, constraint in CONSTRAINTS:
        await fails(promise, Careless(), capability, constraint)


@pytest.mark.anyio
async def test_an_engine_that_accepts_anything_is_caught() -> None:
    class Trusting(ScriptedEngine):
        async def check(self, request: EngineRequest) -> None:
            pass

    kit = EngineContract()
    engine = Trusting(max_model_len=64)
    for promise in (
        kit.test_an_empty_prompt_is_refused,
        kit.test_a_prompt_that_is_too_long_is_refused,
        kit.test_a_prompt_of_the_other_kind_is_refused,
        kit.test_token_ids_outside_the_vocabulary_are_refused,
    ):
        await fails(promise, engine)


class Plain:
    """A format without any markup, with a parser that is handed in."""

    name = "plain"
    keeps_special_tokens = False

    def __init__(self, make: Callable[[], OutputParser]) -> None:
        self._make = make

    def parser(self, context: ParserContext) -> OutputParser:
        return self._make()

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        return "".join(getattr(piece, "text", "") for piece in pieces)

    def constraint(self, turn: Turn, *, tail: Tail) -> None:
        return None


class Reading:
    """Everything is text."""

    reasoning_tokens = 0
    recoveries = 0

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        return [TextDelta(output.text)] if output.text else []

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        return []


class DecidingOnChunks(Reading):
    """The classic mistake: a marker is looked for at the beginning of what came."""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        return super().feed(structs.replace(output, text=output.text.removeprefix("<")))


class Forgetting(Reading):
    """The end of the output is lost."""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        return super().feed(structs.replace(output, text=output.text[:-1]))


class LosingTheAt(Reading):
    """Holds an `@` back, because a marker may begin with it, and loses it at the end: `write to me@`."""

    held = ""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        text = self.held + output.text
        self.held = "@" if text.endswith("@") else ""
        return [TextDelta(shown)] if (shown := text.removesuffix("@")) else []


class Raising(Reading):
    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        if "{" in output.text:
            raise ValueError("not what I expected")
        return super().feed(output)


class Quadratic(Reading):
    def __init__(self) -> None:
        self._seen = ""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        self._seen += output.text
        assert self._seen.count("\0") + self._seen.count("\1") == 0
        return super().feed(output)


class Waiting(Reading):
    def __init__(self) -> None:
        self._held = ""

    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        self._held += output.text
        return []

    def finish(self, reason: FinishReason) -> Sequence[Delta]:
        return super().feed(EngineOutput(text=self._held))


SHARED = Waiting()


class PlainKit(OutputParserContract):
    """Not collected: its tests are called here."""

    reasons = False
    calls = False
    text = st.text(st.sampled_from("ab <{"), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("test", "make"),
    [
        ("test_how_the_output_is_cut_does_not_matter", DecidingOnChunks),
        ("test_what_is_written_is_read_again", Forgetting),
        ("test_the_end_of_a_text_is_not_lost", LosingTheAt),
        ("test_nothing_that_a_model_writes_raises", Raising),
        pytest.param("test_the_cost_is_linear", Quadratic, marks=pytest.mark.slow),
        ("test_text_before_any_markup_comes_at_once", Waiting),
        ("test_parsers_do_not_share_anything", lambda: SHARED),
    ],
)
def test_a_parser_that_breaks_a_promise_is_caught(
    test: str, make: Callable[[], OutputParser]
) -> None:
    promise = getattr(PlainKit(), test)
    promise(Plain(Reading))
    with pytest.raises(
        (AssertionError, ValueError, IndexError, ExceptionGroup, pytest.fail.Exception)
    ):
        promise(Plain(make))


class Session:
    async def call(self, call: ToolCall) -> ToolResult:
        arguments = call.arguments
        if call.name != "echo":
            return ToolResult(text=f"there is no tool {call.name}", failed=True)
        if not isinstance(arguments.get("text"), str):
            return ToolResult(text="text is missing", failed=True)
        if arguments["text"] == "slow":
            await asyncio.sleep(60)
        return ToolResult(text=arguments["text"])


class Tools(ToolServer):
    label = "tools"

    def __init__(self, session: type[Session] = Session) -> None:
        self._session = session

    async def tools(self) -> Sequence[ServerTool]:
        schema = {
            "type": "object",
            "properties": {"text": {"type": "string"}},
            "required": ["text"],
        }
        return [ServerTool(definition=ToolDefinition(name="echo", parameters=schema))]

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[Session]:
        yield self._session()


class TestTools(ToolServerContract):
    good_call = ("echo", {"text": "hi"})
    slow_call = ("echo", {"text": "slow"})

    @pytest.fixture
    def tool_server(self) -> Tools:
        return Tools()

    @pytest.fixture
    def reopen(self) -> Reopen:
        return lambda: opened(Tools())


@pytest.mark.anyio
async def test_a_tool_server_that_breaks_a_promise_is_caught() -> None:
    class RaisingSession(Session):
        async def call(self, call: ToolCall) -> ToolResult:
            return ToolResult(text=call.arguments["text"])

    class Stubborn(Session):
        async def call(self, call: ToolCall) -> ToolResult:
            try:
                return await super().call(call)
            except asyncio.CancelledError:
                return ToolResult(text="not now")

    kit = TestTools()
    await fails(kit.test_an_unknown_tool_is_a_failed_result, Tools(RaisingSession))
    await fails(kit.test_bad_arguments_are_a_failed_result, Tools(RaisingSession))
    with pytest.raises(pytest.fail.Exception):
        await kit.test_cancelling_stops_a_call(Tools(Stubborn))


class NotesSession:
    """Keeps and shows a note."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    async def call(self, call: ToolCall) -> ToolResult:
        if call.name == "note":
            self._notes.append(call.arguments["text"])
        return ToolResult(text=" ".join(self._notes))


class Notes(ToolServer):
    """Keeps notes by what `key` makes of the response that uses it."""

    label = "notes"

    def __init__(self, key: Callable[[SessionContext], object]) -> None:
        self._key = key
        self._notes: dict[object, list[str]] = {}

    @asynccontextmanager
    async def session(self, context: SessionContext) -> AsyncIterator[NotesSession]:
        yield NotesSession(self._notes.setdefault(self._key(context), []))


class NotesKit(ToolServerContract):
    """Not collected: its tests are called here."""

    kept = (("note", {"text": "the secret"}), ("show", {}), "secret")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("key", "message"),
    [
        (lambda context: None, "'grace' is shown what 'ada' has kept. Keep it by `SessionContext.owner`"),
        (lambda context: context.owner or "ada", "nobody in particular is shown what 'ada' has kept"),
        (lambda context: context.response_id, "the owner herself gets '', without 'secret': mend `kept`"),
    ],
)  # fmt: skip
async def test_a_tool_server_that_shows_what_another_owner_has_kept_is_caught(
    key: Callable[[SessionContext], object], message: str
) -> None:
    promise = NotesKit().test_an_owner_does_not_see_what_another_has_kept
    await promise(Notes(lambda context: context.owner))
    with pytest.raises(AssertionError, match=message):
        await promise(Notes(key))


@pytest.mark.anyio
async def test_a_tool_server_that_blocks_or_goes_on_is_caught() -> None:
    tasks: list[asyncio.Task[Any]] = []

    class Sleeping(Session):
        async def call(self, call: ToolCall) -> ToolResult:
            time.sleep(0.0001)  # noqa: ASYNC251  # the mistake
            return await super().call(call)

    class Leaking(Session):
        def __init__(self) -> None:
            tasks.append(asyncio.create_task(asyncio.sleep(3600)))

    kit = TestTools()
    kit.close_seconds = 0.05  # type: ignore[misc]
    with pytest.raises(AssertionError, match=r"blocks the event loop: time.sleep. Await instead"):
        await kit.test_calls_do_not_block_the_event_loop(Tools(Sleeping))
    with pytest.raises(AssertionError, match="after closing, there is still: task"):
        await kit.test_nothing_runs_after_it_is_closed(lambda: opened(Tools(Leaking)))
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


class Sharing(MemoryStore):
    """A store that hands out what it keeps."""

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        entry = self._finished.get(response_id)
        return None if entry is None else entry.record


class Blind(MemoryStore):
    """A store that does not look at owners, and lets everybody advance."""

    async def get(self, response_id: str, *, owner: str | None = None) -> StoredResponse | None:
        return next(
            (
                found
                for each in (owner, "ada", "key-1", None)
                if (found := await super().get(response_id, owner=each))
            ),
            None,
        )

    async def advance(
        self, record: StoredResponse, *, expected: Any, attempt: int | None = None
    ) -> bool:
        await self.put(record)
        return True


class Gapped(MemoryStore):
    """A store whose readers miss what comes while they wait, and whose conversations hold items twice."""

    def read_events(
        self, response_id: str, *, after: int = -1
    ) -> AsyncGenerator[Sequence[bytes], None]:
        return super().read_events(response_id, after=after + 1)


class Careless(MemoryStore):
    """A store whose completions have no owners, move when they are changed, and are listed without end."""

    async def get_completion(self, completion_id: str, *, owner: str | None = None) -> Any:
        kept = self._completions.table.get(completion_id)
        return None if kept is None else kept.record

    async def update_completion(
        self, completion_id: str, metadata: Any, *, owner: str | None = None
    ) -> Any:
        changed = await super().update_completion(completion_id, metadata, owner=owner)
        if changed is not None:
            await self.put_completion(changed)
        return changed

    async def list_completions(self, **query: Any) -> Any:
        page = await super().list_completions(**query)
        return page and structs.replace(page, has_more=bool(page.completions))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("test", "make"),
    [
        ("test_what_is_got_is_not_shared", Sharing),
        ("test_completions_have_owners", Careless),
        ("test_metadata_is_replaced_and_nothing_else", Careless),
        ("test_a_few_are_found_among_many", Careless),
        ("test_completions_that_are_put_at_once_are_all_listed_once", lambda: MemoryStore(max_completions=10)),
        ("test_an_owner_sees_only_what_is_theirs", Blind),
        ("test_advancing_needs_the_expected_status", Blind),
        ("test_only_one_of_many_advances", Blind),
        ("test_a_new_attempt_ends_what_the_one_before_may_write", Blind),
        ("test_events_are_replayed_from_any_place", Gapped),
        ("test_a_log_is_followed_to_its_end", Gapped),
        ("test_many_are_put_at_once", lambda: MemoryStore(max_responses=10)),
        ("test_an_item_of_a_megabyte_is_kept", lambda: MemoryStore(max_bytes=1_000_000)),
    ],
)  # fmt: skip
async def test_a_store_that_breaks_a_promise_is_caught(
    test: str, make: Callable[[], MemoryStore]
) -> None:
    await fails(getattr(ResponseStoreContract(), test), make())


@pytest.mark.anyio
async def test_what_is_refused_must_leave_the_engine_alive() -> None:
    class Fragile(ScriptedEngine):
        async def check(self, request: EngineRequest) -> None:
            try:
                await super().check(request)
            except InvalidRequest:
                self.crash()
                raise

    await fails(EngineContract().test_an_empty_prompt_is_refused, Fragile())


class Calling(Plain):
    """A format of calls `!name{...}`, which looks for them if `tools` or, as it should, `parse_tools` says so."""

    def __init__(self, heeds: str) -> None:
        self.heeds = heeds

    def parser(self, context: ParserContext) -> OutputParser:
        return CallReading() if getattr(context, self.heeds) else Reading()

    def write(self, pieces: Sequence[Piece], *, tail: Tail = "unknown") -> str:
        return "".join(f"!{piece.name}{piece.arguments}" for piece in pieces)  # type: ignore[union-attr]


class CallReading(Reading):
    def feed(self, output: EngineOutput) -> Sequence[Delta]:
        name, brace, rest = output.text.removeprefix("!").partition("{")
        return [CallStarted(name), CallArgumentsDelta(brace + rest), CallEnded()]


def test_a_parser_that_ignores_parse_tools_is_caught() -> None:
    promise = OutputParserContract().test_without_tools_a_call_is_text
    promise(Calling("parse_tools"))
    with pytest.raises(AssertionError):
        promise(Calling("tools"))


class LastingKit(ResponseStoreContract):
    """Not collected. It does not wait long for what never comes."""

    close_seconds = 0.2


@asynccontextmanager
async def memory(**limits: Any) -> AsyncIterator[MemoryStore]:
    yield MemoryStore(**limits)


@pytest.mark.anyio
async def test_a_store_that_keeps_nothing_though_it_says_so_is_caught() -> None:
    with pytest.raises(AssertionError, match="the responses are lost"):
        await LastingKit().test_what_is_stored_is_there_when_it_is_opened_again(memory)


@pytest.mark.anyio
async def test_a_store_without_bounds_is_caught() -> None:
    test = "test_the_oldest_go_first_past_a_bound"
    await getattr(ResponseStoreContract(), test)(lambda most: memory(max_responses=most))
    with pytest.raises(AssertionError, match="60 are kept where the bound is 10"):
        await getattr(LastingKit(), test)(lambda most: memory())
