"""The contract of stores for conversations."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from gateway.base.errors import ConversationFull
from gateway.plugins.protocols import ConversationBounds, ItemsPresent, ResponseStore
from gateway.wire.common import encode
from gateway.wire.items import Item, Message
from gateway.wire.response import Conversation
from gateway_testing.store_records import call_item, message


class ConversationContract:
    """Conversations and their items."""

    async def test_a_conversation_is_kept_and_changed(self, store: ResponseStore) -> None:
        made = await self._made(store, "ada")
        await store.append_items(made.id, [message("user", "x", item_id="msg_x")], owner="ada")
        changed = Conversation(id=made.id, created_at=7, metadata={"a": "ü"})
        await store.put_conversation(changed, owner="ada")
        assert await store.get_conversation(made.id, owner="ada") == changed
        page = await store.list_items(made.id, owner="ada")
        assert page is not None
        assert [item.id for item in page.items] == ["msg_x"]

    async def test_conversations_have_owners(self, store: ResponseStore) -> None:
        made = await self._made(store, "ada")
        item = message("user", "x", item_id="msg_x")
        assert await store.append_items(made.id, [item], owner="ada")
        for other in ("bob", None):
            assert await store.get_conversation(made.id, owner=other) is None
            assert await store.list_items(made.id, owner=other) is None
            assert await store.get_item(made.id, "msg_x", owner=other) is None
            assert not await store.append_items(made.id, [item], owner=other)
            assert not await store.delete_item(made.id, "msg_x", owner=other)
            assert not await store.delete_conversation(made.id, owner=other)
        assert await store.get_item(made.id, "msg_x", owner="ada") == item

    async def test_a_conversation_that_is_not_there_is_a_miss(self, store: ResponseStore) -> None:
        nobody = f"conv_{uuid.uuid4().hex}"
        assert await store.get_conversation(nobody) is None
        assert await store.list_items(nobody) is None
        assert await store.get_item(nobody, "msg_x") is None
        assert await store.append_items(nobody, [message("user", "x")]) is False
        assert await store.delete_item(nobody, "msg_x") is False
        assert await store.delete_conversation(nobody) is False

    async def test_items_are_listed_in_pages(self, store: ResponseStore) -> None:
        made = await self._made(store)
        ids = [f"msg_{number}" for number in range(7)]
        items = [message("user", each, item_id=each) for each in ids]
        assert await store.append_items(made.id, items[:4])
        assert await store.append_items(made.id, items[4:])
        for order, expected in (("asc", ids), ("desc", ids[::-1])):
            whole = await store.list_items(made.id, order=order)  # type: ignore[arg-type]  # a literal in a loop
            assert whole is not None
            assert ([item.id for item in whole.items], whole.has_more) == (expected, False)
            seen: list[str] = []
            more = True
            while more:
                page = await store.list_items(
                    made.id,
                    after=seen[-1] if seen else None,
                    limit=3,
                    order=order,  # type: ignore[arg-type]  # likewise
                )
                assert page is not None
                assert len(page.items) <= 3
                seen += [item.id for item in page.items]
                more = page.has_more
            assert seen == expected

    async def test_a_page_after_an_unknown_item_is_none(self, store: ResponseStore) -> None:
        made = await self._made(store)
        assert await store.append_items(made.id, [message("user", "x")])
        assert await store.list_items(made.id, after="msg_unknown") is None

    async def test_an_empty_conversation_has_an_empty_page(self, store: ResponseStore) -> None:
        made = await self._made(store)
        page = await store.list_items(made.id)
        assert page is not None
        assert (list(page.items), page.has_more) == ([], False)

    async def test_an_item_is_not_added_twice(self, store: ResponseStore) -> None:
        made = await self._made(store)
        first, second = (message("user", each, item_id=each) for each in ("msg_1", "msg_2"))
        assert await store.append_items(made.id, [first])
        assert await store.append_items(made.id, [first, second])
        assert await store.append_items(made.id, [])
        page = await store.list_items(made.id)
        assert page is not None
        assert [item.id for item in page.items] == ["msg_1", "msg_2"]

    async def test_of_two_that_add_one_id_as_new_the_later_is_told(
        self, store: ResponseStore
    ) -> None:
        made = await self._made(store)

        async def add(number: int) -> bool:
            own = message("user", "x", item_id=f"msg_{number}")
            both = [own, message("user", str(number), item_id="msg_same")]
            return await store.append_items(made.id, both, new=True)

        done = await asyncio.gather(*map(add, range(5)), return_exceptions=True)
        told = [each.ids for each in done if isinstance(each, ItemsPresent)]
        assert told == [{"msg_same"}] * 4
        first = done.index(True)
        page = await store.list_items(made.id)
        assert page is not None
        assert [item.id for item in page.items] == [f"msg_{first}", "msg_same"]
        found = await store.get_item(made.id, "msg_same")
        assert isinstance(found, Message)
        assert found.text == str(first)
        assert not await store.append_items("conv_unknown", [message("user", "x")], new=True)

    async def test_an_item_is_got_as_it_was_added(self, store: ResponseStore) -> None:
        made = await self._made(store)
        items: list[Item] = [message("user", "Grüße 🙂"), call_item()]
        assert await store.append_items(made.id, items)
        for item in items:
            assert encode(await store.get_item(made.id, item.id)) == encode(item)
        assert await store.get_item(made.id, "msg_unknown") is None

    async def test_an_item_is_deleted(self, store: ResponseStore) -> None:
        made = await self._made(store)
        items = [message("user", each, item_id=each) for each in ("msg_1", "msg_2", "msg_3")]
        assert await store.append_items(made.id, items)
        assert await store.delete_item(made.id, "msg_2")
        assert not await store.delete_item(made.id, "msg_2")
        assert await store.get_item(made.id, "msg_2") is None
        page = await store.list_items(made.id, after="msg_1")
        assert page is not None
        assert [item.id for item in page.items] == ["msg_3"]

    async def test_a_deleted_conversation_is_gone_with_its_items(
        self, store: ResponseStore
    ) -> None:
        made = await self._made(store)
        assert await store.append_items(made.id, [message("user", "x", item_id="msg_x")])
        assert await store.delete_conversation(made.id)
        assert not await store.delete_conversation(made.id)
        assert await store.get_conversation(made.id) is None
        await store.put_conversation(made)
        page = await store.list_items(made.id)
        assert page is not None
        assert list(page.items) == []

    async def test_what_is_added_at_once_stays_together(self, store: ResponseStore) -> None:
        made = await self._made(store)
        groups = [
            [message("user", "x", item_id=f"msg_{group}_{number}") for number in range(5)]
            for group in range(10)
        ]
        await asyncio.gather(*(store.append_items(made.id, group) for group in groups))
        page = await store.list_items(made.id)
        assert page is not None
        ids = [item.id for item in page.items]
        assert len(ids) == 50
        for group in groups:
            start = ids.index(group[0].id)
            assert ids[start : start + 5] == [item.id for item in group]

    async def test_a_conversation_is_bounded_in_items_and_bytes(self, store: ResponseStore) -> None:
        """An addition that exceeds a limit is rejected as a whole. Deleting items makes room."""
        made = await self._made(store)
        items = [message("user", "x" * 1000, item_id=f"msg_{number}") for number in range(6)]
        for bounds in (ConversationBounds(3, 1_000_000), ConversationBounds(1000, 4000)):
            assert await store.append_items(made.id, items[:3], bounds=bounds)
            assert await store.append_items(made.id, items[1:3], bounds=bounds), "they are in it"
            for some in (items[3:4], items[2:6]):
                with pytest.raises(ConversationFull):
                    await store.append_items(made.id, some, bounds=bounds)
            page = await store.list_items(made.id)
            assert page is not None
            assert [item.id for item in page.items] == ["msg_0", "msg_1", "msg_2"]
            assert await store.delete_item(made.id, "msg_0")
            assert await store.append_items(made.id, items[3:4], bounds=bounds)
            for each in ("msg_1", "msg_2", "msg_3"):
                assert await store.delete_item(made.id, each)
        many = [message("user", "x", item_id=f"msg_at_once_{number}") for number in range(20)]

        async def append(number: int) -> bool:
            try:
                return await store.append_items(
                    made.id, many[number : number + 1], bounds=ConversationBounds(5, 1_000_000)
                )
            except ConversationFull:
                return False

        assert sum(await asyncio.gather(*map(append, range(20)))) == 5

    async def _made(self, store: ResponseStore, owner: str | None = None) -> Conversation:
        made = Conversation(id=f"conv_{uuid.uuid4().hex}", created_at=7, metadata={"k": "v"})
        await store.put_conversation(made, owner=owner)
        return made
