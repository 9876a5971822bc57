"""The body of a streamed answer: parts come whole and in order, and silences have keep-alive parts (signs)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from litestar.types import Message
from msgspec import Struct
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.generation.sinks import ACCEPTED
from gateway.http.body_slices import SLICE
from gateway.http.connections.client_connection import ClientConnection
from gateway.http.stream_body import StreamBody
from tests.gateway.http.stream_clients import (
    HEADERS,
    LARGE,
    Client,
    Connection,
    Ticking,
    body_on,
    unchunked,
    uvicorn_send,
)

pytestmark = pytest.mark.anyio


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


async def test_headers_of_an_api_on_which_the_server_acts_are_acted_on() -> None:
    headers: list[tuple[bytes, bytes]] = [
        (b"connection", b"close"),
        (b"content-length", b"6"),
        (b"x-other", b"1"),
    ]
    for header in headers:
        connection = Connection()
        send = uvicorn_send(connection)
        direct = ClientConnection(connection, lambda: None)
        body = StreamBody(send, send, lambda header=header: [header], direct)  # type: ignore[misc]
        await body.write(b"on")
        await body.write(b"e")
        await body.end(b"two")
        written = b"".join(connection.written)
        assert connection.closed == (header[0] == b"connection")
        assert (b"transfer-encoding: chunked" in written) == (header[0] != b"content-length")
        assert b": ".join(header) in written
        assert (b"3\r\n" in written) == (header[0] != b"content-length")


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


class SlowClient(Client):
    """Reads nothing while `reads` is not set. What it is sent waits for that before it is written, as in servers."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = asyncio.Event()
        self.reads.set()
        self._is_sent = asyncio.Lock()
        self._overlaps = False

    async def send(self, message: Message) -> None:
        self._overlaps |= self._is_sent.locked()
        async with self._is_sent:
            await asyncio.sleep(0)
            await self.reads.wait()
            self.messages.append(message)

    def pause(self) -> None:
        self.reads.clear()

    def resume(self) -> None:
        self.reads.set()

    def body(self) -> StreamBody:
        return StreamBody(self.send, self.send, lambda: HEADERS)

    def received(self) -> tuple[int, bytes]:
        """The number of heads, which come first, and the text of the body."""
        assert not self._overlaps, "two messages were sent at once"
        assert all(len(part) <= SLICE for part in self.parts)
        kinds = [each["type"] for each in self.messages]
        assert kinds == sorted(kinds, reverse=True)
        return len(self.statuses), b"".join(self.parts)


class SlowConnection(Connection):
    """The same on a connection of uvicorn. Each write fills its buffer, which is empty two steps of the loop later."""

    def __init__(self) -> None:
        super().__init__()
        self._flow = FlowControl(self)
        self._client = ClientConnection(self, lambda: None)
        self._reads = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        self._set_writable(False)
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, self._drained)

    def pause(self) -> None:
        self._reads = False
        self._set_writable(False)

    def resume(self) -> None:
        self._reads = True
        self._set_writable(True)

    def _drained(self) -> None:
        self._set_writable(self._reads)

    def _set_writable(self, writable: bool) -> None:
        self._flow.resume_writing() if writable else self._flow.pause_writing()
        self._client.is_writable = writable

    def body(self) -> StreamBody:
        send = uvicorn_send(self, self._flow)
        return StreamBody(send, send, lambda: HEADERS, self._client)

    def received(self) -> tuple[int, bytes]:
        assert all(len(each) <= SLICE + 32 for each in self.written)
        head, *chunks = self.written
        heads = sum(each.startswith(b"HTTP/1.1 200 OK\r\n") for each in self.written)
        assert head.startswith(b"HTTP/")
        return heads, unchunked(b"".join(chunks))


def part(number: int, size: int) -> bytes:
    """A part that differs from all others, and does not have the sign."""
    return b"<%d:%b>" % (number, b"." * size)


SIGN = b"~"
LARGE_SIZE = 2 * SLICE + 5


class Part(Struct, frozen=True):
    """One step of a test: a part is written, and its sending takes so many steps of the loop until the client stands
    still for a while, or the sending is cancelled, or both."""

    size: int = 0
    steps: int = 2
    silence: float = 0.0
    cancelled: bool = False


class Later(Struct, frozen=True):
    """A part is left for later."""

    size: int = 0


class Silence(Struct, frozen=True):
    """Time passes; the client reads or does not."""

    seconds: float
    reads: bool = True


class Asked(Struct, frozen=True):
    """Somebody asks whether the body has begun, which ends the signs, and lets them begin again."""


class Other(Struct, frozen=True):
    """Another answer goes on with the body."""


