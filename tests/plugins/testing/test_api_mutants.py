"""Broken APIs, each of which the kit for APIs must catch by the test that is named beside it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from msgspec import Struct

from gateway.plugins.hookspecs import hookimpl
from gateway.sdk import (
    AsgiApp,
    Delta,
    FinishReason,
    GatewayError,
    GenerationRequest,
    NoConfig,
    Outcome,
    Reply,
    Route,
    RouteRequest,
    Sampling,
    TextDelta,
    Turn,
)
from gateway.sdk.wire import InputText, Message, convert, decode_object
from gateway_testing import ApiContract
from gateway_testing.api_contract import ApiRequest, ServedApi

pytestmark = pytest.mark.slow  # each starts a gateway


class Asked(Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    model: str
    stream: bool = False


class Writer:
    """A correct writer."""

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        return "".join(each.text for each in deltas if isinstance(each, TextDelta)).encode()

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        return self.feed(held)

    def finish(self, outcome: Outcome) -> bytes:
        return b"[end]"

    def fail(self, error: GatewayError) -> bytes:
        return b"[error]"

    def idle(self) -> bytes:
        return b"~"


class EndingTwice(Writer):
    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        return super().end(held, reason) + b"[end]"


class FailingSilently(Writer):
    def fail(self, error: GatewayError) -> bytes:
        return b""


class Silent(Writer):
    def idle(self) -> bytes:
        return b""


class Say:
    """A correct API."""

    writer: Callable[[], Writer] = Writer

    def __init__(self) -> None:
        path = f"/{type(self).__name__.lower()}"
        self.routes = (Route(method="POST", path=path, handle=self.create, takes=Asked),)

    async def create(self, request: RouteRequest) -> Reply | AsgiApp:
        """Answer a text."""
        return await self.answer(request)

    async def answer(self, request: RouteRequest) -> Reply | AsgiApp:
        asked = convert(decode_object(await request.body()), Asked)
        generation = GenerationRequest(
            model=self.model(asked),
            turn=Turn(items=[Message(role="user", content=[InputText(text=asked.text)])]),
            owner=request.owner,
            sampling=Sampling(max_tokens=90_000),
        )
        answer = await request.gateway.prepare(generation)
        if asked.stream:
            return answer.stream(self.writer, content_type="text/plain", idle_seconds=0.2)
        return answer.whole(self.writer, content_type="text/plain")

    def model(self, asked: Asked) -> str:
        return asked.model

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply.error(error)


class Undescribed(Say):
    async def create(self, request: RouteRequest) -> Reply | AsgiApp:
        return await self.answer(request)


class AlwaysSuccessful(Say):
    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply(body=error.message.encode(), status=200)


class WithoutHeaders(Say):
    def error(self, error: GatewayError, request_id: str) -> Reply:
        return Reply(body=Reply.error(error).body, status=error.status)


class AnotherEnvelope(Say):
    """What it finds wrong itself looks otherwise than what the gateway does."""

    async def create(self, request: RouteRequest) -> Reply | AsgiApp:
        """Answer a text."""
        try:
            return await self.answer(request)
        except GatewayError as error:
            return Reply(body=b'{"wrong": true}', status=error.status)


class Crashing(Say):
    async def create(self, request: RouteRequest) -> Reply | AsgiApp:
        """Answer a text."""
        if not (await request.body()).startswith(b'{"'):
            raise ValueError("not what I expected")
        return await self.answer(request)


class AnyModel(Say):
    def model(self, asked: Asked) -> str:
        return "m" if asked.model != "small" else "small"


class Twice(Say):
    writer = EndingTwice


class Quiet(Say):
    writer = FailingSilently


class Mute(Say):
    writer = Silent


class Repeating(Say):
    """Its writers share what they have seen."""

    def __init__(self) -> None:
        super().__init__()
        seen: list[bytes] = []

        class Sharing(Writer):
            def feed(self, deltas: Sequence[Delta]) -> bytes:
                seen.append(super().feed(deltas))
                return b""

            def finish(self, outcome: Outcome) -> bytes:
                return b"".join(seen) + super().finish(outcome)

        self.writer = Sharing


class Sleeping(Say):
    async def create(self, request: RouteRequest) -> Reply | AsgiApp:
        """Answer a text."""
        time.sleep(0.001)  # noqa: ASYNC251  # the mistake
        return await self.answer(request)


BROKEN: tuple[tuple[type[Say], str, tuple[Any, ...]], ...] = (
    (Undescribed, "test_its_routes_are_described", ()),
    (AlwaysSuccessful, "test_a_request_without_a_key_is_refused", ()),
    (AlwaysSuccessful, "test_an_unknown_path_below_its_own_is_answered_by_it", ()),
    (AnotherEnvelope, "test_a_bad_body_is_the_clients_mistake", ()),
    (AnotherEnvelope, "test_a_full_queue_is_a_429", ()),
    (Crashing, "test_a_bad_body_is_the_clients_mistake", ()),
    (WithoutHeaders, "test_the_limits_of_a_key_hold", ()),
    (AnyModel, "test_a_model_that_is_not_there_is_a_404", (False,)),
    (Twice, "test_a_stream_ends_once", ()),
    (Quiet, "test_a_stream_ends_once", ()),
    (Mute, "test_silence_is_broken_and_changes_nothing", ()),
    (Repeating, "test_answers_at_once_do_not_mix", ()),
    (Sleeping, "test_requests_do_not_block_the_event_loop", ()),
)


class Plugin:
    """Offers one API."""

    def __init__(self, made: type[Say]) -> None:
        self.made = made
        self.__name__ = made.__name__.lower()

    @hookimpl
    def gateway_register_apis(self, register: Any) -> None:
        register(self.__name__, self.open)

    @asynccontextmanager
    async def open(self, config: NoConfig) -> AsyncIterator[Say]:
        yield self.made()


class Kit(ApiContract):
    """Not collected."""

    endings = (b"[end]", b"[error]")
    keep_alive = b"~"

    def __init__(self, made: type[Say]) -> None:
        self.name = made.__name__.lower()  # type: ignore[misc]

    def generation(self, text: str, *, model: str, stream: bool) -> ApiRequest:
        body = {"text": text, "model": model, "stream": stream}
        return ApiRequest(path=f"/{self.name}", body=body)


@contextmanager
def served(made: type[Say], factory: pytest.TempPathFactory) -> Iterator[tuple[Kit, ServedApi]]:
    kit = Kit(made)
    with kit.serving(kit.name, {}, [Plugin(made)], {}, factory.mktemp("api")) as api:
        yield kit, api


class TestSay(ApiContract):
    """The correct one passes all of the kit."""

    name = "say"
    endings = Kit.endings
    keep_alive = Kit.keep_alive
    generation = Kit.generation

    @pytest.fixture(scope="class")
    @classmethod
    def plugins(cls) -> Sequence[object]:
        return [Plugin(Say)]


@pytest.mark.parametrize(("made", "test", "arguments"), BROKEN)
def test_an_api_that_breaks_a_promise_is_caught(
    made: type[Say], test: str, arguments: tuple[Any, ...], tmp_path_factory: Any
) -> None:
    with served(made, tmp_path_factory) as (kit, api), pytest.raises(AssertionError):
        getattr(kit, test)(*arguments, api)
