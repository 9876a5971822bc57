"""What the bundled model does by itself: it answers what the console suggests, and its JSON ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from gateway_testing.server import RunningGateway, run_gateway

ROOT = Path(__file__).parents[2]
THREAD = ROOT / "plugins/console/gateway_console/static/thread.js"


class City(pydantic.BaseModel):
    city: str


class Event(pydantic.BaseModel):
    name: str
    date: str
    participants: list[str]


class Diary(pydantic.BaseModel):
    """What has no bound by itself: maps, lists of objects, optional fields, patterns, numbers."""

    notes: dict[str, str]
    events: list[Event]
    title: str | None
    code: str = pydantic.Field(pattern="^[A-Z]+-.*$")
    ratio: float
    more: Any


QUESTIONS = (
    "What is the capital of France?",
    "Alice and Bob go to a science fair on Friday.",
    "Hello!",
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    config = {"models": {"tiny": {"engine": "llamacpp"}}}
    with run_gateway(config, tmp_path_factory.mktemp("tiny")) as running:
        yield running


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=gateway.base_url, api_key="none", max_retries=0) as opened:
        yield opened


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("form", [City, Event, Diary])
def test_parsed_answers_come_to_an_end(
    client: openai.OpenAI, form: type[pydantic.BaseModel], question: str
) -> None:
    answer = client.responses.parse(model="tiny", input=question, text_format=form)
    assert isinstance(answer.output_parsed, form)
    said = client.chat.completions.parse(
        model="tiny", messages=[{"role": "user", "content": question}], response_format=form
    )
    assert isinstance(said.choices[0].message.parsed, form)
    with client.responses.stream(model="tiny", input=question, text_format=form) as stream:
        assert isinstance(stream.get_final_response().output_parsed, form)


def test_a_field_has_what_was_asked_for(client: openai.OpenAI) -> None:
    answer = client.responses.parse(
        model="tiny", input="What is the capital of France?", text_format=City
    )
    assert answer.output_parsed == City(city="Paris")


@pytest.mark.parametrize("question", QUESTIONS)
def test_any_json_object_comes_to_an_end(client: openai.OpenAI, question: str) -> None:
    answer = client.responses.create(
        model="tiny", input=question, text={"format": {"type": "json_object"}}
    )
    assert answer.status == "completed"


def test_what_the_console_suggests_is_answered(client: openai.OpenAI) -> None:
    [listed] = re.findall(r"const EXAMPLES = \[(.*)\];", THREAD.read_text(encoding="utf-8"))
    examples = re.findall(r'"(.*?)"', listed)
    assert len(examples) == 3
    for example in examples:
        text = client.responses.create(model="tiny", input=example).output_text
        assert text
        assert "Sorry" not in text, example
