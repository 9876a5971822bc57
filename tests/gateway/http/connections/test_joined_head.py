"""The head of an answer and the first part of its body leave in one write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.connections.joined_head import JoinedHeadTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"


class Written(asyncio.Transport):
    """Notes what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return 0


def run(work: Callable[[JoinedHeadTransport, Written], Any]) -> list[bytes]:
    """What is written by `work`, and in the iterations of the event loop after it."""

    async def main() -> list[bytes]:
        inner = Written()
        work(JoinedHeadTransport(inner, asyncio.get_running_loop()), inner)
        await asyncio.sleep(0)
        return inner.writes

    return asyncio.run(main())


def test_a_head_and_a_body_are_one_write() -> None:
    def answer(transport: JoinedHeadTransport, inner: Written) -> None:
        transport.write(HEAD)
        assert inner.writes == []
        assert transport.get_write_buffer_size() == len(HEAD)
        transport.write(b"body")

    assert run(answer) == [HEAD + b"body"]


def test_a_head_alone_is_written_in_the_next_iteration() -> None:
    assert run(lambda transport, _: transport.write(HEAD)) == [HEAD]


@pytest.mark.parametrize("body", [b"", b"body"])
def test_nothing_is_lost_by_a_close(body: bytes) -> None:
    def answer(transport: JoinedHeadTransport, inner: Written) -> None:
        transport.write(HEAD)
        if body:
            transport.write(body)
        transport.close()
        assert inner.is_closed

    assert run(answer) == [HEAD + body]


def test_nothing_is_written_after_an_abort() -> None:
    def answer(transport: JoinedHeadTransport, inner: Written) -> None:
        transport.write(HEAD)
        transport.abort()

    assert run(answer) == []


@given(
    st.lists(
        st.one_of(
            st.sampled_from([HEAD, b"x" * 16_384, b"x" * 16_385, None]), st.binary(max_size=8)
        )
    )
)
def test_every_byte_is_written_in_order(writes: list[bytes | None]) -> None:
    """None: the event loop runs in between."""

    async def main() -> bytes:
        inner = Written()
        transport = JoinedHeadTransport(inner, asyncio.get_running_loop())
        for data in writes:
            if data is None:
                await asyncio.sleep(0)
            else:
                transport.write(data)
        await asyncio.sleep(0)
        return b"".join(inner.writes)

    assert asyncio.run(main()) == b"".join(data for data in writes if data is not None)
