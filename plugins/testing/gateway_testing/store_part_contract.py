"""The contract of stores for records with large parts: images, sounds and files in base64."""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
import uuid
from collections.abc import Sequence

from msgspec import structs

from gateway.plugins.protocols import CallRecord, ResponseStore, StoredResponse
from gateway.storage.parts import LARGE
from gateway.wire.common import encode
from gateway.wire.content import InputImage, InputText
from gateway.wire.items import Item, Message
from gateway.wire.response import Conversation, ResponseStatus
from gateway_testing.store_completion_contract import completion
from gateway_testing.store_records import call_item, message, record

_RUNNING: tuple[ResponseStatus, ...] = ("in_progress",)
_SEEDS = itertools.count(1)


def image_url(size: int = 2 * LARGE) -> str:
    """The data URL of a unique image, with about `size` bytes."""
    content = random.Random(f"{uuid.uuid4()}-{next(_SEEDS)}").randbytes(size * 3 // 4)  # noqa: S311  # no secret
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def seeing(*urls: str) -> Message:
    """A message with images at these URLs."""
    parts = [InputImage(image_url=url) for url in urls]
    return Message(
        id=f"msg_{uuid.uuid4().hex}", role="user", content=[InputText(text="What is it?"), *parts]
    )


class PartContract:
    """Large parts are read as they were written, however the store keeps them, as long as a record contains them."""

    async def test_large_parts_of_responses_are_read_as_they_were_written(
        self, store: ResponseStore
    ) -> None:
        """The parts are in inputs, outputs, results of calls and bodies of requests; alone, twice, and together with
        small ones."""
        url, other = image_url(), image_url(LARGE // 2)
        call = call_item()
        items: list[Item] = [seeing(url, other, url), message("user", f"'{url}' is text"), call]
        kept = record(
            input_=items,
            output=[message("assistant", image_url() + "\u00e9")],
            owner="ada",
            request=encode({"input": url, "again": [url]}),
        )
        kept = structs.replace(
            kept, results={call.id: CallRecord(name="f", arguments="{}", result=f"see {url}")}
        )
        await store.put(structs.replace(kept, response=structs.replace(kept.response, status="in_progress")))  # fmt: skip
        assert await store.advance(kept, expected=_RUNNING)
        await self._is_kept(store, kept)
        found = await store.find_items([items[0].id], owner="ada")
        assert encode(found[items[0].id]) == encode(items[0])
        read = await store.find_results([call.id], owner="ada")
        assert encode(dict(read)) == encode(dict(kept.results))

    async def test_a_part_stays_while_a_record_has_it(self, store: ResponseStore) -> None:
        """This also holds if records are replaced, and if only a descendant needs the part."""
        url = image_url()
        first, second = (record(input_=[seeing(url)], owner="ada") for _ in range(2))
        await store.put(first)
        await store.put(second)
        assert await store.delete(first.id, owner="ada")
        await self._is_kept(store, second)
        child = record(previous_response_id=second.id, owner="ada")
        await store.put(child)
        assert await store.delete(second.id, owner="ada")
        history = await store.history(child.id, owner="ada")
        assert encode(history) == encode([*second.input, *child.input])
        replaced = record(response_id=child.id, input_=[seeing(image_url())], owner="ada")
        await store.put(replaced)
        await self._is_kept(store, replaced)
        assert await store.delete(replaced.id, owner="ada")
        again = record(input_=[seeing(url)], owner="ada")
        await store.put(again)
        await self._is_kept(store, again)

    async def test_owners_have_parts_of_their_own(self, store: ResponseStore) -> None:
        url = image_url()
        of = {who: record(input_=[seeing(url)], owner=who) for who in ("ada", "bob", None)}
        for each in of.values():
            await store.put(each)
        for who in ("ada", None):
            assert await store.delete(of[who].id, owner=who)
        await self._is_kept(store, of["bob"])
        assert await store.get(of["bob"].id, owner="ada") is None

    async def test_large_parts_of_conversations(self, store: ResponseStore) -> None:
        url = image_url()
        made = Conversation(id=f"conv_{uuid.uuid4().hex}", created_at=1)
        items = [seeing(url), message("user", "x"), seeing(url, image_url())]
        await store.put_conversation(made, owner="ada")
        assert await store.append_items(made.id, items, owner="ada")
        for left in (items, items[1:], items[2:]):
            page = await store.list_items(made.id, owner="ada")
            assert page is not None
            assert encode(page.items) == encode(left)
            one = await store.get_item(made.id, left[-1].id, owner="ada")
            assert encode(one) == encode(left[-1])
            assert await store.delete_item(made.id, left[0].id, owner="ada")
        assert await store.append_items(made.id, items[:1], owner="ada")
        assert await store.delete_conversation(made.id, owner="ada")

    async def test_large_parts_of_chat_completions(self, store: ResponseStore) -> None:
        url = image_url()
        kept = [completion(owner="ada", text=url, model=url[-10:]) for _ in range(2)]
        for each in kept:
            await store.put_completion(each)
        assert await store.delete_completion(kept[0].id, owner="ada")
        found = await store.get_completion(kept[1].id, owner="ada")
        assert encode(found) == encode(kept[1])
        page = await store.list_completions(owner="ada", model=url[-10:])
        assert page is not None
        assert encode(page.completions) == encode([kept[1].completion])
        changed = await store.update_completion(kept[1].id, {"a": "b"}, owner="ada")
        assert changed is not None
        assert encode(changed.completion.choices) == encode(kept[1].completion.choices)

    async def test_parts_that_come_and_go_at_once_are_whole(self, store: ResponseStore) -> None:
        """Parts stay complete while records with the same parts are written, replaced and deleted concurrently."""
        urls = [image_url() for _ in range(3)]

        async def live(number: int) -> StoredResponse:
            kept = record(input_=[seeing(*urls[number % 3 :])], owner="ada")
            for _ in range(3):
                await store.put(kept)
                assert await store.delete(kept.id, owner="ada")
                await store.put(kept)
            return kept

        for each in await asyncio.gather(*(live(number) for number in range(12))):
            await self._is_kept(store, each)

    async def _is_kept(self, store: ResponseStore, kept: StoredResponse) -> None:
        found = await store.get(kept.id, owner=kept.owner)
        assert found is not None
        assert encode(found.response) == encode(kept.response)
        assert encode(found.input) == encode(kept.input)
        assert encode(dict(found.results)) == encode(dict(kept.results))
        assert found.request == kept.request
        history: Sequence[Item] | None = await store.history(kept.id, owner=kept.owner)
        assert encode(history) == encode([*kept.input, *kept.response.output])
