"""What clients of each API read of Cohere's citations, through the official client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from gateway_testing.server import RunningGateway, run_gateway

DOCUMENTS = [
    {"title": "Towers", "url": "https://towers.example/eiffel", "text": "330 metres"},
    {"title": "Notes", "text": "1889"},
]
SAID = "<|START_TEXT|>Ümlaut: <co>330 metres</co: 0:[0,1]>, built in <co>1889</co: 0:[1]>. STOP<|END_TEXT|>"
TEXT = "Ümlaut: 330 metres, built in 1889. STOP"
CITED = [
    ("330 metres", "https://towers.example/eiffel", "Towers"),
    ("330 metres", "#documents/1", "Notes"),
    ("1889", "#documents/1", "Notes"),
]
SIZES = (1, 3, 1000)
TEMPLATE = (
    "{% for each in documents or [] %}{{ each.title }}: {{ each.text }}\n{% endfor %}"
    "{% for each in messages %}{{ each.content }}\n{% endfor %}"
)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    models = {
        f"cut{size}": {
            "engine": "scripted",
            "parser": "cohere_command4",
            "chat_template": TEMPLATE,
            "scripted": {"rules": [{"when": "tower", "pieces": [{"raw": SAID}], "chunk": size}]},
        }
        for size in SIZES
    }
    with run_gateway({"models": models}, tmp_path_factory.mktemp("cited")) as running:
        yield running


@pytest.fixture
def sdk(gateway: RunningGateway) -> Iterator[OpenAI]:
    with gateway.client() as client:
        yield client


def spans(text: str, annotations: Any) -> list[tuple[str, str, str]]:
    return [(text[each.start_index : each.end_index], each.url, each.title) for each in annotations]


@pytest.mark.parametrize("size", SIZES)
def test_responses(sdk: OpenAI, size: int) -> None:
    asked: Any = {
        "model": f"cut{size}", "input": "the tower", "extra_body": {"documents": DOCUMENTS}, "store": False,
    }  # fmt: skip
    part: Any = sdk.responses.create(**asked).output[0].content[0]  # type: ignore[union-attr]
    assert part.text == TEXT
    assert spans(part.text, part.annotations) == CITED
    said, added = "", []
    with sdk.responses.stream(**asked) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                said += event.delta
            elif event.type == "response.output_text.annotation.added":
                annotation: Any = event.annotation
                added.append(annotation)
                assert len(said) == annotation.end_index
        final: Any = stream.get_final_response().output[0].content[0]  # type: ignore[union-attr]
    assert [each.to_dict() for each in added] == [each.to_dict() for each in part.annotations]
    assert [each.to_dict() for each in final.annotations] == [each.to_dict() for each in added]


@pytest.mark.parametrize("size", SIZES)
def test_chat(sdk: OpenAI, size: int) -> None:
    asked: Any = {
        "model": f"cut{size}",
        "messages": [{"role": "user", "content": "the tower"}],
        "extra_body": {"documents": DOCUMENTS},
    }
    message = sdk.chat.completions.create(**asked).choices[0].message
    assert message.content == TEXT
    found = [each.url_citation for each in message.annotations or ()]
    assert spans(TEXT, found) == CITED
    with sdk.chat.completions.stream(**asked) as stream:
        for _ in stream:
            pass
        streamed: Any = stream.get_final_completion().choices[0].message
    assert streamed.content == TEXT
    assert streamed.annotations == message.annotations


@pytest.mark.parametrize("size", SIZES)
def test_a_stop_string_is_found_across_the_end_of_a_span(sdk: OpenAI, size: int) -> None:
    answer = sdk.chat.completions.create(
        model=f"cut{size}",
        messages=[{"role": "user", "content": "the tower"}],
        stop=["889. S"],
        extra_body={"documents": DOCUMENTS},
    )
    message = answer.choices[0].message
    assert message.content == "Ümlaut: 330 metres, built in 1"
    found = [each.url_citation for each in message.annotations or ()]
    assert spans(message.content, found) == CITED[:2]


def test_without_documents_there_is_the_text_alone(sdk: OpenAI) -> None:
    part: Any = sdk.responses.create(model="cut1", input="the tower", store=False).output[0]
    assert (part.content[0].text, part.content[0].annotations) == (TEXT, [])
