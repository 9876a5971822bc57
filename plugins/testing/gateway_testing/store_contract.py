"""The contract of stores for responses and their histories, as tests to inherit. Other modules contain more parts of
it."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from gateway.plugins.protocols import CallRecord, FileSource, ResponseStore, Source, StoredResponse
from gateway.wire.common import encode
from gateway.wire.items import Item, SearchAction, WebSearchCall
from gateway.wire.response import ResponseStatus
from gateway_testing.on_asyncio import OnAsyncio
from gateway_testing.store_background_contract import BackgroundContract
from gateway_testing.store_completion_contract import CompletionContract
from gateway_testing.store_conversation_contract import ConversationContract
from gateway_testing.store_lasting_contract import LastingContract
from gateway_testing.store_model_contract import ModelContract
from gateway_testing.store_part_contract import PartContract
from gateway_testing.store_records import call_item, message, record
from gateway_testing.store_value_contract import ValueContract

_QUEUED: tuple[ResponseStatus, ...] = ("queued",)
_RUNNING: tuple[ResponseStatus, ...] = ("in_progress",)
_UNFINISHED = _QUEUED + _RUNNING


class HistoryContract:
    """Responses: storing, continuing, branching and deleting."""

    many = 10_000
    """Number of responses that one test stores."""

    async def test_a_running_store_is_healthy(self, store: ResponseStore) -> None:
        await store.health()
        assert store.shared in (True, False)
        assert store.lasting or not store.shared

    async def test_what_is_put_is_got(self, store: ResponseStore) -> None:
        """All items are equal byte for byte, for all item types."""
        kept = record(output=[message("assistant", 'Grüße 日本 🙂 \\ " \u2028'), call_item()])
        await store.put(kept)
        found = await store.get(kept.id)
        assert found is not None
        assert encode(found.response) == encode(kept.response)
        assert encode(found.input) == encode(kept.input)
        assert _but_for_items(found) == _but_for_items(kept)

    async def test_every_field_of_a_record_is_kept(self, store: ResponseStore) -> None:
        kept = record(
            owner="key-1",
            previous_response_id="resp_gone",
            conversation_id="conv_some",
            streamed=True,
            request=b'{"model":"m"}\x00\xff',
        )
        await store.put(kept)
        found = await store.get(kept.id, owner="key-1")
        assert found is not None
        assert _but_for_items(found) == _but_for_items(kept)

    async def test_a_miss_is_none_or_false(self, store: ResponseStore) -> None:
        nobody = f"resp_{uuid.uuid4().hex}"
        assert await store.get(nobody) is None
        assert await store.history(nobody) is None
        assert await store.delete(nobody) is False
        assert await store.get("") is None
        assert await store.get("resp_*?[]{}:\n'\"") is None

    async def test_putting_again_replaces(self, store: ResponseStore) -> None:
        first = record(output=[message("assistant", "first")])
        second = record(
            response_id=first.id, output=[message("assistant", "second")], status="incomplete"
        )
        await store.put(first)
        await store.put(second)
        found = await store.get(first.id)
        assert found is not None
        assert found.response.status == "incomplete"
        assert _texts(await store.history(first.id)) == ["question", "second"]

    async def test_what_is_got_is_not_shared(self, store: ResponseStore) -> None:
        """A response is changed in place while it is generated. The stored response must not change with it."""
        kept = record(output=[message("assistant", "said")])
        await store.put(kept)
        kept.response.output.append(message("assistant", "later"))
        kept.response.status = "failed"
        found = await store.get(kept.id)
        assert found is not None
        found.response.output.clear()
        again = await store.get(kept.id)
        assert again is not None
        assert again.response.status == "completed"
        assert _texts(again.response.output) == ["said"]

    async def test_advancing_needs_the_expected_status(self, store: ResponseStore) -> None:
        queued = record(status="queued")
        await store.put(queued)
        running = record(response_id=queued.id, status="in_progress")
        done = record(response_id=queued.id, output=[message("assistant", "done")])
        assert not await store.advance(done, expected=_RUNNING)
        assert await store.advance(running, expected=_QUEUED)
        assert await store.advance(done, expected=_UNFINISHED)
        assert not await store.advance(running, expected=_UNFINISHED)
        found = await store.get(queued.id)
        assert found is not None
        assert found.response.status == "completed"
        assert _texts(await store.history(queued.id)) == ["question", "done"]
        assert not await store.advance(record(), expected=("queued", "in_progress", "completed"))

    async def test_only_one_of_many_advances(self, store: ResponseStore) -> None:
        running = record(status="in_progress")
        await store.put(running)
        results = await asyncio.gather(
            *(
                store.advance(record(response_id=running.id, status=status), expected=_RUNNING)
                for status in ("completed", "cancelled", "failed", "incomplete") * 4
            )
        )
        assert sum(results) == 1

    async def test_a_history_is_all_items_oldest_first(self, store: ResponseStore) -> None:
        chain = await _chain(store, 5)
        expected = [text for number in range(5) for text in (f"q{number}", f"a{number}")]
        assert _texts(await store.history(chain[-1])) == expected
        assert _texts(await store.history(chain[2])) == expected[:6]

    async def test_two_continuations_do_not_see_each_other(self, store: ResponseStore) -> None:
        (root,) = await _chain(store, 1)
        left, right = (
            record(
                input_=[message("user", f"{side}?")],
                output=[message("assistant", f"{side}!")],
                previous_response_id=root,
            )
            for side in ("left", "right")
        )
        await asyncio.gather(store.put(left), store.put(right))
        assert _texts(await store.history(left.id)) == ["q0", "a0", "left?", "left!"]
        assert _texts(await store.history(right.id)) == ["q0", "a0", "right?", "right!"]
        assert _texts(await store.history(root)) == ["q0", "a0"]

    async def test_a_history_outlives_its_ancestors(self, store: ResponseStore) -> None:
        chain = await _chain(store, 4)
        before = _texts(await store.history(chain[-1]))
        for ancestor in chain[:-1]:
            assert await store.delete(ancestor)
        assert await store.get(chain[0]) is None
        assert _texts(await store.history(chain[-1])) == before
        further = record(output=[message("assistant", "on")], previous_response_id=chain[-1])
        await store.put(further)
        assert _texts(await store.history(further.id)) == [*before, "question", "on"]

    async def test_a_parent_may_go_while_its_child_runs(self, store: ResponseStore) -> None:
        """A child that was stored before its parent was deleted keeps the parent's items."""
        (root,) = await _chain(store, 1)
        child = record(status="in_progress", previous_response_id=root)
        await store.put(child)
        assert await store.delete(root)
        done = record(
            response_id=child.id, output=[message("assistant", "end")], previous_response_id=root
        )
        assert await store.advance(done, expected=_RUNNING)
        assert _texts(await store.history(child.id)) == ["q0", "a0", "question", "end"]

    async def test_a_response_of_a_conversation_has_its_own_items_alone(
        self, store: ResponseStore
    ) -> None:
        kept = record(conversation_id="conv_x", output=[message("assistant", "a")])
        await store.put(kept)
        assert _texts(await store.history(kept.id)) == ["question", "a"]

    async def test_a_long_chain_is_read_whole(self, store: ResponseStore) -> None:
        chain = await _chain(store, 200)
        history = await store.history(chain[-1])
        assert history is not None
        assert len(history) == 400

    async def test_an_owner_sees_only_what_is_theirs(self, store: ResponseStore) -> None:
        hers = record(owner="ada")
        await store.put(hers)
        for other in ("bob", None, ""):
            assert await store.get(hers.id, owner=other) is None
            assert await store.history(hers.id, owner=other) is None
            assert await store.delete(hers.id, owner=other) is False
        assert await store.get(hers.id, owner="ada") is not None
        nobodys = record()
        await store.put(nobodys)
        assert await store.get(nobodys.id, owner="ada") is None

    async def test_what_is_deleted_is_gone(self, store: ResponseStore) -> None:
        kept = record()
        await store.put(kept)
        assert await store.delete(kept.id) is True
        assert await store.get(kept.id) is None
        assert await store.history(kept.id) is None
        assert await store.delete(kept.id) is False

    async def test_an_item_of_a_megabyte_is_kept(self, store: ResponseStore) -> None:
        text = "0123456789abcdé\n" * (1 << 16)
        kept = record(input_=[message("user", text)], output=[message("assistant", text[::-1])])
        await store.put(kept)
        assert _texts(await store.history(kept.id)) == [text, text[::-1]]

    async def test_an_item_is_found_by_its_id(self, store: ResponseStore) -> None:
        kept = record(output=[message("assistant", "said"), call_item()], owner="ada")
        await store.put(kept)
        items = [*kept.input, *kept.response.output]
        found = await store.find_items([*(item.id for item in items), "msg_nowhere"], owner="ada")
        assert encode(dict(found)) == encode({item.id: item for item in items})
        assert await store.find_items([], owner="ada") == {}
        assert await store.delete(kept.id, owner="ada")
        assert await store.find_items([item.id for item in items], owner="ada") == {}

    async def test_an_item_is_found_by_its_owner_alone(self, store: ResponseStore) -> None:
        """This holds even if two clients use the same id."""
        item_id = f"msg_{uuid.uuid4().hex}"
        for owner in ("ada", "bob"):
            await store.put(record(owner=owner, input_=[message("user", owner, item_id=item_id)]))
        for owner in ("ada", "bob"):
            found = await store.find_items([item_id], owner=owner)
            assert _texts(list(found.values())) == [owner]
        assert await store.find_items([item_id]) == {}

    async def test_what_a_call_gave_is_found_by_its_items_id(self, store: ResponseStore) -> None:
        """The owner finds the result as long as the response is stored. A later response with the item in its input
        does not hide it."""
        call = WebSearchCall(id=f"ws_{uuid.uuid4().hex}", action=SearchAction(query="q"))
        read = CallRecord(
            name="web_search",
            arguments='{"query":"q"}',
            result="[0] é",
            sources=(Source(cursor=0, url="https://a.test/", title="A"),),
            files=(FileSource(mark="0:1", file_id="file-1", filename="é.md"),),
        )
        made = record(output=[call], owner="ada")
        made = structs.replace(made, results={call.id: read})
        later = record(input_=[call], owner="ada")
        await store.put(made)
        await store.put(later)
        found = await store.find_results([call.id, "ws_nowhere"], owner="ada")
        assert encode(dict(found)) == encode({call.id: read})
        assert await store.find_results([call.id]) == {}
        assert await store.find_results([], owner="ada") == {}
        assert await store.delete(made.id, owner="ada")
        assert await store.find_results([call.id], owner="ada") == {}

    async def test_what_a_call_gave_is_kept_for_those_that_go_on(
        self, store: ResponseStore
    ) -> None:
        """Like its item, the result is kept for each branch, until the last one is deleted. The item itself is only in
        the histories of the branches."""
        call = WebSearchCall(id=f"ws_{uuid.uuid4().hex}", action=SearchAction(query="q"))
        read = CallRecord(name="web_search", arguments="{}", result="found")
        made = structs.replace(record(output=[call], owner="ada"), results={call.id: read})
        running = structs.replace(
            made, response=structs.replace(made.response, status="in_progress"), results={}
        )
        await store.put(running)
        assert await store.advance(made, expected=_RUNNING)
        first = record(previous_response_id=made.id, owner="ada")
        second = record(previous_response_id=made.id, owner="ada")
        third = record(previous_response_id=second.id, owner="ada")
        for each in (first, second, third):
            await store.put(each)
        got = await store.get(made.id, owner="ada")
        assert got is not None
        assert encode(dict(got.results)) == encode({call.id: read})
        for gone in (made, first, second):
            assert await store.delete(gone.id, owner="ada")
            found = await store.find_results([call.id], owner="ada")
            assert encode(dict(found)) == encode({call.id: read})
            assert await store.find_results([call.id]) == {}
            assert await store.find_items([call.id], owner="ada") == {}
        assert call in (await store.history(third.id, owner="ada") or ())
        assert await store.delete(third.id, owner="ada")
        assert await store.find_results([call.id], owner="ada") == {}

    async def test_thousands_are_kept(self, store: ResponseStore) -> None:
        """`many` responses are kept."""
        ids: list[str] = []
        while len(ids) < self.many:
            some = [record(output=[message("assistant", str(at))]) for at in range(250)]
            await asyncio.gather(*(store.put(each) for each in some))
            ids += [each.id for each in some]
        for start in range(0, len(ids), 250):
            found = await asyncio.gather(*(store.get(each) for each in ids[start : start + 250]))
            said = [each and _texts(each.response.output) for each in found]
            assert said == [[str(at)] for at in range(250)]

    async def test_many_are_put_at_once(self, store: ResponseStore) -> None:
        many = [record(output=[message("assistant", str(number))]) for number in range(100)]
        await asyncio.gather(*(store.put(each) for each in many))
        found = await asyncio.gather(*(store.get(each.id) for each in many))
        said = [each and _texts(each.response.output) for each in found]
        assert said == [[str(number)] for number in range(100)]


@pytest.mark.anyio
class ResponseStoreContract(
    HistoryContract,
    BackgroundContract,
    ConversationContract,
    CompletionContract,
    ValueContract,
    PartContract,
    ModelContract,
    LastingContract,
    OnAsyncio,
):
    """Subclass this and provide a fixture `store`: an open store whose limits are not reached. It need not be empty.
    Optional fixtures are `reopen` and `open_bounded`."""


async def _chain(store: ResponseStore, length: int) -> list[str]:
    """Store `length` responses, each of which continues the previous one, with the items q0, a0, q1, a1, … Returns
    their ids."""
    ids: list[str] = []
    for number in range(length):
        each = record(
            input_=[message("user", f"q{number}")],
            output=[message("assistant", f"a{number}")],
            previous_response_id=ids[-1] if ids else None,
        )
        await store.put(each)
        ids.append(each.id)
    return ids


def _texts(items: Sequence[Item] | None) -> list[str]:
    assert items is not None, "there is no history"
    return [getattr(item, "text", "") for item in items]


def _but_for_items(kept: StoredResponse) -> dict[str, Any]:
    fields = structs.asdict(kept)
    return dict(
        itertools.filterfalse(lambda pair: pair[0] in ("response", "input"), fields.items())
    )