SIZES = st.sampled_from([0, 0, 1000, LARGE_SIZE])
SILENCES = st.sampled_from([0.0, 0.0, 1.0, 20.0, 40.0])
STEPS = st.one_of(
    st.builds(Part, SIZES, st.integers(1, 8), SILENCES, st.booleans()),
    st.builds(Later, SIZES),
    st.builds(Silence, SILENCES, st.booleans()),
    st.builds(Asked),
    st.builds(Other),
)


@given(
    told=st.lists(STEPS, max_size=12),
    direct=st.booleans(),
    opened=st.booleans(),
    chunks=st.booleans(),
)
@example([Part(LARGE_SIZE, 3, 0.0, True), Silence(40.0)], False, False, False)
@example([Part(), Part(LARGE_SIZE, 2, 40.0)], True, False, False)
@example([Part(), Silence(20.0), Part(0, 1, 20.0)], False, False, False)
@example([Part(), Silence(20.0), Part(LARGE_SIZE, 1, 20.0, True)], False, False, False)
@example([Part(0, 1, 0.0, True), Part()], True, False, True)
@example([Silence(20.0, False), Part(0, 2, 40.0, True)], False, False, False)
@settings(max_examples=100)
def test_all_parts_come_once_and_in_order_whatever_the_client_and_the_clock_do(
    told: list[Part | Later | Silence | Asked | Other], direct: bool, opened: bool, chunks: bool
) -> None:
    """After one head, and with signs between them only. `chunks`: parts are given to `write_chunk` where it is there."""

    async def scenario() -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            timers = Ticking(monkeypatch)
            client = SlowConnection() if direct else SlowClient()
            body = client.body()
            body.keep_open(timers, 5.0, 15.0, lambda: SIGN)
            if opened:
                await body.open()
            said = b""
            for number, each in enumerate(told):
                match each:
                    case Silence():
                        client.resume() if each.reads else client.pause()
                        await timers.pass_until(timers.now + each.seconds)
                    case Asked():
                        client.resume()
                        await body.has_begun()
                        body.keep_open(timers, 5.0, 15.0, lambda: SIGN)
                    case Other():
                        body.go_on(lambda: HEADERS, lambda: SIGN)
                    case Later():
                        said += part(number, each.size)
                        body.write_later(part(number, each.size))
                    case Part():
                        made = part(number, each.size)
                        said += made
                        write = body.write_chunk
                        if not (chunks and write and len(made) <= SLICE and write(made)):
                            await written(body.write(made), each, client, timers)
            ending = asyncio.ensure_future(body.end(b"<end>"))
            await steps(2)
            client.resume()
            await ending
            await body.close()
            await timers.pass_until(timers.now + 100)
            heads, text = client.received()
            assert heads == 1
            assert text.replace(SIGN, b"") == said + b"<end>"
            assert all(re.fullmatch(rb"(<[^<>]*>)*", each) for each in text.split(SIGN))
            assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


async def written(
    writing: Awaitable[None], each: Part, client: SlowClient | SlowConnection, timers: Ticking
) -> None:
    if writing is ACCEPTED:
        return
    task = asyncio.ensure_future(writing)
    await steps(each.steps)
    if each.silence:
        client.pause()
        await timers.pass_until(timers.now + each.silence)
    if each.cancelled:
        task.cancel()
    client.resume()
    await asyncio.wait((task,))


async def steps(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_body_without_an_interval_has_one_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 0.0, lambda: SIGN)
    await timers.pass_until(timers.now + 4)
    assert client.received() == (0, b"")
    await timers.pass_until(timers.now + 1000)
    assert client.received() == (1, SIGN)
    await body.write(b"one")
    await timers.pass_until(timers.now + 1000)
    assert client.received() == (1, SIGN + b"one")
    await body.close()


async def test_a_body_without_an_interval_that_has_begun_has_no_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 0.0, lambda: SIGN)
    await body.write(b"one")
    await timers.pass_until(timers.now + 1000)
    assert client.received() == (1, b"one")
    await body.close()


async def test_an_empty_sign_begins_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    signs = [SIGN, b"", b"", b""]
    body.keep_open(timers, 5.0, 5.0, signs.pop)
    await timers.pass_until(timers.now + 15)
    assert not body.go_on(lambda: HEADERS, signs.pop)
    assert client.received() == (0, b"")
    await timers.pass_until(timers.now + 5)
    assert client.received() == (1, SIGN)
    await body.close()


async def test_a_client_that_does_not_read_gets_one_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    client.pause()
    await timers.pass_until(timers.now + 100)
    client.resume()
    await steps(5)
    assert client.received() == (1, SIGN)
    await timers.pass_until(timers.now + 5)
    assert client.received() == (1, SIGN * 2)
    await body.close()


