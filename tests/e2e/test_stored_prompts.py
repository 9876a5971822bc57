"""Prompts of the configuration, named by requests to `/v1/responses`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from gateway.base.errors import ConfigurationError
from gateway.config import load_config
from gateway.plugins.protocols import TokensPrompt
from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

RULES = [
    {"when": "Write nothing but the summary", "pieces": [{"text": "Short."}]},
    {"when": "", "pieces": [{"text": "ok"}]},
]
PROMPTS: dict[str, Any] = {
    "plain": {"text": "You are kind."},
    "shop": {
        "default_version": "1",
        "versions": {
            "1": {"text": "You help {{shop}} in {{ language }}."},
            "2": {
                "file": "shop.md",
                "messages": [
                    {"role": "developer", "content": "Be short, {{shop}}."},
                    {"role": "user", "content": "Look: {{scan}} and say."},
                    {"role": "assistant", "content": "I looked."},
                ],
            },
        },
    },
}
NOTE = {
    "type": "input_file",
    "filename": "note.txt",
    "file_data": "data:text/plain;base64," + base64.b64encode(b"the secret is 7").decode(),
}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("prompts")
    (folder / "shop.md").write_text("You are the second {{shop}}.\n", encoding="utf-8")
    model = {"engine": "scripted", "scripted": {"rules": RULES}}
    small = {**model, "max_model_len": 300}
    config = {
        "models": {"m": model, "small": small},
        "prompts": PROMPTS,
        "server": {"max_body_bytes": 100_000},
    }
    with run_gateway(config, folder) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


def asked(gateway: RunningGateway, model: str = "m") -> str:
    """The text of the last prompt that the engine was asked."""
    engine = gateway.services.models[model].engine
    assert isinstance(engine, ScriptedEngine)
    prompt = engine.requests[-1].prompt
    assert isinstance(prompt, TokensPrompt)
    assert engine.tokenizer is not None
    return engine.tokenizer.decode(prompt.token_ids)


def test_a_conversation_that_is_shortened_keeps_the_examples_of_its_prompt(
    gateway: RunningGateway, http: httpx.Client
) -> None:
    """They are instructions; the oldest turns go, also where there are examples before them."""
    turns: list[dict[str, Any]] = []
    for number in range(20):
        turns.append({"role": "user", "content": f"question {number} is a little longer"})
        turns.append({"role": "assistant", "content": f"answer {number} is longer, too"})
    variables = {"shop": "Arca", "scan": "this"}
    body = {
        "model": "small",
        "input": [*turns, {"role": "user", "content": "and now?"}],
        "prompt": {"id": "shop", "version": "2", "variables": variables},
        "max_output_tokens": 16,
    }
    assert http.post("/responses", json=body).status_code == 400
    answer = http.post("/responses", json={**body, "truncation": "auto"})
    assert answer.status_code == 200, answer.text
    text = asked(gateway, "small")
    for kept in ("Be short, Arca.", "Look: this and say.", "I looked.", "answer 19", "and now?"):
        assert kept in text
    assert "question 0 " not in text


def test_a_prompt_gives_the_instructions_and_is_shown(gateway: RunningGateway) -> None:
    with gateway.client() as client:
        made = client.responses.create(
            model="m",
            input="hello",
            prompt={"id": "shop", "variables": {"shop": "Ada's", "language": "Basque"}},
        )
    assert "You help Ada's in Basque." in asked(gateway)
    assert made.instructions == "You help Ada's in Basque."
    assert made.prompt.id == "shop"
    assert made.prompt.version == "1"
    assert made.prompt.variables == {"shop": "Ada's", "language": "Basque"}


def test_a_version_may_have_a_file_and_messages(
    gateway: RunningGateway, http: httpx.Client
) -> None:
    values = {"shop": {"type": "input_text", "text": "Bob's"}, "scan": NOTE}
    prompt = {"id": "shop", "version": "2", "variables": values}
    made = http.post("/responses", json={"model": "m", "input": "hello", "prompt": prompt})
    assert made.status_code == 200, made.text
    text = asked(gateway)
    places = [text.index(part) for part in (
        "You are the second Bob's.", "Be short, Bob's.", "Look: ", "the secret is 7", " and say.", "I looked.", "hello",
    )]  # fmt: skip
    assert places == sorted(places)
    assert made.json()["prompt"]["variables"]["shop"]["text"] == "Bob's"


def test_a_prompt_is_enough_and_instructions_of_the_request_come_first(
    gateway: RunningGateway, http: httpx.Client
) -> None:
    body = {"model": "m", "prompt": {"id": "plain"}}
    assert http.post("/responses", json=body).json()["prompt"] == {
        "id": "plain",
        "version": "1",
        "variables": {},
    }
    assert "You are kind." in asked(gateway)
    http.post("/responses", json={**body, "instructions": "Be rude."})
    assert "Be rude." in asked(gateway)
    assert "kind" not in asked(gateway)


def test_the_prompt_is_not_part_of_the_conversation(
    gateway: RunningGateway, http: httpx.Client
) -> None:
    prompt = {"id": "shop", "version": "2", "variables": {"shop": "S", "scan": "x"}}
    first = http.post("/responses", json={"model": "m", "input": "one", "prompt": prompt}).json()
    listed = http.get(f"/responses/{first['id']}/input_items").json()["data"]
    assert [item["content"][0]["text"] for item in listed] == ["one"]
    body = {"model": "m", "input": "two", "previous_response_id": first["id"]}
    http.post("/responses", json=body)
    assert "Be short" not in asked(gateway)
    http.post("/responses", json={**body, "prompt": prompt})
    assert asked(gateway).count("Be short, S.") == 1


def test_the_prompt_outlives_a_compaction(gateway: RunningGateway, http: httpx.Client) -> None:
    prompt = {"id": "shop", "version": "2", "variables": {"shop": "S", "scan": "x"}}
    body = {
        "model": "m",
        "prompt": prompt,
        "input": [
            {"role": "user", "content": "one " * 50},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ],
        "context_management": [{"type": "compaction", "compact_threshold": 20}],
    }
    made = http.post("/responses", json=body).json()
    assert [item["type"] for item in made["output"]] == ["compaction", "message"]
    assert asked(gateway).count("Be short, S.") == 1
    again = {"model": "m", "prompt": prompt, "input": [*made["output"], {"role": "user", "content": "go on"}]}  # fmt: skip
    http.post("/responses", json=again)
    assert asked(gateway).count("Be short, S.") == 1


WRONG: dict[str, tuple[Any, int, str, str, str]] = {
    "no object": ("plain", 400, "invalid_type", "prompt", "Invalid type for 'prompt': expected an object, but got a string instead."),
    "no id": ({"version": "1"}, 400, "missing_required_parameter", "prompt.id", "Missing required parameter: 'prompt.id'."),
    "unknown": ({"id": "x"}, 404, "prompt_not_found", "prompt.id", "Prompt with id 'x' not found."),
    "unknown version": ({"id": "shop", "version": "9"}, 404, "prompt_version_not_found", "prompt.version", "Prompt with id 'shop' has no version '9'."),
    "unknown variable": ({"id": "plain", "variables": {"a": "b"}}, 400, "unknown_prompt_variables", "prompt.variables", "Unknown prompt variables: a."),
    "missing variable": ({"id": "shop", "variables": {"shop": "b"}}, 400, "missing_prompt_variables", "prompt.variables", "Missing prompt variables: language."),
    "number": ({"id": "shop", "variables": {"shop": 3, "language": "x"}}, 400, "invalid_type", "prompt.variables.shop", "Invalid type for 'prompt.variables.shop': expected one of a string or object, but got an integer instead."),
    "null": ({"id": "shop", "variables": {"shop": None, "language": "x"}}, 400, "invalid_type", "prompt.variables.shop", "Invalid type for 'prompt.variables.shop': expected one of a string or object, but got null instead."),
    "other part": ({"id": "shop", "variables": {"shop": {"type": "output_text", "text": "a"}, "language": "x"}}, 400, "invalid_value", "prompt.variables.shop.type", "Invalid value: 'output_text'. Supported values are: 'input_text', 'input_image', and 'input_file'."),
    "part without text": ({"id": "shop", "variables": {"shop": {"type": "input_text"}, "language": "x"}}, 400, "missing_required_parameter", "prompt.variables.shop.text", "Missing required parameter: 'prompt.variables.shop.text'."),
    "file in the instructions": ({"id": "shop", "variables": {"shop": NOTE, "language": "x"}}, 400, "invalid_type", "prompt.variables.shop", "The prompt variable 'shop' stands in instructions, which are text. Send a string or an input_text."),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named_by_its_place(http: httpx.Client, name: str) -> None:
    prompt, status, code, param, message = WRONG[name]
    answer = http.post("/responses", json={"model": "m", "input": "x", "prompt": prompt})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"], error["message"]) == (
        status,
        code,
        param,
        message,
    )
    assert error["type"] == "invalid_request_error"


def test_the_sdk_raises_not_found(gateway: RunningGateway) -> None:
    with gateway.client() as client, pytest.raises(openai.NotFoundError):
        client.responses.create(model="m", input="x", prompt={"id": "none"})


def test_a_file_that_cannot_be_read_names_the_prompt(http: httpx.Client) -> None:
    broken = {**NOTE, "file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}
    prompt = {"id": "shop", "version": "2", "variables": {"shop": "S", "scan": broken}}
    answer = http.post("/responses", json={"model": "m", "input": "x", "prompt": prompt})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prompt"


def test_tokens_are_counted_and_compactions_take_none(http: httpx.Client) -> None:
    prompt = {"id": "plain"}
    alone = http.post("/responses/input_tokens", json={"model": "m", "input": "x"}).json()
    more = http.post("/responses/input_tokens", json={"model": "m", "input": "x", "prompt": prompt}).json()  # fmt: skip
    assert more["input_tokens"] > alone["input_tokens"]
    refused = http.post("/responses/compact", json={"model": "m", "input": "x", "prompt": prompt})
    assert refused.json()["error"]["param"] == "prompt"


MISTAKES = {
    "empty": ("[prompts.p]\n", "neither text, file nor messages"),
    "both": ('[prompts.p]\ntext = "a"\nfile = "b"\n', "text says the same"),
    "no file": ('[prompts.p]\nfile = "none.md"\n', "there is no file"),
    "mixed": ('[prompts.p]\ntext = "a"\n[prompts.p.versions.1]\ntext = "b"\n', "move them below versions"),
    "default": ('[prompts.p]\ntext = "a"\ndefault_version = "2"\n', "there is no version '2'"),
    "key": ('[prompts.p]\ntxt = "a"\n', 'did you mean "text"?'),
    "id": ('[prompts."a b"]\ntext = "a"\n', "a prompt's id has letters"),
    "role": ('[prompts.p]\nmessages = [{role = "tool", content = "x"}]\n', "'tool' is not one of the choices"),
    "no table": ("prompts = 3\n", "expected a table [prompts]"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_configuration_is_one_sentence(tmp_path: Path, name: str) -> None:
    text, sentence = MISTAKES[name]
    (tmp_path / "gateway.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as caught:
        load_config(tmp_path / "gateway.toml", {})
    assert sentence in str(caught.value)
