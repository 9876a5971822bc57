"""The small stand-ins for uvicorn's objects behave as what they stand for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.uvicorn_internals.light import LightEvent, LightFlowControl, Pipeline

pytestmark = pytest.mark.anyio


async def test_an_event_wakes_all_who_wait_but_those_that_were_cancelled() -> None:
    event = LightEvent()
    waiting = [asyncio.create_task(event.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    event.set()
    event.clear()  # they were woken all the same
    assert await asyncio.gather(*waiting[1:]) == [True, True]
    assert waiting[0].cancelled()
    assert not event.is_set()
    again = asyncio.create_task(event.wait())
    await asyncio.sleep(0)
    assert not again.done()
    event.set()
    assert await again
    assert await event.wait()


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.deeds: list[str] = []

    def pause_reading(self) -> None:
        self.deeds.append("pause")

    def resume_reading(self) -> None:
        self.deeds.append("resume")


DEEDS = ("pause_reading", "resume_reading", "pause_writing", "resume_writing")


@given(st.lists(st.sampled_from(DEEDS), max_size=8))
def test_flow_control_is_as_uvicorns(deeds: list[str]) -> None:
    async def seen(kind: Any) -> Any:
        transport = Transport()
        flow = kind(transport)
        drains = []
        for deed in deeds:
            getattr(flow, deed)()
            drain = asyncio.create_task(flow.drain())
            await asyncio.sleep(0)
            drains.append((flow.read_paused, flow.write_paused, drain.done()))
            drain.cancel()
        return transport.deeds, drains

    assert asyncio.run(seen(LightFlowControl)) == asyncio.run(seen(FlowControl))


@given(st.lists(st.sampled_from(("appendleft", "pop", "popleft", "clear"))))
def test_a_pipeline_is_a_queue(deeds: list[str]) -> None:
    pipeline, queue = Pipeline[int](), deque[int]()
    for number, deed in enumerate(deeds):
        for each in (pipeline, queue):
            if deed == "appendleft":
                each.appendleft(number)
            elif deed == "clear" or each:
                getattr(each, deed)()
        assert list(pipeline) == list(queue)