async def test_a_connection_that_does_not_take_more_gets_no_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, connection = Ticking(monkeypatch), SlowConnection()
    body = connection.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    await body.write(b"one")
    connection.pause()
    await timers.pass_until(timers.now + 100)
    connection.resume()
    await steps(5)
    assert connection.received() == (1, b"one")
    await timers.pass_until(timers.now + 5)
    assert connection.received() == (1, b"one" + SIGN)
    await body.close()


@pytest.mark.parametrize("direct", [False, True])
async def test_a_body_that_was_opened_is_kept_open(
    monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    timers = Ticking(monkeypatch)
    client = SlowConnection() if direct else SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    await body.open()
    await steps(3)
    await timers.pass_until(timers.now + 11)
    assert client.received() == (1, SIGN * 2)
    await body.close()
    await timers.pass_until(timers.now + 50)
    assert client.received() == (1, SIGN * 2), "it is closed"


@pytest.mark.parametrize("begins", [False, True], ids=["the first", "a later one"])
async def test_a_closed_body_takes_the_sign_with_it(
    monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    if begins:
        await body.write(b"one")
    before, others = client.received(), asyncio.all_tasks()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    client.pause()
    await timers.pass_until(timers.now + 50)
    assert asyncio.all_tasks() > others
    await body.close()
    assert asyncio.all_tasks() == others
    client.resume()
    await timers.pass_until(timers.now + 50)
    assert client.received() == before


async def test_signs_end_when_somebody_asks_whether_the_body_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that an error that is about to be answered may have its own status."""
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    assert not await body.has_begun()
    await timers.pass_until(timers.now + 50)
    assert client.received() == (0, b"")

    signing = SlowClient()
    body = signing.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    signing.pause()
    await timers.pass_until(timers.now + 5)
    asking = asyncio.create_task(body.has_begun())
    await steps(3)
    assert not asking.done(), "the head is being sent"
    signing.resume()
    assert await asking
    await timers.pass_until(timers.now + 50)
    assert signing.received() == (1, SIGN)


async def test_another_answer_goes_on_with_its_own_headers_and_sign(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    other = [(b"content-type", b"text/other")]
    assert not body.go_on(lambda: other, lambda: b"!")
    client.pause()
    await timers.pass_until(timers.now + 5)
    assert body.go_on(lambda: HEADERS, lambda: b"?"), "the head is being sent"
    client.resume()
    await steps(5)
    await timers.pass_until(timers.now + 5)
    assert client.messages[0]["headers"] == other
    assert body.go_on(lambda: HEADERS, lambda: b".")
    await timers.pass_until(timers.now + 5)
    assert client.received() == (1, b"!?.")
    await body.close()


@pytest.mark.parametrize("direct", [False, True])
async def test_no_sign_is_sent_while_parts_follow_each_other(
    monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    timers = Ticking(monkeypatch)
    client = SlowConnection() if direct else SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    for _ in range(10):
        await timers.pass_until(timers.now + 4)
        await body.write(b"one")
    assert client.received() == (1, b"one" * 10)
    await body.close()


@pytest.mark.parametrize("signs_first", [False, True])
async def test_a_sign_and_the_opening_of_a_body_send_one_head(
    monkeypatch: pytest.MonkeyPatch, signs_first: bool
) -> None:
    timers, client = Ticking(monkeypatch), SlowClient()
    body = client.body()
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    client.pause()
    if signs_first:
        await timers.pass_until(timers.now + 6)
    opening = asyncio.create_task(body.open())
    await steps(2)
    await timers.pass_until(timers.now + 20)
    client.resume()
    await opening
    assert client.received() == (1, SIGN if signs_first else b"")
    await body.close()


async def test_a_part_that_waits_stops_the_direct_writes() -> None:
    connection = SlowConnection()
    body = connection.body()
    assert body.write_chunk is None
    await body.write(b"one,")
    write = body.write_chunk
    assert write is not None
    connection.pause()
    assert not write(b"two,"), "the client is slow to read"
    connection.resume()
    body.write_later(b"three,")
    assert body.write_chunk is None
    await body.write(b"four,")
    await body.end(b"five")
    assert connection.received() == (1, b"one,three,four,five")


async def test_a_sign_that_cannot_be_sent_leaves_the_error_to_the_next_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Ticking(monkeypatch)

    async def send(message: Message) -> None:
        raise OSError("gone")

    body = StreamBody(send, send, lambda: HEADERS)
    body.keep_open(timers, 5.0, 5.0, lambda: SIGN)
    await timers.pass_until(timers.now + 5)
    with pytest.raises(OSError, match="gone"):
        await body.write(b"one")
    await body.close()
