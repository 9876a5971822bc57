"""The one pass over plain conversations gives the messages of the several passes over all others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_chat_template import renderer as module
from gateway_chat_template.features import Features
from gateway_chat_template.plain_messages import plain_messages

ROLES = st.sampled_from(["user", "assistant", "system", "developer"])
CONTENTS = st.text("ab <>\n", max_size=5) | st.lists(st.just({"type": "text", "text": "a"}), max_size=2)  # fmt: skip
TALKS = st.lists(st.tuples(ROLES, CONTENTS), max_size=6).map(
    lambda said: [{"role": role, "content": content} for role, content in said]
) | st.lists(st.text("ab", max_size=3), max_size=6).map(
    lambda said: [
        {"role": "assistant" if index % 2 else "user", "content": text}
        for index, text in enumerate(said)
    ]
)


@pytest.mark.parametrize("developer", [True, False])
@pytest.mark.parametrize("system", [True, False])
@pytest.mark.parametrize("repeats", [True, False])
def test_the_messages_are_the_same(
    render: Any, monkeypatch: pytest.MonkeyPatch, system: bool, developer: bool, repeats: bool
) -> None:
    renderer = render.with_template("chatml")
    features = msgspec.structs.replace(
        renderer.features, system=system, developer=developer, repeats=repeats
    )
    seen = []

    @settings(max_examples=60, deadline=None)
    @given(TALKS, st.sampled_from([None, "", "Be brief."]))
    def holds(items: Any, instructions: str | None) -> None:
        turn = render.turn(items, instructions=instructions)
        monkeypatch.setattr(module, "plain_messages", plain_messages)
        variables, media = renderer._variables(turn, features, ())
        seen.append(plain_messages(turn.items, instructions, features) is not None)
        monkeypatch.setattr(module, "plain_messages", lambda *given: None)
        expected, expected_media = renderer._variables(turn, features, ())
        assert (variables, media) == (expected, expected_media)
        assert types(variables["messages"]) == types(expected["messages"])

    holds()
    assert set(seen) == {True, False}


def types(messages: Any) -> list[Any]:
    """The types of the texts, by which origins are told."""
    return [
        [(key, type(value)) for key, value in message.items() if key != "role"]
        for message in messages
    ]


def test_other_conversations_take_the_other_way(render: Any) -> None:
    turn = render.turn([render.said("user", "a"), render.call("c"), render.output("c", "b")])
    assert plain_messages(turn.items, None, Features()) is None
    assert plain_messages(turn.items[:1], None, Features()) is not None
    assert plain_messages(turn.items[:1], None, Features(text=False)) is None
