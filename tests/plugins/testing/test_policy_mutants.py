"""Broken policies and routers, each of which its kit must catch by the test that is named beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs

from gateway.base.deltas import Delta, TextDelta
from gateway.config import RouteConfig
from gateway.models.routing import Routes
from gateway.plugins.protocols import (
    Ending,
    OutputFilter,
    Policy,
    PolicyRefusal,
    PolicyRequest,
    RoutingRequest,
)
from gateway.sdk.policies import texts_of
from gateway_testing import PolicyContract, RouterContract

pytestmark = pytest.mark.anyio


class Filter:
    """A correct filter: replaces `@home`, which it holds back while it may still come."""

    word = "@home"

    def __init__(self) -> None:
        self.ended: Ending | None = None
        self.held = ""

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, TextDelta):
                out += self.text(delta.text)
            else:
                out += [*self.finish(), delta]
        return out

    def text(self, text: str) -> Sequence[Delta]:
        text = (self.held + text).replace(self.word, "[place]")
        sizes = range(len(self.word) - 1, 0, -1)
        size = next((size for size in sizes if text.endswith(self.word[:size])), 0)
        self.held = text[len(text) - size :]
        shown = text[: len(text) - size]
        return [TextDelta(shown)] if shown else []

    def finish(self) -> Sequence[Delta]:
        held, self.held = self.held, ""
        return [TextDelta(held)] if held else []


class Losing(Filter):
    """What it holds back at the end is lost."""

    def finish(self) -> Sequence[Delta]:
        self.held = ""
        return []


class DecidingOnDeltas(Filter):
    """Looks for the word in each delta."""

    def text(self, text: str) -> Sequence[Delta]:
        return [TextDelta(text.replace(self.word, "[place]"))]


class Overtaking(Filter):
    """What it holds back comes after the call that follows it."""

    def feed(self, deltas: Sequence[Delta]) -> Sequence[Delta]:
        out: list[Delta] = []
        for delta in deltas:
            out += self.text(delta.text) if isinstance(delta, TextDelta) else [delta]
        return out


class Withholding(Filter):
    """Nothing is shown before the end."""

    def text(self, text: str) -> Sequence[Delta]:
        self.held += text
        return []


SHARED = Filter()


class SlowFilter(Filter):
    def text(self, text: str) -> Sequence[Delta]:
        time.sleep(0.001)
        return super().text(text)


class House:
    """A correct policy."""

    filter: Callable[[], OutputFilter] = Filter

    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        if any("forbidden" in text for text in self.texts(request)):
            return PolicyRefusal("No.")
        return request

    def texts(self, request: PolicyRequest) -> Sequence[str]:
        return [*request.texts, *(texts_of(request.turn) if request.turn else ())]

    def output(self, request: PolicyRequest) -> OutputFilter | None:
        return self.filter()


def filtering(made: Callable[[], OutputFilter]) -> Policy:
    policy = House()
    policy.filter = made
    return policy


class LastMessageOnly(House):
    def texts(self, request: PolicyRequest) -> Sequence[str]:
        return [*request.texts, *(list(texts_of(request.turn))[-1:] if request.turn else ())]


class TurnsOnly(House):
    def texts(self, request: PolicyRequest) -> Sequence[str]:
        return list(texts_of(request.turn)) if request.turn else ()


class Adding(House):
    """Adds a line each time that it is asked."""

    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        return structs.replace(request, texts=[*request.texts, "Be kind."])


class Impersonating(House):
    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        return structs.replace(request, owner="somebody")


class InPlace(House):
    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        if request.texts:
            request.texts.append("Be kind.")  # type: ignore[attr-defined]
        return request


class Blocking(House):
    async def check(self, request: PolicyRequest) -> PolicyRequest | PolicyRefusal:
        time.sleep(0.001)  # noqa: ASYNC251  # the mistake
        return await super().check(request)


class Leaking(House):
    """Its work goes on after it is closed."""

    def __init__(self) -> None:
        self.task = asyncio.create_task(asyncio.sleep(3600))


class PolicyKit(PolicyContract):
    """Not collected: its tests are called here."""

    refused = "forbidden"
    words = ("@home",)
    close_seconds = 0.05


@pytest.mark.parametrize(
    ("test", "make"),
    [
        ("test_what_it_accepts_stays_as_it_is", Impersonating),
        ("test_what_it_accepts_stays_as_it_is", InPlace),
        ("test_what_it_has_decided_is_decided_the_same_again", Adding),
        ("test_it_refuses_wherever_the_text_stands", LastMessageOnly),
        ("test_it_refuses_wherever_the_text_stands", TurnsOnly),
        ("test_how_the_output_is_cut_does_not_matter", lambda: filtering(DecidingOnDeltas)),
        ("test_what_is_held_at_the_end_is_not_lost", lambda: filtering(Losing)),
        ("test_calls_and_reasoning_pass_in_their_order", lambda: filtering(Overtaking)),
        ("test_outputs_do_not_share_anything", lambda: filtering(lambda: SHARED)),
        ("test_little_is_held_back", lambda: filtering(Withholding)),
        (
            "test_filtering_waits_for_nothing_and_its_cost_is_linear",
            lambda: filtering(SlowFilter),
        ),
    ],
)
async def test_a_policy_that_breaks_a_promise_is_caught(
    test: str, make: Callable[[], Policy]
) -> None:
    promise = getattr(PolicyKit(), test)
    await promise(House())
    with pytest.raises((AssertionError, ExceptionGroup)):
        await promise(make())


async def test_a_policy_that_blocks_the_loop_is_caught() -> None:
    promise = PolicyKit().test_any_text_is_decided_upon
    await promise("w", House())
    with pytest.raises(AssertionError, match="blocks the event loop"):
        await promise("w", Blocking())


@asynccontextmanager
async def opened(made: Callable[[], Policy]) -> AsyncIterator[Policy]:
    yield made()


async def test_work_that_goes_on_after_closing_is_caught() -> None:
    promise = PolicyKit().test_nothing_runs_after_it_is_closed
    await promise(lambda: opened(House))
    with pytest.raises(AssertionError, match="there is still: task"):
        await promise(lambda: opened(Leaking))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if "sleep" in repr(task):
            task.cancel()


class Strings:
    """Names one model, as text."""

    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        return "small"


class Absent:
    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        return ["gone"]


class Trusting:
    """Expects a model, and one that can answer."""

    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        return [{"auto": "small"}[request.model or ""]]


class Idle:
    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        return [min(request.models, key=lambda model: model.waiting).name]


class BlockingRouter:
    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        time.sleep(0.001)  # noqa: ASYNC251  # the mistake
        return ["small"]


class RouterKit(RouterContract):
    """Not collected."""

    model = "auto"
    models = ("small", "large")


class TestRoutes(RouterContract):
    """The routes of the configuration."""

    model = "auto"
    models = ("small", "large")

    @pytest.fixture
    def router(self) -> Routes:
        return Routes({"auto": RouteConfig(models=("small", "large"))})


@pytest.mark.parametrize(
    ("test", "make"),
    [
        ("test_it_names_models_that_can_answer", Strings),
        ("test_it_names_models_that_can_answer", Absent),
        ("test_any_model_may_be_asked_for", Trusting),
        ("test_no_model_may_be_able_to_answer", Idle),
        ("test_requests_at_once_do_not_mix", Strings),
        ("test_routing_does_not_block_the_event_loop", BlockingRouter),
    ],
)
async def test_a_router_that_breaks_a_promise_is_caught(test: str, make: Callable[[], Any]) -> None:
    promise = getattr(RouterKit(), test)
    await promise(Routes({"auto": RouteConfig(models=("small", "large"))}))
    with pytest.raises((AssertionError, KeyError, ValueError)):
        await promise(make())
