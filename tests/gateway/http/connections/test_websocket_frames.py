"""Frames are found, and messages arrive, however what a client sends is cut."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from gateway.http.connections.websocket_frames import frame_at
from tests.canned_connections import websocket
from tests.waiting import wait_until_async

SIZES = st.sampled_from([0, 1, 125, 126, 127, 300, 65_535, 65_536, 70_000])
MESSAGES = st.lists(st.tuples(st.sampled_from(["text", "ping", "pong"]), SIZES, st.integers(1, 3)), max_size=6)  # fmt: skip


@given(
    opcode=st.sampled_from(list(Opcode)), size=SIZES, final=st.booleans(), before=st.binary(max_size=9)
)  # fmt: skip
def test_a_frame_is_found_as_the_library_writes_it(
    opcode: Opcode, size: int, final: bool, before: bytes
) -> None:
    control = opcode >= Opcode.CLOSE
    if control:
        size, final = min(size, 125), True
    data = Frame(opcode, b"x" * size, fin=final).serialize(mask=True)
    found = frame_at(before + data, len(before))
    assert found is not None
    assert (found.opcode, found.is_final, found.length) == (opcode, final, size)
    assert found.end == len(before) + len(data)
    assert found.is_control == control
    header = len(data) - size
    for cut in range(header):
        assert frame_at(data[:cut], 0) is None
    assert frame_at(data[:header], 0) is not None


def written(kind: str, size: int, parts: int) -> bytes:
    if kind != "text":
        opcode = Opcode.PING if kind == "ping" else Opcode.PONG
        return Frame(opcode, b"x" * min(size, 125)).serialize(mask=True)
    step = size // parts + 1
    pieces = [b"x" * size][:1] if parts == 1 else [b"x" * min(step, size - at) for at in range(0, size, step)] or [b""]  # fmt: skip
    return b"".join(
        Frame(
            Opcode.CONT if number else Opcode.TEXT, piece, fin=number == len(pieces) - 1
        ).serialize(mask=True)
        for number, piece in enumerate(pieces)
    )


@settings(deadline=None, max_examples=50)
@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 70_000), min_size=1, max_size=8))
def test_messages_arrive_however_they_are_cut(
    messages: list[tuple[str, int, int]], cuts: list[int]
) -> None:
    texts: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            texts.append(len(message["text"]))

    async def scenario() -> None:
        canned = await websocket(app)
        data = b"".join(written(*each) for each in messages)
        at = number = 0
        while at < len(data):
            size = cuts[number % len(cuts)]
            canned.receive(data[at : at + size])
            at, number = at + size, number + 1
            await asyncio.sleep(0)
        expected = [size for kind, size, _ in messages if kind == "text"]
        await wait_until_async(lambda: texts == expected)
        assert not canned.transport.closing
        pings = [size for kind, size, _ in messages if kind == "ping"]
        if pings:
            last = Frame(Opcode.PONG, b"x" * min(pings[-1], 125)).serialize(mask=False)
            assert last in canned.transport.writes
        assert canned.protocol._message_since is None
        await canned.end()

    asyncio.run(scenario())


@pytest.mark.anyio
async def test_a_ping_is_answered_after_the_frame_that_is_arriving() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (await receive())["type"] == "websocket.receive":
            pass

    canned = await websocket(app)
    canned.transport.writes.clear()
    long = Frame(Opcode.BINARY, b"x" * 1000).serialize(mask=True)
    ping = Frame(Opcode.PING, b"a").serialize(mask=True)
    pong = Frame(Opcode.PONG, b"a").serialize(mask=False)
    canned.receive(ping + long[:500])
    assert canned.transport.writes == [pong]
    canned.protocol.pause_writing()
    canned.receive(long[500:])
    await wait_until_async(lambda: canned.transport.is_read)
    canned.receive(ping + long[:500])
    canned.protocol.resume_writing()
    assert canned.transport.writes == [pong]
    canned.receive(long[500:])
    assert canned.transport.writes == [pong, pong]
    await canned.end()


@pytest.mark.anyio
async def test_sending_after_a_limit_has_closed_the_connection_is_refused() -> None:
    """The gateway's WebSocket takes this error for a client that has left."""
    closed, refused = asyncio.Event(), []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        await closed.wait()
        with pytest.raises(RuntimeError, match=r"after sending 'websocket\.close'") as error:
            await send({"type": "websocket.send", "text": "more"})
        refused.append(error)

    canned = await websocket(app)
    canned.receive(Frame(Opcode.PONG, b"a").serialize(mask=True) * 600)
    assert canned.transport.closing
    closed.set()
    await wait_until_async(lambda: refused)
    await canned.end()
