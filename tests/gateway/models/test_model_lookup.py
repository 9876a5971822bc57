"""Models are found by the names that requests use, and held only by those who got them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from litestar.types import HTTPDisconnectEvent

from gateway.base.errors import (
    EngineUnavailable,
    GatewayError,
    InvalidRequest,
    ModelNotFound,
    ServerShuttingDown,
)
from gateway.config import RouteConfig
from gateway.http.loading import _unless_disconnected
from gateway.models.model_lookup import ModelLookup, WaitFor
from gateway.models.model_slot import ModelSlot, ModelUse
from gateway.models.routing import Routes, Routing
from gateway.observe.request_context import RequestContext, within
from gateway.plugins.protocols import Principal, Router, RoutingRequest
from tests.gateway.models.house import House, house
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

Step: TypeAlias = tuple[str, int, str, int]
"""What happens, to which of the requests, with which model, and how many turns of the event loop pass then."""
ENDS = ("cancel", "leave", "let go")
CHANGES = ("open", "shut", "break", "mend", "unload", "replace", "remove")
STEPS: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask with a client", *ENDS]) | st.sampled_from(CHANGES),
        st.integers(0, 5),
        st.sampled_from(["one", "also one", "two", "route"]),
        st.integers(0, 6),
    ),
    max_size=30,
)
ROUTES = {"route": RouteConfig(models=["two", "one"])}
OPEN: Callable[[], None] = lambda: None  # noqa: E731


def lookup_in(
    it: House,
    routes: Mapping[str, RouteConfig] = ROUTES,
    routers: Sequence[Router] = (),
    check_open: Callable[[], None] = OPEN,
) -> ModelLookup:
    return ModelLookup(it.slots, Routing(Routes(routes), routers), check_open)


def waits_until(left: asyncio.Event) -> WaitFor:
    """Waits as long as a client is connected, as for an HTTP request."""

    async def receive() -> HTTPDisconnectEvent:
        await left.wait()
        return {"type": "http.disconnect"}

    return lambda loading: _unless_disconnected(receive, loading)


async def unwaited(loading: Coroutine[Any, Any, None]) -> None:
    loading.close()
    raise AssertionError("it waits for a model that need not be loaded")


class Requests:
    """Requests that hold a model until they are let go or cancelled, and count who holds what."""

    def __init__(self, it: House) -> None:
        self.it = it
        self.lookup = lookup_in(it)
        self.made: list[ModelSlot] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.let_go: list[asyncio.Event] = []
        self.left: list[asyncio.Event] = []
        self.held: list[ModelSlot] = []
        """The models that requests hold, once for each request."""

    def add(self, name: str) -> None:
        aliases = [f"also {name}"]
        self.made.append(self.it.add(name, aliases=aliases, max_running=2, max_waiting=1))

    def ask(self, name: str, *, client: bool) -> None:
        left, let_go = asyncio.Event(), asyncio.Event()
        wait = waits_until(left) if client else None
        self.left.append(left)
        self.let_go.append(let_go)
        self.tasks.append(asyncio.create_task(self._hold(name, wait, let_go)))

    async def _hold(self, name: str, wait: WaitFor | None, let_go: asyncio.Event) -> None:
        with suppress(GatewayError):
            release = await self.lookup.hold(name, wait=wait)
            held = [each for each in self.made if release == each.release]
            self.held += held
            try:
                await let_go.wait()
            finally:
                for each in held:
                    self.held.remove(each)
                release()

    async def take(self, step: Step) -> None:
        what, number, name, turns = step
        slots, own = self.it.slots, name.removeprefix("also ")
        match what:
            case "ask" | "ask with a client":
                self.ask(name, client=what != "ask")
            case "cancel" if number < len(self.tasks):
                self.tasks[-1 - number].cancel()
            case "leave" if number < len(self.left):
                self.left[-1 - number].set()
            case "let go" if number < len(self.let_go):
                self.let_go[-1 - number].set()
            case "open":
                self.it.open.set()
            case "shut":
                self.it.open.clear()
            case "break":
                self.it.broken.add(own)
            case "mend":
                self.it.broken.discard(own)
                for slot in self.made:
                    slot.retry_at = 0.0
            case "unload" if (found := slots.find(name)) is not None and found.state == "loaded":
                slots.ask_to_unload(found)
            case "replace" if own != "route":
                self.add(own)
            case "remove":
                slots.retire(own)
        for _ in range(turns):
            await asyncio.sleep(0)


@given(
    steps=STEPS, max_loaded=st.sampled_from([None, 1]), wait_seconds=st.sampled_from([0.0, 60.0])
)
async def test_whatever_happens_to_its_requests_no_model_stays_held(
    steps: list[Step], max_loaded: int | None, wait_seconds: float
) -> None:
    async with house(max_loaded=max_loaded, wait_seconds=wait_seconds) as it:
        requests = Requests(it)
        for name in ("one", "two"):
            requests.add(name)
        for step in steps:
            await requests.take(step)
            for slot in requests.held:
                assert slot._holds >= requests.held.count(slot)
                assert slot.served, "a model is closed that is in use"
        it.open.set()
        for let_go in requests.let_go:
            let_go.set()
        await asyncio.gather(*requests.tasks, return_exceptions=True)
        assert [(slot._holds, slot.waiting) for slot in requests.made] == [(0, 0)] * len(
            requests.made
        )


async def test_a_model_is_not_unloaded_until_each_of_its_holds_is_released() -> None:
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)
        releases = [await lookup.hold("one") for _ in range(2)]
        it.slots.ask_to_unload(slot)
        releases.pop()()
        await asyncio.sleep(0)
        assert (slot.state, it.events) == ("unloading", ["open one"])
        releases.pop()()
        await wait_until_async(lambda: slot.state == "unloaded")
        assert it.events == ["open one", "close one"]


async def test_a_loaded_model_is_held_without_waiting() -> None:
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)
        await it.slots.load(slot)
        release = await lookup.hold("one", wait=unwaited)
        assert not slot.is_idle
        release()
        assert slot.is_idle


async def test_a_wait_that_gives_up_holds_nothing() -> None:
    """Whether it says so with an error or by returning."""
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)
        it.open.clear()

        async def return_early(loading: Coroutine[Any, Any, None]) -> None:
            task = asyncio.create_task(loading)
            await wait_until_async(lambda: slot.waiting == 1)
            task.cancel()
            await asyncio.wait((task,))

        left = asyncio.Event()
        asking = asyncio.create_task(lookup.hold("one", wait=waits_until(left)))
        await wait_until_async(lambda: slot.waiting == 1)
        left.set()
        with pytest.raises(EngineUnavailable, match="client left"):
            await asking
        release = await lookup.hold("one", wait=return_early)
        it.open.set()
        await it.slots.load(slot)
        assert (slot.is_idle, slot.waiting) == (True, 0)
        release()
        assert slot.is_idle


@pytest.mark.parametrize("error", [asyncio.CancelledError(), EngineUnavailable("late"), KeyError()])
async def test_a_model_that_was_loaded_for_a_wait_that_fails_is_released(
    error: BaseException,
) -> None:
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)

        async def fail_late(loading: Coroutine[Any, Any, None]) -> None:
            await loading
            assert not slot.is_idle
            raise error

        with pytest.raises(type(error)):
            await lookup.hold("one", wait=fail_late)
        assert (slot.is_idle, slot.state) == (True, "loaded")


async def test_a_client_that_leaves_when_the_model_is_loaded_is_served() -> None:
    """Both are known at once; whoever serves the request notices that its client has left."""
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)
        await it.slots.load(slot)
        await it.slots.unload(slot)
        it.open.clear()
        left = asyncio.Event()
        asking = asyncio.create_task(lookup.hold("one", wait=waits_until(left)))
        await wait_until_async(lambda: it.events[-1] == "open one" and slot.waiting == 1)
        it.open.set()
        await it.slots.load(slot)
        left.set()
        release = await asking
        assert not slot.is_idle
        release()
        assert slot.is_idle


async def test_a_context_releases_its_model_however_it_is_left() -> None:
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)
        for error in (None, KeyError(), asyncio.CancelledError()):
            with suppress(KeyError, asyncio.CancelledError):
                async with lookup.loaded("one"):
                    assert not slot.is_idle
                    if error is not None:
                        raise error
            assert slot.is_idle


async def test_a_request_that_waits_for_a_replaced_model_gets_the_new_one() -> None:
    async with house() as it:
        old, lookup = it.add("one"), lookup_in(it)
        it.open.clear()
        asking = asyncio.create_task(lookup.hold("one"))
        await wait_until_async(lambda: it.events == ["open one"] and old.waiting == 1)
        new = it.add("one")
        it.open.set()
        release = await asking
        assert (old.is_idle, new.is_idle, new.state) == (True, False, "loaded")
        release()
        assert new.is_idle


async def test_a_request_that_waits_for_a_removed_model_is_told() -> None:
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)
        it.open.clear()
        asking = asyncio.create_task(lookup.hold("one"))
        await wait_until_async(lambda: slot.waiting == 1)
        it.slots.retire("one")
        with pytest.raises(ModelNotFound, match="not served any more"):
            await asking


@pytest.mark.parametrize("inside", [True, False])
async def test_the_request_or_its_caller_may_forbid_to_wait_for_room(inside: bool) -> None:
    async with house(max_loaded=1) as it:
        it.add("one")
        two, lookup = it.add("two"), lookup_in(it)
        async with lookup.loaded("one"):
            with (
                within(RequestContext("req_1", waits_for_room=not inside)),
                pytest.raises(EngineUnavailable, match="no room"),
            ):
                await lookup.hold("two", waits_for_room=inside)
        async with lookup.loaded("two"):
            assert two.state == "loaded"


async def test_a_server_that_ends_neither_loads_nor_finds_models() -> None:
    async with house() as it:
        slot = it.add("one")
        ending: list[ServerShuttingDown] = []

        def check_open() -> None:
            for each in ending:
                raise each

        lookup = lookup_in(it, check_open=check_open)
        release = await lookup.hold("one")
        ending.append(ServerShuttingDown("The server ends."))
        for name in ("one", "none", None):
            with pytest.raises(ServerShuttingDown):
                await lookup.hold(name)
            with pytest.raises(ServerShuttingDown):
                lookup.any_model(name)
        release()
        assert slot.is_idle


async def test_a_name_without_a_model_holds_nothing_and_is_told_when_it_is_looked_up() -> None:
    async with house() as it:
        it.add("one")
        it.add("two", aliases=["second"])
        lookup = lookup_in(it, {})
        long = "n" * 1000
        for name in (long, None):
            (await lookup.hold(name, wait=unwaited))()
        assert it.events == []
        with pytest.raises(
            ModelNotFound, match=r"does not exist here\. Models: one, two"
        ) as missing:
            lookup.model(long)
        assert missing.value.param == "model"
        assert len(str(missing.value)) < 200
        with pytest.raises(InvalidRequest, match="Name one of: one, two") as unnamed:
            lookup.model(None)
        assert unnamed.value.code == "missing_required_parameter"


USES: dict[ModelUse, Callable[[ModelLookup, str | None], str]] = {
    "generates": lambda lookup, name: lookup.model(name).name,
    "embeds": lambda lookup, name: lookup.embedding_model(name)[0].name,
    "reranks": lambda lookup, name: lookup.scoring_model(name)[0].name,
}


@given(models=st.lists(st.sets(st.sampled_from([*USES]), min_size=1), min_size=1, max_size=3))
async def test_without_a_name_it_is_the_only_model_of_that_use(models: list[set[ModelUse]]) -> None:
    async with house() as it:
        for number, uses in enumerate(models):
            await it.slots.load(it.add(f"m{number}", uses))
        lookup = lookup_in(it)
        for use, find in USES.items():
            able = [f"m{number}" for number, uses in enumerate(models) if use in uses]
            slot = lookup.slot_for(None, use)
            assert (None if slot is None else [slot.name]) == (able if len(able) == 1 else None)
            if slot is None:
                with pytest.raises(InvalidRequest) as refused:
                    find(lookup, None)
                code = "missing_required_parameter" if able else "model_not_supported"
                assert refused.value.code == code
            else:
                assert find(lookup, None) == slot.name
            for number in range(len(models)):
                name = f"m{number}"
                if name in able:
                    assert find(lookup, name) == name
                else:
                    others = ", ".join(able) or "none"
                    with pytest.raises(InvalidRequest, match=f": {others}.$") as refused:
                        find(lookup, name)
                    assert refused.value.code == "model_not_supported"


async def test_a_model_that_was_never_loaded_may_have_any_use_until_loading_fails() -> None:
    async with house() as it:
        slot, lookup = it.add("one", {"embeds"}), lookup_in(it, {})
        assert lookup.slot_for(None, "reranks") is slot
        it.broken.add("one")
        with pytest.raises(EngineUnavailable):
            await lookup.hold(None)
        assert lookup.slot_for(None, "reranks") is None
        with pytest.raises(EngineUnavailable, match="could not be opened") as failed:
            lookup.any_model("one")
        assert "is broken" not in str(failed.value), "the reason is for the log"


async def test_a_model_that_is_not_loaded_is_unavailable() -> None:
    async with house() as it:
        slot, lookup = it.add("one"), lookup_in(it)
        async with lookup.loaded("one"):
            assert lookup.known_model("one").name == "one"
        await it.slots.unload(slot)
        with pytest.raises(EngineUnavailable, match="not loaded"):
            lookup.known_model("one")


NAMES = {"base": "base", "base-alias": "base", "tuned": "tuned", "other": "other", "ot": "other"}
"""All names of models, adapters and aliases, and the own name of each."""


@given(patterns=st.lists(st.sampled_from([*NAMES, "*", "b*", "*t*", "route", "none"]), max_size=3))
async def test_a_principal_finds_only_models_that_a_name_of_theirs_permits(
    patterns: list[str],
) -> None:
    async with house() as it:
        await it.slots.load(it.add("base", adapters=["tuned"], aliases=["base-alias"]))
        await it.slots.load(it.add("other", aliases=["ot"]))
        lookup = lookup_in(it, {"route": RouteConfig(models=["ot", "base"])})
        permitted = {
            own
            for name, own in NAMES.items()
            if any(fnmatchcase(name, pattern) for pattern in patterns)
        }
        with within(RequestContext("req_1", principal=Principal(name="ada", models=patterns))):
            for name, own in NAMES.items():
                assert lookup.may_use(name) == (own in permitted)
                if own in permitted:
                    assert lookup.known_model(name).name == own
                    assert lookup.slot_for(name, None) is it.slots.find(own)
                    continue
                assert lookup.slot_for(name, None) is None
                with pytest.raises(ModelNotFound) as refused:
                    lookup.known_model(name)
                shown = str(refused.value).rpartition("Models: ")[2].removesuffix(".")
                assert {*shown.split(", ")} == (permitted or {"none"})
            owners = {"base" if own == "tuned" else own for own in permitted}
            assert {slot.name for slot in lookup.visible_slots()} == owners
            targets: list[str | None] = [each for each in ("other", "base") if each in permitted]
            found = lookup.slot_for("route", "generates")
            assert [found and found.name] == (targets[:1] or [None])
            if targets:
                assert lookup.known_model("route").name == targets[0]
            route = await lookup.candidates(
                "route", api="chat", use="generates", owner=None, size=1
            )
            assert [*route] == (targets or ["route"])


async def test_without_a_principal_every_model_may_be_used() -> None:
    async with house() as it:
        it.add("one")
        lookup = lookup_in(it)
        for principal in (None, Principal(name="ada")):
            with within(RequestContext("req_1", principal=principal)):
                assert lookup.may_use("one")
                assert [slot.name for slot in lookup.visible_slots()] == ["one"]


class Chooses(Router):
    """Chooses the models of a list, and remembers what it was asked."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.asked: list[RoutingRequest] = []

    async def candidates(self, request: RoutingRequest) -> Sequence[str] | None:
        self.asked.append(request)
        return self.names or None


