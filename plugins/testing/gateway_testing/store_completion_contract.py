"""The contract of stores for chat completions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.plugins.protocols import CompletionPage, ResponseStore, StoredCompletion
from gateway.wire.chat import AnswerMessage, Choice, CompletionUsage, MessageToolCall
from gateway.wire.chat_messages import CalledFunction
from gateway.wire.common import encode
from gateway.wire.stored_chat import StoredChatCompletion, stored_messages
from gateway_testing.store_records import some_record, without_deadline

_owner = st.sampled_from(["ada", "bob", None])
_metadata = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"), max_size=2)
_model = st.sampled_from(["m", "n"])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), _owner, _model, _metadata),
        st.tuples(st.just("replace"), some_record, _metadata),
        st.tuples(st.just("update"), some_record, _owner, _metadata),
        st.tuples(st.just("delete"), some_record, _owner),
        st.tuples(
            st.just("list"),
            _owner,
            st.none() | some_record,
            st.integers(1, 3),
            st.sampled_from(["asc", "desc"]),
            st.none() | _model,
            st.none() | _metadata,
        ),
    ),
    max_size=25,
)


def completion(
    *,
    owner: str | None = None,
    model: str = "m",
    metadata: Mapping[str, str] | None = None,
    text: str = "an answer",
) -> StoredCompletion:
    """A stored completion with calls, and with tools that contain any JSON."""
    completion_id = f"chatcmpl-{uuid.uuid4().hex}"
    call = MessageToolCall(
        id="call_1", function=CalledFunction(name="f", arguments='{"a": "\\u00e9"}')
    )
    choices = [
        Choice(index=0, message=AnswerMessage(content=text), finish_reason="stop"),
        Choice(index=1, message=AnswerMessage(tool_calls=[call]), finish_reason="tool_calls"),
    ]
    bounds = {"type": "integer", "maximum": 10**30, "enum": [None, 1.5]}
    return StoredCompletion(
        completion=StoredChatCompletion(
            id=completion_id,
            created=1_700_000_000,
            model=model,
            choices=choices,
            usage=CompletionUsage(prompt_tokens=1, completion_tokens=2, total_tokens=3),
            metadata=dict(metadata or {}),
            tools=[{"type": "function", "function": {"name": "f", "parameters": bounds}}],
        ),
        messages=stored_messages(completion_id, [{"role": "user", "content": "Grüße 🙂\u2028"}]),
        owner=owner,
    )


class CompletionContract:
    """Chat completions: storing, changing, listing and deleting."""

    async def test_a_completion_is_got_as_it_was_put(self, store: ResponseStore) -> None:
        kept = completion(owner="ada", metadata={"k": "ü"})
        await store.put_completion(kept)
        assert encode(await store.get_completion(kept.id, owner="ada")) == encode(kept)

    async def test_a_completion_that_is_not_there_is_a_miss(self, store: ResponseStore) -> None:
        for nobody in (f"chatcmpl-{uuid.uuid4().hex}", "", "a*?[]{}:\n'\""):
            assert await store.get_completion(nobody) is None
            assert await store.update_completion(nobody, {}) is None
            assert await store.delete_completion(nobody) is False
        owner = uuid.uuid4().hex
        assert await store.list_completions(after="chatcmpl-nobody", owner=owner) is None
        page = await store.list_completions(owner=owner)
        assert page == CompletionPage(completions=[], has_more=False)

    async def test_completions_have_owners(self, store: ResponseStore) -> None:
        owner = f"ada-{uuid.uuid4().hex}"
        hers = completion(owner=owner)
        await store.put_completion(hers)
        for other in ("bob", None, ""):
            assert await store.get_completion(hers.id, owner=other) is None
            assert await store.update_completion(hers.id, {"a": "b"}, owner=other) is None
            assert await store.delete_completion(hers.id, owner=other) is False
            assert await store.list_completions(after=hers.id, owner=other) is None
        found = await store.get_completion(hers.id, owner=owner)
        assert found is not None
        assert found.completion.metadata == {}

    async def test_metadata_is_replaced_and_nothing_else(self, store: ResponseStore) -> None:
        owner = uuid.uuid4().hex
        first, second = completion(owner=owner, metadata={"a": "1"}), completion(owner=owner)
        for each in (first, second):
            await store.put_completion(each)
        changed = structs.replace(
            first, completion=structs.replace(first.completion, metadata={"b": "2"})
        )
        assert encode(await store.update_completion(first.id, {"b": "2"}, owner=owner)) == encode(changed)  # fmt: skip
        assert encode(await store.get_completion(first.id, owner=owner)) == encode(changed)
        page = await store.list_completions(owner=owner)
        assert page is not None
        assert [each.id for each in page.completions] == [first.id, second.id]
        assert page.completions[0].metadata == {"b": "2"}

    async def test_completions_are_listed_in_pages(self, store: ResponseStore) -> None:
        owner = uuid.uuid4().hex
        ids = []
        for number in range(7):
            made = completion(owner=owner, text=str(number))
            await store.put_completion(made)
            ids.append(made.id)
        for order, expected in (("asc", ids), ("desc", ids[::-1])):
            seen: list[str] = []
            more = True
            while more:
                page = await store.list_completions(
                    after=seen[-1] if seen else None,
                    limit=3,
                    order=order,  # type: ignore[arg-type]  # a literal in a loop
                    owner=owner,
                )
                assert page is not None
                assert len(page.completions) <= 3
                seen += [each.id for each in page.completions]
                more = page.has_more
            assert seen == expected

    async def test_a_few_are_found_among_many(self, store: ResponseStore) -> None:
        owner = uuid.uuid4().hex
        wanted = []
        for number in range(1200):
            rare = number % 400 == 399
            made = completion(owner=owner, metadata={"rare": "yes", "n": str(number)} if rare else {})  # fmt: skip
            await store.put_completion(made)
            wanted += [made.id] if rare else []
        page = await store.list_completions(metadata={"rare": "yes"}, limit=2, owner=owner)
        assert page is not None
        assert ([each.id for each in page.completions], page.has_more) == (wanted[:2], True)
        page = await store.list_completions(
            metadata={"rare": "yes"}, limit=2, after=wanted[1], owner=owner
        )
        assert page is not None
        assert ([each.id for each in page.completions], page.has_more) == (wanted[2:], False)

    async def test_completions_that_are_put_at_once_are_all_listed_once(
        self, store: ResponseStore
    ) -> None:
        owner = uuid.uuid4().hex
        made = [completion(owner=owner) for _ in range(50)]
        await asyncio.gather(*(store.put_completion(each) for each in made))
        seen: list[str] = []
        while len(seen) < 60:
            page = await store.list_completions(
                after=seen[-1] if seen else None, limit=7, owner=owner
            )
            assert page is not None
            seen += [each.id for each in page.completions]
            if not page.has_more:
                break
        assert sorted(seen) == sorted(each.id for each in made)

    @without_deadline
    @given(steps=_steps)
    async def test_completions_are_as_a_dictionary_would_have_them(
        self, store: ResponseStore, steps: list[Any]
    ) -> None:
        run = uuid.uuid4().hex
        """Part of the owners' names, unique to this test, because the store may contain other completions."""
        every: list[StoredCompletion] = []
        known: dict[str, StoredCompletion] = {}

        def of_run(owner: str | None) -> str | None:
            return None if owner is None else f"{owner}-{run}"

        def name(which: int) -> str:
            return every[which].id if which < len(every) else "chatcmpl-nobody"

        for step in steps:
            match step:
                case ("put", owner, model, metadata):
                    made = completion(owner=of_run(owner), model=model, metadata=metadata)
                    every.append(made)
                    known[made.id] = made
                    await store.put_completion(made)
                case ("replace", which, metadata):
                    if which < len(every):
                        made = _with(every[which], metadata)
                        known.pop(made.id, None)
                        known[made.id] = made
                        await store.put_completion(made)
                case ("update", which, owner, metadata):
                    found = known.get(name(which))
                    if found is not None and found.owner == of_run(owner):
                        known[found.id] = _with(found, metadata)
                    else:
                        found = None
                    changed = await store.update_completion(
                        name(which), metadata, owner=of_run(owner)
                    )
                    assert encode(changed) == encode(None if found is None else known[found.id])
                case ("delete", which, owner):
                    found = known.get(name(which))
                    there = found is not None and found.owner == of_run(owner)
                    assert await store.delete_completion(name(which), owner=of_run(owner)) is there
                    if there:
                        del known[name(which)]
                case ("list", owner, after, limit, order, model, metadata) if owner is not None:
                    follows = None if after is None else name(after)
                    page = await store.list_completions(
                        after=follows,
                        limit=limit,
                        order=order,
                        model=model,
                        metadata=metadata,
                        owner=of_run(owner),
                    )
                    listed = [each for each in known.values() if each.owner == of_run(owner)]
                    expected = _page(listed, follows, limit, order, model, metadata or {})
                    assert encode(page) == encode(expected)
        for each in every:
            seen = await store.get_completion(each.id, owner=each.owner)
            assert encode(seen) == encode(known.get(each.id))


def _with(record: StoredCompletion, metadata: dict[str, str]) -> StoredCompletion:
    return structs.replace(record, completion=structs.replace(record.completion, metadata=metadata))


def _page(
    records: list[StoredCompletion],
    after: str | None,
    limit: int,
    order: str,
    model: str | None,
    metadata: dict[str, str],
) -> CompletionPage | None:
    ordered = records if order == "asc" else records[::-1]
    if after is not None:
        ids = [each.id for each in ordered]
        if after not in ids:
            return None
        ordered = ordered[ids.index(after) + 1 :]
    fitting = [
        each.completion
        for each in ordered
        if model in (None, each.completion.model)
        and metadata.items() <= each.completion.metadata.items()
    ]
    return CompletionPage(completions=fitting[:limit], has_more=len(fitting) > limit)
