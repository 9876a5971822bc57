"""The context of a request: who is its caller, also of what the gateway does by itself, and what is recorded of it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.base.shares import OWNER
from gateway.observe.request_context import (
    RequestContext,
    as_the_gateway,
    background_context,
    current_context,
    current_principal,
    within,
)
from gateway.observe.run_stats import RunStats
from gateway.plugins.protocols import Principal, PrincipalLimits, Span, SpanKind

pytestmark = pytest.mark.anyio

ADA = Principal(name="ada", models=["m"], tools=[], limits=PrincipalLimits(requests_per_minute=1))


def test_what_the_gateway_does_for_a_line_of_a_batch_does_not_wait_behind_clients() -> None:
    """The line may hold a place meanwhile, with and without a key."""
    for principal in (None, ADA):
        with within(RequestContext("req_1", principal=principal, priority=100)), as_the_gateway():
            caller = current_context()
            assert caller is not None
            assert caller.priority == 0
            assert caller.owner == (None if principal is None else "ada")


def test_it_is_neither_restricted_nor_limited() -> None:
    with within(RequestContext("req_1", principal=ADA)), as_the_gateway():
        caller = current_context()
        assert caller is not None
        assert caller.principal == Principal(name="ada")


def test_a_request_without_a_key_keeps_its_caller() -> None:
    with as_the_gateway():
        assert current_context() is None
    anonymous = RequestContext("req_1")
    with within(anonymous):
        with as_the_gateway():
            assert current_context() is anonymous
        assert current_context() is anonymous


def test_the_gateways_work_leaves_the_request_as_it_was() -> None:
    context = RequestContext("req_1", principal=ADA, priority=100, waits_for_room=False)
    context.limit_headers.append((b"x-limit", b"1"))
    with within(context), as_the_gateway():
        caller = current_context()
        assert caller is not None
        assert (caller.id, caller.waits_for_room, caller.limit_headers) == ("req_1", True, [])
        caller.limit_headers.append((b"x-limit", b"2"))
        caller.added_headers.append((b"x-added", b"1"))
    assert (context.principal, context.priority, context.waits_for_room) == (ADA, 100, False)
    assert context.limit_headers == [(b"x-limit", b"1")]
    assert context.added_headers == [(b"x-added", b"1")]


def test_a_block_has_its_context_and_the_one_before_follows_it_also_after_an_error() -> None:
    outer, inner = RequestContext("req_1", principal=ADA), RequestContext("req_2")
    before = OWNER.get()
    with within(outer):
        with pytest.raises(KeyError), within(inner):
            assert (current_context(), current_principal(), OWNER.get()) == (inner, None, "")
            raise KeyError
        assert (current_context(), current_principal(), OWNER.get()) == (outer, ADA, "ada")
    assert (current_context(), current_principal(), OWNER.get()) == (None, None, before)


async def test_tasks_inherit_the_context_that_their_parent_has_entered_before() -> None:
    context = RequestContext("req_1")

    async def seen() -> tuple[RequestContext | None, str | None, str]:
        await asyncio.sleep(0)
        principal = current_principal()
        name = None if principal is None else principal.name
        return current_context(), name, OWNER.get()

    async def request() -> list[Any]:
        tasks = [asyncio.create_task(seen())]
        context.enter()
        tasks.append(asyncio.create_task(seen()))
        context.identified(ADA)
        tasks.append(asyncio.create_task(seen()))
        return [await each for each in tasks]

    found = await asyncio.create_task(request())
    assert found == [(None, None, ""), (context, "ada", ""), (context, "ada", "ada")]
    assert current_context() is None, "the context is the request's alone"


def test_two_requests_share_no_headers() -> None:
    one, two = RequestContext("req_1"), RequestContext("req_1")
    one.added_headers.append((b"a", b"b"))
    one.limit_headers.append((b"a", b"b"))
    assert (two.added_headers, two.limit_headers) == ([], [])
    assert len({one, two}) == 2, "each is itself alone"


class Logged:
    """The texts of a request."""

    logged = True

    def read(self, body: bytes) -> None: ...

    def see(self, deltas: object) -> None: ...

    def texts(self, *, failed: bool) -> dict[str, str] | None:
        return None


class Traced:
    """A span that notes its parts and its end."""

    def __init__(self, name: str = "request") -> None:
        self.name = name
        self.ends: list[tuple[dict[str, Any], str | None, str | None]] = []

    @property
    def headers(self) -> Mapping[str, str]:
        return {}

    def child(self, name: str, *, kind: SpanKind = "internal") -> Span:
        return Traced(f"{self.name} > {name}")

    def record(
        self, name: str, started: float, ended: float, attributes: Mapping[str, Any] = {}
    ) -> None: ...

    def event(self, name: str, at: float) -> None: ...

    def end(
        self,
        attributes: Mapping[str, Any] = {},
        *,
        name: str | None = None,
        error: str | None = None,
    ) -> None:
        self.ends.append((dict(attributes), name, error))


def test_the_first_run_began_with_its_request_and_the_others_later() -> None:
    span, content = Traced(), Logged()
    context = RequestContext("req_1", started=5.0, content=content, span=span)
    first, later = context.new_run("chat"), context.new_run("embeddings")
    assert (first.api, first.request_id, first.span) == ("chat", "req_1", span)
    assert (first.started, first.content) == (5.0, content)
    assert context.run is first
    assert (later.api, later.request_id, later.span) == ("embeddings", "req_1", span)
    assert later.started > 5.0
    assert later.content is None


def test_a_span_ends_with_what_is_known_of_the_request() -> None:
    RequestContext("req_1").end_span()  # not traced
    span = Traced()
    RequestContext("req_1", span=span).end_span()
    assert span.ends == [({"gateway.request_id": "req_1"}, None, None)]
    span = Traced()
    context = RequestContext("req_1", "POST", "/v1/chat/completions", span=span, status=429)
    context.error_code, context.client_left = "rate_limit", True
    run = context.new_run("chat")
    run.response_id, run.status = "resp_1", "failed"
    context.end_span()
    run.error_code = "server_error"
    context.end_span()
    attributes = {
        "gateway.request_id": "req_1",
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 429,
        "gateway.api": "chat",
        "gen_ai.response.id": "resp_1",
        "gateway.run.status": "failed",
        "gateway.client_left": True,
    }
    name = "POST /v1/chat/completions"
    assert span.ends == [(attributes, name, "rate_limit"), (attributes, name, "server_error")]


def test_a_background_run_goes_on_as_the_client_whose_answer_has_ended() -> None:
    context = RequestContext(
        "req_1", "POST", "/v1/responses", principal=ADA, priority=3, waits_for_room=False
    )
    context.span, context.content = Traced(), Logged()
    run = context.new_run("responses")
    made = background_context(run, "req_2", context)
    assert (made.id, made.method, made.route) == ("req_1", "", "background")
    assert (made.principal, made.priority, made.waits_for_room) == (ADA, 3, False)
    assert (made.run, made.content, made.started) == (run, context.content, context.started)
    assert made.span is run.span
    assert isinstance(made.span, Traced)
    assert made.span.name == "request > background"
    assert context.span is not made.span


def test_a_background_run_of_another_process_has_an_id_and_no_client() -> None:
    run = RunStats("responses")
    made = background_context(run, "req_2", None)
    assert (made.id, made.principal, made.priority, made.waits_for_room) == ("req_2", None, 0, True)
    assert (made.run, made.span, made.started) == (run, None, run.started)