async def candidates(lookup: ModelLookup, name: str | None, use: ModelUse) -> list[str | None]:
    return [*await lookup.candidates(name, api="chat", use=use, owner="ada", size=7)]


async def test_what_no_router_concerns_is_tried_as_it_is_named() -> None:
    async with house() as it:
        it.add("one")
        for name in ("one", "none", None):
            assert await candidates(lookup_in(it), name, "generates") == [name]
            undecided = lookup_in(it, routers=[Chooses()])
            assert await candidates(undecided, name, "generates") == [name]


async def test_a_router_is_told_of_the_models_of_the_use_and_their_queues() -> None:
    async with house() as it:
        queued = it.add("one", adapters=["tuned"], max_running=3, max_waiting=5)
        await it.slots.load(queued)
        await it.slots.load(it.add("two", {"embeds"}))
        router = Chooses("one")
        async with queued.admission.reserve():
            await candidates(lookup_in(it, routers=[router]), "any", "generates")
        [request] = router.asked
        assert (request.api, request.model, request.owner, request.size) == (
            "chat",
            "any",
            "ada",
            7,
        )
        loads = [(load.name, load.running, load.waiting) for load in request.models]
        assert loads == [("one", 1, 0), ("tuned", 1, 0)]
        assert {(load.max_running, load.max_waiting) for load in request.models} == {(3, 5)}


async def test_chosen_models_are_tried_once_each_if_they_have_the_use() -> None:
    async with house() as it:
        await it.slots.load(it.add("one", aliases=["also one"]))
        await it.slots.load(it.add("two", {"embeds"}))
        it.add("unloaded")
        chosen = Chooses("unloaded", "two", "also one", "none", "one")
        lookup = lookup_in(it, routers=[chosen])
        assert await candidates(lookup, "any", "generates") == ["unloaded", "one"]


async def test_if_no_chosen_model_has_the_use_one_is_named_by_the_error() -> None:
    async with house() as it:
        await it.slots.load(it.add("one"))
        await it.slots.load(it.add("two"))
        lookup = lookup_in(it, routers=[Chooses("none", "two", "one")])
        assert await candidates(lookup, "any", "embeds") == ["two"]
        nowhere = lookup_in(it, routers=[Chooses("none")])
        assert await candidates(nowhere, "any", "embeds") == ["any"]
