"""instructor, in each of its modes that a server of OpenAI's API has to carry, against a running gateway."""

from __future__ import annotations

from typing import Any

import pytest

from gateway_testing.server import RunningGateway
from tests.clients.examples import Person

instructor = pytest.importorskip(
    "instructor", reason="instructor is not installed; requirements-clients-openai2.txt has it"
)


MODES = [
    ("TOOLS", "call Person"),
    ("JSON", "a person please"),
    ("JSON_SCHEMA", "a person please"),
    ("MD_JSON", "a person please"),
    ("RESPONSES_TOOLS", "call Person"),
]


@pytest.mark.parametrize(("mode", "prompt"), MODES)
def test_a_person_is_made(gateway: RunningGateway, mode: str, prompt: str) -> None:
    with gateway.client() as openai:
        client = instructor.from_openai(openai, mode=instructor.Mode[mode])
        person = client.chat.completions.create(
            model="demo",
            response_model=Person,
            messages=[{"role": "user", "content": prompt}],
            max_retries=0,
        )
    assert person.model_dump() == {"name": "Ada", "age": 36}


@pytest.mark.parametrize(("mode", "prompt"), MODES[:3])
def test_a_person_is_made_bit_by_bit(gateway: RunningGateway, mode: str, prompt: str) -> None:
    with gateway.client() as openai:
        client = instructor.from_openai(openai, mode=instructor.Mode[mode])
        parts: list[Any] = list(
            client.chat.completions.create_partial(
                model="demo",
                response_model=Person,
                messages=[{"role": "user", "content": prompt}],
            )
        )
    assert len(parts) > 2
    assert parts[-1].model_dump() == {"name": "Ada", "age": 36}


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA", "RESPONSES_TOOLS"])
def test_an_unscripted_person_is_forced(gateway: RunningGateway, mode: str) -> None:
    with gateway.client() as openai:
        client = instructor.from_openai(openai, mode=instructor.Mode[mode])
        person = client.chat.completions.create(
            model="demo",
            response_model=Person,
            messages=[{"role": "user", "content": "anybody"}],
            max_retries=0,
        )
    assert isinstance(person, Person)
