"""The one way of streamed answers: what leaves when, and what is told where the answer fails."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from litestar.types import Message
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

import gateway_chat_template
import gateway_memory
import gateway_parsers
import gateway_scripted
from benchmarks import null_engine
from gateway.answers.run_scope import RunScope
from gateway.base.errors import EngineError, GatewayError
from gateway.base.shared_timers import SharedTimer, SharedTimers
from gateway.config import Config, ModelConfig, ServerConfig
from gateway.generation.sinks import ACCEPTED, ByteSink
from gateway.http.answers import JsonAnswer
from gateway.http.body_slices import SLICE
from gateway.http.connections.client_connection import ClientConnection
from gateway.http.stream_body import StreamBody
from gateway.http.streaming import StreamedAnswer
from gateway.plugins.loading import load_plugins
from gateway.services import Services
from gateway.startup.service_opening import open_services
from gateway_testing.server import run_gateway
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

HEADERS = [(b"content-type", b"text/plain")]
PLUGINS = [gateway_chat_template, gateway_memory, gateway_parsers, gateway_scripted]
Make = Callable[[ByteSink], Awaitable[bytes]]


class Client:
    """A client of another server than uvicorn; `send` may take its time."""

    def __init__(self, seconds: float = 0.0, *, steps: int = 0) -> None:
        self.messages: list[Any] = []
        self._seconds = seconds
        self._steps = steps
        self._answered = asyncio.Event()

    async def send(self, message: Message) -> None:
        await asyncio.sleep(self._seconds)
        for _ in range(self._steps):
            await asyncio.sleep(0)
        self.messages.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._answered.set()

    async def receive(self) -> Any:
        await self._answered.wait()
        return {"type": "http.disconnect"}

    @property
    def statuses(self) -> list[int]:
        return [each["status"] for each in self.messages if each["type"] == "http.response.start"]

    @property
    def parts(self) -> list[bytes]:
        return [each["body"] for each in self.messages if each["type"] == "http.response.body"]


class Connection(asyncio.Transport):
    """Takes down what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def uvicorn_send(connection: Connection) -> Any:
    logger = logging.getLogger("test")
    scope: Any = {"type": "http", "method": "POST", "headers": []}
    return RequestResponseCycle(
        scope, connection, FlowControl(connection), logger, logger, False, [], asyncio.Event(),
        False, True, lambda: None,
    ).send  # fmt: skip


def body_on(connection: Connection) -> StreamBody:
    """A body whose chunks are written to `connection`."""
    send = uvicorn_send(connection)
    return StreamBody(send, send, lambda: HEADERS, ClientConnection(connection, lambda: None))


async def test_a_part_after_the_first_makes_no_coroutine() -> None:
    connection = Connection()
    body = body_on(connection)
    assert not await body.has_begun()
    await body.write(b"one")
    assert await body.has_begun()
    assert body.write(b"two") is ACCEPTED
    await body.end(b"three")
    head, first, second, *rest = connection.written
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert first == b"3\r\none\r\n"
    assert (second, b"".join(rest)) == (b"3\r\ntwo\r\n", b"5\r\nthree\r\n0\r\n\r\n")


@pytest.mark.parametrize("last", [False, True])
async def test_what_comes_while_a_sign_begins_the_body_follows_it(last: bool) -> None:
    client = Client(0.01)
    body = StreamBody(client.send, client.send, lambda: HEADERS)
    signing = asyncio.Event()

    def sign() -> bytes:
        signing.set()
        return b"sign"

    body.keep_open(SharedTimers(), 0.001, 0.0, sign)
    await signing.wait()
    if not last:
        await body.write(b"one")
    await body.end(b"two")
    assert client.statuses == [200]
    assert client.parts == [b"sign", b"two"] if last else [b"sign", b"one", b"two"]


async def test_no_sign_begins_a_body_whose_head_is_being_sent() -> None:
    client = Client(0.05)
    body = StreamBody(client.send, client.send, lambda: HEADERS)
    writing = asyncio.ensure_future(body.write(b"one"))
    await asyncio.sleep(0)  # the head is on its way
    body.keep_open(SharedTimers(), 0.001, 0.001, lambda: b"sign")
    await writing
    await body.close()
    assert (client.statuses, client.parts[0]) == ([200], b"one")


