from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.generation.truncation import droppable, moved_preamble, turn_starts, without_oldest
from gateway.wire.content import InputText
from gateway.wire.items import FunctionCall, FunctionCallOutput, Item, Message


def message(role: str, text: str) -> Message:
    return Message(role=role, content=[InputText(text=text)])  # type: ignore[arg-type]


@st.composite
def conversations(draw: st.DrawFn) -> list[Item]:
    items: list[Item] = [message("system", "s")] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 5))):
        items += [message("user", f"u{turn}")] * draw(st.integers(1, 2))
        for call in range(draw(st.integers(0, 2))):
            call_id = f"c{turn}-{call}"
            items.append(FunctionCall(call_id=call_id, name="f", arguments="{}"))
            items.append(FunctionCallOutput(call_id=call_id, output="x"))
        if draw(st.booleans()):
            items.append(message("assistant", "a"))
    return items


def calls_and_outputs(items: list[Item]) -> tuple[set[str], set[str]]:
    calls = {i.call_id for i in items if isinstance(i, FunctionCall)}
    return calls, {i.call_id for i in items if isinstance(i, FunctionCallOutput)}


@given(conversations(), st.integers(0, 12))
def test_the_last_question_and_the_last_step_stay(items: list[Item], count: int) -> None:
    """However much is left out, and calls keep their outputs."""
    kept = without_oldest(items, count)
    asked = [i for i in items if isinstance(i, Message) and i.role == "user"]
    assert asked[-1] in kept
    assert kept[-1] == items[-1]
    assert len(kept) == len(items) - sum(map(len, droppable(items)[:count]))
    calls, outputs = calls_and_outputs(kept)
    assert calls == outputs


@given(
    st.lists(
        st.sampled_from(["user", "system", "assistant", "a", "b", "c", "d"]),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 12),
)
def test_what_the_user_says_between_a_call_and_its_output_separates_them_not(
    order: list[str], count: int
) -> None:
    """A call is made where its name is found first, and answered where it is found again."""
    items: list[Item] = []
    seen: set[str] = set()
    for name in order:
        if len(name) > 1:
            items.append(message(name, str(len(items))))
        elif name not in seen:
            items.append(FunctionCall(call_id=name, name="f", arguments="{}"))
        elif (answer := FunctionCallOutput(call_id=name, output="x")) not in items:
            items.append(answer)
        seen.add(name)
    _, outputs = calls_and_outputs(items)
    kept = without_oldest(items, count)
    left, answered = calls_and_outputs(kept)
    assert left & outputs == answered
    asked = [i for i in items if isinstance(i, Message) and i.role == "user"]
    assert all(each in kept for each in asked[-1:])
    assert [i for i in kept if _is(i, "system")] == [i for i in items if _is(i, "system")]


def _is(item: Item, role: str) -> bool:
    return isinstance(item, Message) and item.role == role


def test_calls_that_were_made_together_go_together() -> None:
    def call(name: str) -> Item:
        return FunctionCall(call_id=name, name="f", arguments="{}")

    def output(name: str) -> Item:
        return FunctionCallOutput(call_id=name, output="x")

    question = message("user", "u")
    together = [call("a"), call("b"), output("b"), output("a")]
    late = [call("c"), call("d"), output("c"), call("e"), output("e"), output("d")]
    last = [call("f"), output("f")]
    items = [question, *together, *late, *last]
    assert [len(part) for part in droppable(items)] == [len(together), len(late)]
    assert without_oldest(items, 1) == [question, *late, *last]
    assert without_oldest(items, 9) == [question, *last]


@given(conversations(), st.integers(0, 4))
def test_whole_turns_go_and_calls_keep_their_outputs(items: list[Item], turns: int) -> None:
    starts = turn_starts(items)
    turns = min(turns, len(starts) - 1)
    kept = without_oldest(items, turns)
    assert len(turn_starts(kept)) == len(starts) - turns
    assert kept[-1] == items[-1]
    calls, outputs = calls_and_outputs(kept)
    assert calls == outputs
    systems = [i for i in items if isinstance(i, Message) and i.role == "system"]
    assert [i for i in kept if isinstance(i, Message) and i.role == "system"] == systems


@given(conversations(), conversations(), st.integers(0, 4))
def test_the_items_of_a_stored_prompt_are_kept(
    examples: list[Item], items: list[Item], turns: int
) -> None:
    """They are instructions, and the conversation is shortened as if they were not there."""
    kept = without_oldest([*examples, *items], turns, preamble=len(examples))
    assert kept == [*examples, *without_oldest(items, turns)]


@given(conversations())
def test_nothing_goes_where_nothing_has_to(items: list[Item]) -> None:
    assert without_oldest(items, 0) == items


def named(*names: str) -> list[Item]:
    return [Message(id=name, role="user", content=[InputText(text=name)]) for name in names]


def test_a_stored_prompts_items_are_found_again_where_a_policy_has_changed_their_number() -> None:
    before = named("p1", "p2", "c1", "c2", "c3")
    for after, preamble in (
        (before, 2),
        (named("new", "p1", "p2", "c1", "c2", "c3"), 3),
        (named("p1", "p2", "c1", "c2", "c3", "new"), 2),
        (named("p2", "c1", "c2", "c3"), 1),
        (named("p1", "p2", "c2", "c3"), 2),
        (named("c3"), 0),
        (named("p1", "p2", "", "new", "c3", "x"), 4),
    ):
        assert moved_preamble(before, after, 2) == preamble
        assert moved_preamble(before[2:], after, 0) == 0
