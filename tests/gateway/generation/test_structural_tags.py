"""Structural tags become constraints, or are refused with the place of what cannot be enforced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.constraints import Const, FreeText, JsonSchema, OneOf, Repeat, Sequence, Triggered
from gateway.base.errors import GatewayError, InvalidRequest, Unsupported
from gateway.generation.structural_tags import structural_tag
from gateway_scripted import ScriptedEngine
from gateway_testing.server import RunningGateway, run_gateway

SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"const": 5}}}
TAG = {"begin": "<f=x>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</f>"}
BODY = Sequence((Const("<f=x>"), JsonSchema(SCHEMA), Const("</f>")))


def read(value: Any) -> Any:
    return structural_tag(value, ("t",))[0]


def form(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "structural_tag", "format": {"type": kind, **fields}}


def test_the_older_form() -> None:
    structure = {"begin": "<f=x>", "schema": SCHEMA, "end": "</f>"}
    tag = {"type": "structural_tag", "structures": [structure], "triggers": ["<f="]}
    assert read(tag) == read(json.dumps(tag)) == Triggered("<f=", BODY)
    two = {**tag, "structures": [structure, {**structure, "begin": "<f=y>"}]}
    assert isinstance(read(two).body, OneOf)


READ: list[tuple[dict[str, Any], Any]] = [
    (form("const_string", value="a"), Const("a")),
    (form("any_text"), FreeText()),
    (form("json_schema", json_schema=True), JsonSchema({})),
    (form("sequence", elements=[{"type": "const_string", "value": "a"}, {"type": "any_text"}]), Sequence((Const("a"), FreeText()))),
    (form("or", elements=[{"type": "const_string", "value": "a"}]), OneOf((Const("a"),))),
    (form("tag", **TAG), BODY),
    (form("tag", begin="<t>", content={"type": "any_text"}, end="</t>"), Sequence((Const("<t>"), FreeText("</t>")))),
    (form("tag", begin="", content={"type": "any_text"}, end=""), Sequence((Const(""), FreeText(), Const("")))),
    (form("triggered_tags", triggers=["<f="], tags=[TAG]), Triggered("<f=", BODY)),
    (form("triggered_tags", triggers=["<f="], tags=[TAG], at_least_one=True, stop_after_first=True),
     Sequence((FreeText("<f="), Sequence((Const("x>"), JsonSchema(SCHEMA), Const("</f>")))))),
    (form("tags_with_separator", tags=[TAG], separator=", "), Repeat(Sequence((BODY, Repeat(Sequence((Const(", "), BODY)), 0, None))), 0, 1)),
    (form("tags_with_separator", tags=[TAG], separator="", at_least_one=True, stop_after_first=True), BODY),
    (form("repeat", content={"type": "const_string", "value": "a"}, min=2, max=3), Repeat(Const("a"), 2, 3)),
    (form("star", content={"type": "const_string", "value": "a"}), Repeat(Const("a"), 0, None)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("tag", "constraint"), READ, ids=[str(number) for number in range(len(READ))]
)
def test_the_form_with_formats(tag: dict[str, Any], constraint: Any) -> None:
    assert read(tag) == constraint


def test_what_an_engine_needs_is_said() -> None:
    parts = [{"type": "regex", "pattern": "a"}, {"type": "grammar", "grammar": 'root ::= "a"'}]
    assert structural_tag(form("sequence", elements=parts), ())[1] == {"regex", "gbnf"}


WRONG: list[tuple[Any, str, str | None]] = [
    ("nonsense", "t", "invalid_value"),
    (3, "t", "invalid_type"),
    ({}, "t.format", "missing_required_parameter"),
    (form("dance"), "t.format.type", "unsupported_parameter"),
    (form("qwen_xml_parameter", json_schema={}), "t.format.type", "unsupported_parameter"),
    (form("const_string"), "t.format.value", "missing_required_parameter"),
    (form("const_string", value=1), "t.format.value", "invalid_type"),
    (form("json_schema", json_schema=[]), "t.format.json_schema", "invalid_type"),
    (form("or", elements=[]), "t.format.elements", "empty_array"),
    (form("any_text", excludes=["a"]), "t.format.excludes", "unsupported_parameter"),
    (form("triggered_tags", triggers=["<a", "<f="], tags=[TAG]), "t.format.triggers", "unsupported_parameter"),
    (form("triggered_tags", triggers=[""], tags=[TAG]), "t.format.triggers[0]", "invalid_type"),
    (form("triggered_tags", triggers=["<g="], tags=[TAG]), "t.format.triggers", "invalid_value"),
    (form("triggered_tags", triggers=["<f="], tags=[TAG], stop_after_first=True), "t.format.stop_after_first", "unsupported_parameter"),
    (form("repeat", content={"type": "any_text"}, min=1, max=10**9), "t.format.max", "invalid_value"),
    (form("repeat", content={"type": "any_text"}, min=3, max=1), "t.format.max", "invalid_value"),
    ({"structures": [{"begin": "a", "schema": {}}], "triggers": ["a"]}, "t.structures[0].end", "missing_required_parameter"),
    ({"structures": [], "triggers": ["a"]}, "t", "empty_array"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_mistakes_are_named(number: int) -> None:
    value, param, code = WRONG[number]
    with pytest.raises((InvalidRequest, Unsupported)) as caught:
        read(value)
    assert (caught.value.param, caught.value.code) == (param, code)


def test_deep_and_many_formats_are_refused() -> None:
    deep: dict[str, Any] = {"type": "any_text"}
    for _ in range(100):
        deep = {"type": "star", "content": deep}
    wide = form("or", elements=[{"type": "any_text"}] * 2000)
    for value in ({"format": deep}, wide, "[" * 100_000):
        with pytest.raises(GatewayError):
            read(value)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "format", "content", "elements", "tags", "begin", "end", "triggers", "structures"]),
        below | st.sampled_from(["tag", "sequence", "triggered_tags", "or", "repeat", "tags_with_separator", "a"]),
        max_size=5,
    ),
    max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_no_value_raises_anything_else(value: Any) -> None:
    with suppress(GatewayError):
        read(value)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    model = {"engine": "scripted", "parser": "qwen3"}
    with run_gateway({"models": {"m": model}}, tmp_path_factory.mktemp("tags")) as running:
        yield running


@pytest.fixture
def http(gateway: RunningGateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.base_url, timeout=60) as client:
        yield client


def enforced(gateway: RunningGateway) -> str:
    engine = gateway.services.models["m"].engine
    assert isinstance(engine, ScriptedEngine)
    return repr(engine.requests[-1].constraint)


@pytest.mark.parametrize("where", ["structured_outputs", "response_format"])
def test_a_tag_is_enforced_in_chat(gateway: RunningGateway, http: httpx.Client, where: str) -> None:
    tag = form("tag", **TAG)
    asked = {where: {"structural_tag": tag} if where == "structured_outputs" else tag}
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], **asked}
    answer = http.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert repr(BODY) in enforced(gateway)


def test_a_tag_is_enforced_in_responses_and_completions(
    gateway: RunningGateway, http: httpx.Client
) -> None:
    tag = {"structured_outputs": {"structural_tag": json.dumps(form("tag", **TAG))}}
    assert http.post("/responses", json={"model": "m", "input": "x", **tag}).status_code == 200
    assert repr(BODY) in enforced(gateway)
    done = http.post("/completions", json={"model": "m", "prompt": "x", **tag}).json()
    assert done["choices"][0]["text"] == '<f=x>{"a": 5}</f>'


def test_schemas_in_a_tag_have_the_limits_of_others(http: httpx.Client) -> None:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    for schema, code in (
        ({"type": "objct"}, "invalid_json_schema"),
        ({"enum": [*range(6000)]}, "schema_too_large"),
    ):
        content = {"type": "json_schema", "json_schema": schema}
        body["response_format"] = form("tag", begin="a", content=content, end="b")
        answer = http.post("/chat/completions", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text
        assert answer.json()["error"]["param"].startswith("response_format")


def test_two_forms_at_once_are_refused(http: httpx.Client) -> None:
    body = {"model": "m", "prompt": "x", "response_format": form("any_text"), "guided_regex": "a"}
    error = http.post("/completions", json=body).json()["error"]
    assert error["code"] == "mutually_exclusive_parameters"