@pytest.mark.parametrize("signs", [False, True])
async def test_a_part_whose_sending_is_cancelled_comes_before_the_next(signs: bool) -> None:
    """A deadline ends the run, not the answer: nothing that was told before its end is lost, and the head is sent once."""
    for steps in range(8):
        client = Client(steps=2)
        body = StreamBody(client.send, client.send, lambda: HEADERS)
        if signs:
            signing = asyncio.Event()

            def sign(signing: asyncio.Event = signing) -> bytes:
                signing.set()
                return b"sign"

            body.keep_open(SharedTimers(), 0.001, 0.0, sign)
            await signing.wait()

        async def write(body: StreamBody = body) -> None:
            await body.write(b"one,")
            await body.write(b"two,")

        writing = asyncio.create_task(write())
        for _ in range(steps):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait((writing,))
        await body.end(b"end")
        await body.close()
        assert client.statuses == [200]
        said = b"".join(client.parts).removeprefix(b"sign" if signs else b"")
        assert said in {b"end", b"one,end", b"one,two,end"}
        assert said != b"end" or not steps


LARGE = bytes(range(256)) * (3 * SLICE // 256) + b"and a rest"


async def test_a_large_part_is_sent_in_slices() -> None:
    connection = Connection()
    body = body_on(connection)
    await body.write(LARGE)
    await body.write(LARGE)
    await body.end(LARGE)
    head, *chunks = connection.written
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert max(map(len, chunks)) < SLICE + 32
    assert unchunked(b"".join(chunks)) == LARGE * 3


def unchunked(body: bytes) -> bytes:
    parts = []
    while body:
        size, _, body = body.partition(b"\r\n")
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]
    return b"".join(parts)


async def test_the_rest_of_a_large_part_whose_sending_is_cancelled_comes_before_the_next() -> None:
    for steps in range(16):
        client = Client(steps=2)
        body = StreamBody(client.send, client.send, lambda: HEADERS)

        async def write(body: StreamBody = body) -> None:
            await body.write(LARGE)
            await body.write(b"two")

        writing = asyncio.create_task(write())
        for _ in range(steps):
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait((writing,))
        await body.end(b"end")
        assert client.statuses == [200]
        assert b"".join(client.parts) in {LARGE + b"end", LARGE + b"twoend"} or not steps


async def test_no_sign_comes_within_a_large_part() -> None:
    client = Client(0.002)
    body = StreamBody(client.send, client.send, lambda: HEADERS)
    body.keep_open(SharedTimers(), 0.001, 0.001, lambda: b"sign")
    await body.write(LARGE)
    await body.write(LARGE)
    await body.end(LARGE)
    await body.close()
    assert b"".join(client.parts).replace(b"sign", b"") == LARGE * 3
    assert [part for part in b"".join(client.parts).split(b"sign") if part not in {b"", LARGE, LARGE * 2, LARGE * 3}] == []  # fmt: skip


