"""Testing random operations on a store against a model that consists of dictionaries."""

from __future__ import annotations

import uuid
from contextlib import aclosing
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, structs

from gateway.plugins.protocols import UNFINISHED, ResponseStore, StoredResponse
from gateway.wire.common import encode
from gateway.wire.items import Item
from gateway.wire.response import Conversation, ResponseStatus
from gateway_testing.store_records import message, record, some_record, without_deadline

_OWNERS = (None, "ada", "bob")
_STATUSES: tuple[ResponseStatus, ...] = (
    "queued", "in_progress", "completed", "incomplete", "failed", "cancelled",
)  # fmt: skip

_owner = st.sampled_from(_OWNERS)
_status = st.sampled_from(_STATUSES)
_expected = st.sets(_status)
_response_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _owner, _status, st.none() | some_record),
        st.tuples(st.just("advance"), some_record, _status, _expected),
        st.tuples(st.just("delete"), some_record, _owner),
        st.tuples(st.just("append"), some_record, st.integers(0, 3), st.booleans()),
        st.tuples(st.just("look"), some_record, _owner),
    ),
    max_size=25,
)
_conversation_steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 9), max_size=4)),
        st.tuples(st.just("delete"), st.integers(0, 9)),
        st.tuples(st.just("clear")),
        st.tuples(
            st.just("page"),
            st.none() | st.integers(0, 9),
            st.none() | st.integers(1, 4),
            st.sampled_from(("asc", "desc")),
        ),
    ),
    max_size=20,
)


class _Modelled(Struct):
    """The expected state of one response."""

    record: StoredResponse
    before: list[Item] | None
    """The history that the response continues; None if it is not stored."""
    events: list[bytes] = []
    ended: bool = False
    there: bool = True

    @property
    def own(self) -> list[Item]:
        return [*self.record.input, *self.record.response.output]


class ModelContract:
    """Random sequences of operations have the same results as with the model."""

    @without_deadline
    @given(steps=_response_steps)
    async def test_responses_are_as_a_dictionary_would_have_them(
        self, store: ResponseStore, steps: list[Any]
    ) -> None:
        known: list[_Modelled] = []
        for step in steps:
            match step:
                case ("put", owner, status, parent):
                    known.append(await _put(store, known, owner, status, parent))
                case ("advance", which, status, expected):
                    await _advance(store, known, which, status, expected)
                case ("delete", which, owner):
                    there = which < len(known) and known[which].there
                    there = there and known[which].record.owner == owner
                    assert await store.delete(_id(known, which), owner=owner) is there
                    if there:
                        known[which].there = False
                case ("append", which, count, last):
                    await _append(store, known, which, count, last)
                case ("look", which, owner):
                    await _look(store, known, which, owner)
        for which in range(len(known)):
            await _look(store, known, which, known[which].record.owner)

    @without_deadline
    @given(steps=_conversation_steps)
    async def test_conversations_are_as_a_dictionary_would_have_them(
        self, store: ResponseStore, steps: list[Any]
    ) -> None:
        made = Conversation(id=f"conv_{uuid.uuid4().hex}", created_at=1)
        await store.put_conversation(made)
        known: dict[str, Item] = {}
        for number, step in enumerate(steps):
            match step:
                case ("append", ids):
                    items = [message("user", f"{each} at {number}", item_id=f"msg_{each}") for each in ids]  # fmt: skip
                    assert await store.append_items(made.id, items)
                    for item in items:
                        known.setdefault(item.id, item)
                case ("delete", each):
                    there = known.pop(f"msg_{each}", None) is not None
                    assert await store.delete_item(made.id, f"msg_{each}") is there
                case ("clear",):
                    assert await store.delete_conversation(made.id)
                    await store.put_conversation(made)
                    known = {}
                case ("page", after, limit, order):
                    after = None if after is None else f"msg_{after}"
                    page = await store.list_items(made.id, after=after, limit=limit, order=order)
                    ids = list(known) if order == "asc" else list(known)[::-1]
                    if after is not None and after not in ids:
                        assert page is None
                        continue
                    rest = ids[ids.index(after) + 1 :] if after is not None else ids
                    assert page is not None
                    wanted = rest if limit is None else rest[:limit]
                    assert [encode(item) for item in page.items] == [encode(known[each]) for each in wanted]  # fmt: skip
                    assert page.has_more == (len(wanted) < len(rest))


def _id(known: list[_Modelled], which: int) -> str:
    return known[which].record.id if which < len(known) else "resp_nobody"


async def _put(
    store: ResponseStore,
    known: list[_Modelled],
    owner: str | None,
    status: ResponseStatus,
    parent: int | None,
) -> _Modelled:
    before: list[Item] | None = []
    previous = None
    if parent is not None:
        previous = _id(known, parent)
        found = known[parent] if parent < len(known) else None
        if found is not None and found.record.response.status in UNFINISHED:
            previous = None  # the gateway does not allow continuing it
        elif found is None or not found.there or found.record.owner != owner:
            before = None
        else:
            before = None if found.before is None else [*found.before, *found.own]
    made = record(
        owner=owner,
        status=status,
        previous_response_id=previous,
        input_=[message("user", uuid.uuid4().hex)],
        output=[message("assistant", uuid.uuid4().hex)],
        streamed=True,
    )
    await store.put(made)
    return _Modelled(made, before)


async def _advance(
    store: ResponseStore,
    known: list[_Modelled],
    which: int,
    status: ResponseStatus,
    expected: set[ResponseStatus],
) -> None:
    if which >= len(known):
        assert not await store.advance(record(status=status), expected=expected)
        return
    found = known[which]
    was = found.record
    expected = expected & UNFINISHED  # a finished response does not change
    response = structs.replace(
        was.response, status=status, output=[*was.response.output, message("assistant", "more")]
    )
    changed = structs.replace(was, response=response)
    succeeds = found.there and was.response.status in expected
    assert await store.advance(changed, expected=expected) is succeeds
    if succeeds:
        found.record = changed


async def _append(
    store: ResponseStore, known: list[_Modelled], which: int, count: int, last: bool
) -> None:
    events = [uuid.uuid4().hex.encode() for _ in range(count)]
    if which < len(known):
        found = known[which]
        # A finished response accepts only its last events.
        last = last or found.record.response.status not in UNFINISHED
        if found.there and not found.ended:
            found.events = [*found.events, *events]
            found.ended = last
    await store.append_events(_id(known, which), events, last=last)


async def _look(
    store: ResponseStore, known: list[_Modelled], which: int, owner: str | None
) -> None:
    """Check every query about one response."""
    response_id = _id(known, which)
    found = known[which] if which < len(known) and known[which].there else None
    seen = found if found is not None and found.record.owner == owner else None
    got = await store.get(response_id, owner=owner)
    assert encode(got) == encode(None if seen is None else seen.record)
    history = await store.history(response_id, owner=owner)
    if seen is None or seen.before is None:
        assert history is None
    else:
        assert encode(history) == encode([*seen.before, *seen.own])
    if which < len(known):
        own = {item.id: item for item in known[which].own}
        items = await store.find_items(own.keys(), owner=owner)
        assert encode(dict(items)) == encode({} if seen is None else {i: own[i] for i in items})
        assert len(items) == (0 if seen is None else len(own))
    assert await store.count_events(response_id) == (0 if found is None else len(found.events))
    if found is None or found.ended:
        for after in (-1, 0, 2):
            async with aclosing(store.read_events(response_id, after=after)) as log:
                events = [event async for batch in log for event in batch]
            assert events == ([] if found is None else found.events[after + 1 :])
