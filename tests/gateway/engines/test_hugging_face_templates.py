"""Which chat templates a model of Hugging Face has."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.engines.hugging_face import ChatTemplates, chat_templates_of, named_templates


@pytest.mark.parametrize(
    ("value", "default", "tool_use"),
    [
        ("A", "A", None),
        ({"default": "A", "tool_use": "B", "rag": "C"}, "A", "B"),
        ([{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}], "A", "B"),
        ({"tool_use": "B"}, "B", "B"),
        ({"rag": "C"}, None, None),
        ([1, {"name": "default"}], None, None),
        (None, None, None),
        (7, None, None),
    ],
)
def test_templates_by_name(value: Any, default: str | None, tool_use: str | None) -> None:
    assert named_templates(value) == ChatTemplates(default=default, tool_use=tool_use)


@pytest.mark.parametrize(
    ("own", "processor", "default", "tool_use"),
    [
        (None, "P", "P", None),
        ("A", "P", "P", "A"),
        ("A", "A", "A", None),
        ({"default": "A", "tool_use": "B"}, "P", "P", "B"),
        ("A", None, "A", None),
        ("A", ["broken"], "A", None),
    ],
)
def test_a_processors_template_is_the_one_without_tools(
    tmp_path: Path, own: Any, processor: Any, default: str, tool_use: str | None
) -> None:
    if processor is not None:
        (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": processor}))
    tokenizer = SimpleNamespace(chat_template=own, name_or_path=str(tmp_path))
    found = ChatTemplates(default=default, tool_use=tool_use)
    assert chat_templates_of(tokenizer) == found
    # A file of its own is the processor's too, and the tokenizer has read it.
    (tmp_path / "chat_template.jinja").write_text("A")
    if own is not None:
        assert chat_templates_of(tokenizer) == named_templates(own)


@pytest.mark.parametrize("name", ["", "no such/model name!", None, "org/model"])
def test_a_model_that_is_not_there_has_the_tokenizers_template(name: Any) -> None:
    tokenizer = SimpleNamespace(chat_template="A", name_or_path=name)
    assert chat_templates_of(tokenizer) == ChatTemplates(default="A")