class InTurn(Client):
    """What is sent waits for what was sent before, as on one connection to a client that is slow to read."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self._turn = asyncio.Lock()

    async def send(self, message: Message) -> None:
        async with self._turn:
            await super().send(message)


async def test_no_sign_comes_within_a_large_part_that_has_waited_for_one() -> None:
    client = InTurn(0.005)
    body = StreamBody(client.send, client.send, lambda: HEADERS)
    signing = asyncio.Event()

    def sign() -> bytes:
        signing.set()
        return b"sign"

    body.keep_open(SharedTimers(), 0.001, 0.001, sign)
    await body.write(b"one")
    signing.clear()
    await signing.wait()
    await body.write(LARGE)
    await body.end(b"end")
    await body.close()
    assert LARGE in b"".join(client.parts)
    assert b"".join(client.parts).replace(b"sign", b"") == b"one" + LARGE + b"end"


async def test_headers_of_an_api_on_which_the_server_acts_are_acted_on() -> None:
    for header in ((b"connection", b"close"), (b"content-length", b"6"), (b"x-other", b"1")):
        connection = Connection()
        send = uvicorn_send(connection)
        direct = ClientConnection(connection, lambda: None)
        body = StreamBody(send, send, lambda header=header: [header], direct)  # type: ignore[misc]
        await body.write(b"one")
        await body.end(b"two")
        written = b"".join(connection.written)
        assert connection.closed == (header[0] == b"connection")
        assert (b"transfer-encoding: chunked" in written) == (header[0] != b"content-length")
        assert b": ".join(header) in written
        assert (b"3\r\n" in written) == (header[0] != b"content-length")


async def test_a_large_json_answer_is_sent_in_slices() -> None:
    connection = Connection()
    send = uvicorn_send(connection)
    scope: Any = {"type": "http"}
    await JsonAnswer(LARGE, 200)(scope, Client().receive, send)
    head, *parts = connection.written
    assert b"content-length: %d" % len(LARGE) in head
    assert b"".join(parts) == LARGE
    assert max(map(len, connection.written)) < SLICE + 1024


async def test_a_body_without_parts_has_a_head_and_an_end() -> None:
    client = Client()
    body = StreamBody(client.send, client.send, lambda: HEADERS)
    await body.end(b"all")
    assert (client.statuses, client.parts) == ([200], [b"all"])


async def test_a_body_can_be_opened_before_there_is_a_part() -> None:
    connection = Connection()
    body = body_on(connection)
    write_chunk = await body.open()
    assert connection.written[0].endswith(b"\r\n\r\n")
    assert await body.has_begun()
    assert write_chunk(b"one")
    assert body.write(b"two") is ACCEPTED
    await body.end(b"three")
    assert b"".join(connection.written[1:]) == (b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n")


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    model = ModelConfig(engine="scripted", renderer="chat_template", parser="plain")
    config = Config(server=ServerConfig(ping_interval=0.02), models={"m": model})
    async with AsyncExitStack() as stack:
        plugins = load_plugins(extra=PLUGINS, installed=False)
        yield await open_services(config, plugins, stack)


class Answer(StreamedAnswer):
    """Made by a function."""

    def __init__(self, services: Services, make: Make) -> None:
        scope = RunScope(services, name="a test", api="test")
        scope.reserve(services.models["m"])
        super().__init__(scope, services, headers=HEADERS)
        self._make = make

    async def make(self, body: StreamBody) -> bytes:
        return await self._make(body.write)

    def fail(self, error: GatewayError) -> bytes:
        return b"failed: " + error.message.encode()


async def answered(services: Services, make: Make) -> Client:
    client = Client()
    await Answer(services, make)({"type": "http"}, client.receive, client.send)  # type: ignore[arg-type, typeddict-item]
    assert services.models["m"].admission.waiting == 0
    return client


async def test_what_fails_at_once_is_a_status_and_later_the_last_part(services: Services) -> None:
    async def at_once(write: ByteSink) -> bytes:
        raise EngineError("gone")

    async def later(write: ByteSink) -> bytes:
        await write(b"one")
        raise EngineError("gone")

    refused = await answered(services, at_once)
    assert refused.statuses == [EngineError("gone").status]
    assert b'"gone"' in b"".join(refused.parts)
    failed = await answered(services, later)
    assert (failed.statuses, failed.parts) == ([200], [b"one", b"failed: gone"])


async def test_an_answer_that_is_silent_begins_with_a_comment(services: Services) -> None:
    """Both where a server writes at once, and where sending takes its time."""

    async def fails_late(write: ByteSink) -> bytes:
        await asyncio.sleep(0.05)
        raise EngineError("gone")

    for seconds in (0.0, 0.1):
        client = Client(seconds)
        answer = Answer(services, fails_late)
        await answer({"type": "http"}, client.receive, client.send)  # type: ignore[arg-type, typeddict-item]
        assert client.statuses == [200]
        assert client.parts[0] == b": keep-alive\n\n"
        assert client.parts[-1] == b"failed: gone"


async def test_a_client_that_leaves_takes_the_first_comment_with_it(services: Services) -> None:
    sending = asyncio.Event()

    async def send(message: Message) -> None:
        sending.set()
        await asyncio.Event().wait()

    async def leave() -> Any:
        await sending.wait()
        return {"type": "http.disconnect"}

    async def never(write: ByteSink) -> bytes:
        await asyncio.Event().wait()
        return b""

    before = asyncio.all_tasks()
    await Answer(services, never)({"type": "http"}, leave, send)  # type: ignore[arg-type, typeddict-item]
    assert asyncio.all_tasks() <= before


async def test_silence_is_broken_by_comments(services: Services) -> None:
    connection = Connection()
    send = uvicorn_send(connection)
    written = connection.written

    def signs() -> int:
        return sum(b": keep-alive" in each for each in written)

    async def slow(write: ByteSink) -> bytes:
        await wait_until_async(lambda: signs() >= 1)
        await write(b"one")
        before = signs()
        await wait_until_async(lambda: signs() > before)
        return b"two"

    async def receive() -> Any:
        await asyncio.Event().wait()

    await Answer(services, slow)({"type": "http", "gateway.send": send}, receive, send)  # type: ignore[arg-type, typeddict-item]
    assert written[1] == b"e\r\n: keep-alive\n\n\r\n"
    at = written.index(b"3\r\none\r\n")
    assert any(b": keep-alive" in each for each in written[at:])


def test_events_that_repeat_large_instructions_come_whole_and_in_order(tmp_path: Path) -> None:
    said = "Answer briefly. " * 60_000
    body = {"model": "m", "input": "a", "instructions": said, "stream": True, "store": False}
    model = {"engine": "null", "renderer": "chat_template", "parser": "plain"}
    with run_gateway({"models": {"m": model}}, tmp_path, plugins=[null_engine]) as gateway:
        answer = httpx.post(f"{gateway.base_url}/responses", json=body)
    *frames, done, rest = answer.text.split("\n\n")
    events = [json.loads(frame.partition("\ndata: ")[2]) for frame in frames]
    assert (done, rest) == ("data: [DONE]", "")
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    repeating = [each["type"] for each in events if each.get("response", {}).get("instructions") == said]  # fmt: skip
    assert repeating == ["response.created", "response.in_progress", events[-1]["type"]]


class Ticking(SharedTimers):
    """Timers that ring when a test lets time pass, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now = 1000.0
        self._calls: list[tuple[float, SharedTimer]] = []
        for module in ("gateway.http.stream_body", "gateway.http.connections.client_connection"):
            monkeypatch.setattr(f"{module}.monotonic", lambda: self.now)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> SharedTimer:
        together: set[SharedTimer] = set()
        timer = SharedTimer(callback, together)
        together.add(timer)
        self._calls.append((self.now + seconds, timer))
        return timer

    async def pass_until(self, end: float) -> None:
        while self._calls and min(at for at, _ in self._calls) <= end:
            self._calls.sort(key=lambda call: call[0])
            self.now, timer = self._calls.pop(0)
            if timer in timer._together:
                timer.callback()
            for _ in range(5):
                await asyncio.sleep(0)  # a sign that begins the body has a task of its own
        self.now = end


@given(
    writes=st.lists(st.floats(0, 200), max_size=12),
    first=st.sampled_from([1.0, 15.0, 30.0]),
    seconds=st.sampled_from([5.0, 15.0, 30.0, 60.0]),
)
@settings(deadline=None, max_examples=60)
def test_no_silence_is_longer_than_the_interval(
    writes: list[float], first: float, seconds: float
) -> None:
    async def scenario() -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            timers = Ticking(monkeypatch)
            began = timers.now
            connection = Connection()
            body = body_on(connection)
            times: list[float] = []
            write = connection.write

            def noted(data: bytes) -> None:
                times.append(timers.now - began)
                write(data)

            monkeypatch.setattr(connection, "write", noted)
            body.keep_open(timers, min(first, seconds), seconds, lambda: b"sign")
            for at in sorted(writes):
                await timers.pass_until(began + at)
                await body.write(b"part")
            await timers.pass_until(began + 300)
            await body.close()
            silences = [after - before for before, after in pairwise([*times, 300.0])]
            assert times[0] <= first + 1e-6
            assert max(silences) <= seconds + 1e-6
            # And no more signs than are needed.
            signs = b"".join(connection.written).count(b"sign")
            assert signs <= 300 / seconds + 1

    asyncio.run(scenario())
