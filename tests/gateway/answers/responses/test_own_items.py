"""The ids of items that a request sends: each item is kept, and each id is there once."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.answers.responses.own_items import with_unique_ids
from gateway.wire.content import EncryptedContent, InputText, OutputText, ReasoningText
from gateway.wire.items import (
    CodeInterpreterCall,
    Compaction,
    FunctionCall,
    FunctionCallOutput,
    InterpreterLogs,
    Item,
    LocalShellCallOutput,
    Message,
    Reasoning,
    ToolSearchCall,
)

IDS = st.sampled_from(["msg_x", "fc_0", "abc", "1", "__fake_id__"])
TEXTS = st.sampled_from(["yes", "no", ""])
ITEMS = st.one_of(
    st.builds(
        lambda name, text: Message(id=name, role="user", content=[InputText(text=text)]), IDS, TEXTS
    ),
    st.builds(
        lambda name, text: Message(
            id=name, role="assistant", content=[OutputText(text=text, annotations=[])]
        ),
        IDS,
        TEXTS,
    ),
    st.builds(
        lambda n, t: FunctionCall(id=n, call_id=f"call_{t}", name="f", arguments="{}"), IDS, TEXTS
    ),
    st.builds(lambda n, t: FunctionCallOutput(id=n, call_id="call_1", output=t), IDS, TEXTS),
    st.builds(lambda n, t: LocalShellCallOutput(id=n, output=t), IDS, TEXTS),
)


def contents(item: Item) -> bytes:
    call = {}
    if isinstance(item, LocalShellCallOutput):
        call = {"call_id": item.call_id or "by its id"}
    return msgspec.json.encode(msgspec.structs.replace(item, id="", **call))


@given(st.lists(ITEMS, max_size=8))
def test_no_item_is_lost_and_no_id_is_there_twice(own: list[Item]) -> None:
    unique = with_unique_ids(own)
    assert [type(each) for each in unique] == [type(each) for each in own]
    assert max(Counter(each.id for each in unique).values(), default=1) == 1
    for before, after in zip(own, unique, strict=True):
        if isinstance(before, LocalShellCallOutput) and isinstance(after, LocalShellCallOutput):
            assert after.output == before.output
            assert (after.call_id or after.id) == (before.call_id or before.id)
        else:
            assert contents(after) == contents(before)


@given(st.lists(ITEMS, max_size=6), st.lists(ITEMS, max_size=6))
def test_a_conversation_keeps_what_is_new_and_knows_what_is_sent_again(
    first: list[Item], second: list[Item]
) -> None:
    there = with_unique_ids(first)
    sent = with_unique_ids(second, there)
    kept = {item.id: item for item in there}
    for item in sent:
        known = kept.setdefault(item.id, item)
        assert contents(known) == contents(item), "another item with its id would be dropped"
    # The whole history, sent again, adds nothing.
    history = list(kept.values())
    assert with_unique_ids(history, kept.values()) == history


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Compaction(id="c", encrypted_content="a"), Compaction(id="c", encrypted_content="b")),
        (
            ToolSearchCall(id="c", arguments={"id": 1, "status": ""}),
            ToolSearchCall(id="c", arguments={"id": 2}),
        ),
        (
            FunctionCallOutput(
                id="c", call_id="1", output=[EncryptedContent(encrypted_content="a")]
            ),
            FunctionCallOutput(
                id="c", call_id="1", output=[EncryptedContent(encrypted_content="b")]
            ),
        ),
    ],
)
def test_what_differs_in_any_content_is_another_item(one: Item, other: Item) -> None:
    assert with_unique_ids([other], [one])[0].id != "c"


@pytest.mark.parametrize(
    ("there", "sent"),
    [
        (
            CodeInterpreterCall(
                id="c", container_id="x", code="1", outputs=[InterpreterLogs(logs="1")]
            ),
            CodeInterpreterCall(id="c", container_id="x", code="1"),
        ),
        (
            Reasoning(id="c", content=[ReasoningText(text="a")], encrypted_content="sealed"),
            Reasoning(id="c", content=[ReasoningText(text="a")]),
        ),
    ],
)
def test_what_a_client_was_not_shown_makes_no_other_item(there: Item, sent: Item) -> None:
    assert with_unique_ids([sent], [there])[0].id == "c"
