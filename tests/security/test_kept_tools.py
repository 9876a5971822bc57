"""What is kept of the tools of earlier requests changes no answer, is nobody else's, and takes little memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.errors import InvalidRequest
from gateway.config import SchemaLimits
from gateway.generation import schema_limits
from gateway.generation.schema_limits import check_limits
from gateway.sdk import ModelContext, ModelInfo, ToolDefinition, Turn
from gateway.wire.content import InputText
from gateway.wire.items import Message
from gateway_chat_template.environment import Template
from gateway_chat_template.renderer import ChatTemplateConfig, ChatTemplateRenderer
from gateway_chat_template.tools import ToolForms
from gateway_scripted.tokenizer import ScriptedTokenizer

FORMS = (
    "{{ tools | tojson }}",
    "{% for tool in tools %}{{ tool | tojson(indent=2) }}{{ tool.function | tojson }}{% endfor %}",
    "{% for tool in tools %}{{ tool.function.parameters | tojson(ensure_ascii=true) }}{{ tool.type }}{% endfor %}",
    "{% for tool in tools %}{% for key, value in tool.function.items() %}{{ key }}{{ value }}{% endfor %}{% endfor %}",
    "{% for n in [1, 1.0, true] %}{{ tools | tojson(sort_keys=n, separators=(',', ':')) }}{% endfor %}",
    "{{ tools[0] | tojson }}{{ tools | tojson }}{{ tools['_texts'] }}{{ tools[0]['_room'] }}{{ tools | attr('_texts') }}",
    "{{ tools | tojson }}{{ tools.texts }}{{ tools[0]['texts'] }}{{ tools | map(attribute='texts') | list }}",
    "{{ tools[0].texts }}{{ tools.texts }}{{ tools | length }}{{ tools is sequence }}{{ tools[0] is mapping }}",
)
TEXTS = st.sampled_from(["", "a", "é", "<|im_start|>", "</tool>", '"'])
VALUES = st.sampled_from([1, 1.0, True, 0, False, None, "1"]) | TEXTS
SCHEMAS = st.dictionaries(
    TEXTS, VALUES | st.lists(VALUES, max_size=2) | st.dictionaries(TEXTS, VALUES, max_size=2),
    max_size=3,
)  # fmt: skip
TOOLS = st.lists(
    st.builds(
        ToolDefinition,
        name=TEXTS,
        description=st.none() | TEXTS,
        parameters=st.none() | SCHEMAS,
        strict=st.booleans(),
        kind=st.sampled_from(["function", "custom"]),
    ),
    min_size=1,
    max_size=3,
)
SAID = (Message(role="user", content=[InputText(text="a")]),)


def renderer_of(template: str, *, keeps: bool) -> ChatTemplateRenderer:
    source = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}" + template
    context = ModelContext(
        info=ModelInfo(name="m", engine="e", chat_template=source), tokenizer=ScriptedTokenizer()
    )
    return ChatTemplateRenderer(
        ChatTemplateConfig(token_cache_bytes=1 << 20 if keeps else 0), context
    )


@pytest.mark.parametrize("template", FORMS)
def test_prompts_with_kept_tools_are_those_without(template: str) -> None:
    keeping, plain = (renderer_of(template, keeps=keeps) for keeps in (True, False))

    @settings(max_examples=40, deadline=None)
    @given(TOOLS)
    def holds(tools: list[ToolDefinition]) -> None:
        turn = Turn(items=SAID, tools=tools, cache_scope="k")
        expected = plain.render(turn)
        for _ in range(2):
            assert keeping.render(turn) == expected

    holds()


@pytest.mark.parametrize(
    "change",
    ["tools.append(1)", "tools[0].update(a=1)", "tools[0].function.parameters.clear()"],
)
def test_a_template_cannot_change_what_is_kept(change: str) -> None:
    renderer = renderer_of(
        "{{ tools | tojson }}{% if add_generation_prompt %}{{ " + change + " }}{% endif %}",
        keeps=True,
    )
    tool = ToolDefinition(name="f", parameters={"type": "object"})
    turn = Turn(items=SAID, tools=[tool], cache_scope="k", add_generation_prompt=False)
    before = renderer.render_text(turn)
    with pytest.raises(InvalidRequest):
        renderer.render(msgspec.structs.replace(turn, add_generation_prompt=True))
    assert renderer.render_text(turn) == before


def test_kept_tools_are_their_owners() -> None:
    forms, tools = ToolForms(1 << 20), [ToolDefinition(name="f")]
    kept = forms.of(tools, "a")
    assert forms.of(tools, "a") is kept
    assert forms.of(tools, "b") is not kept
    assert forms.of(tools, None) is not kept
    assert forms.of([*tools, *tools], "a") is not kept


def test_what_is_kept_of_tools_is_bounded() -> None:
    """By what its objects take, which for many small values is far more than their JSON."""
    properties = {f"{index}": {"type": "string"} for index in range(300)}
    schema = {"type": "object", "properties": properties}
    lists = [[ToolDefinition(name=f"{n}", parameters=schema)] for n in range(20)]
    assert len(msgspec.json.encode(lists)) < 160_000
    forms = ToolForms(1 << 20)
    kept = [forms.of(tools, "a") for tools in lists]
    found = [
        forms.of(tools, "a") is one for tools, one in reversed(list(zip(lists, kept, strict=True)))
    ]
    assert found[0]
    assert not found[-1]
    small = ToolForms(10_000)
    assert small.of(lists[0], "a") is not small.of(lists[0], "a")


def test_json_texts_that_are_kept_are_bounded() -> None:
    """By what they take: deep in a schema each number has a line of its own, of 260 characters with four bytes each."""
    schema: dict[str, Any] = {"default": [1] * 2000, "title": "\U0001f600"}
    for _ in range(60):
        schema = {"not": schema}
    tools = [ToolDefinition(name="f", parameters=schema)]
    template = Template(
        "{% for n in range(20) %}{{ tools | tojson(indent=4 + n) }}{{ tools[0] | tojson(indent=4) }}{% endfor %}"
    )
    forms = ToolForms(1 << 20)
    kept = forms.of(tools, "a")
    tracemalloc.start()
    try:
        template.render({"tools": kept}, limit=100_000_000)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert forms.of(tools, "a") is kept
    assert held < 1 << 20


def test_the_same_text_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    renderer = renderer_of("{{ tools | tojson }}", keeps=True)
    tool = ToolDefinition(name="f", description="d", parameters={"type": "object"})
    turn = Turn(items=SAID, tools=[tool], cache_scope="k")
    before = renderer.render_text(turn)
    written: list[Any] = []
    monkeypatch.setattr("json.dumps", lambda value, **form: written.append(value))
    assert renderer.render_text(turn) == before
    assert not written


def refused(tools: list[ToolDefinition], own: bool, limits: SchemaLimits, scope: str) -> bool:
    turn = Turn(items=(), tools=tools, cache_scope=scope)
    params = {tool.name: ("tools", index) for index, tool in enumerate(tools)} if own else {}
    try:
        check_limits(turn, None, params, limits)
    except InvalidRequest:
        return True
    return False


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(
                st.sampled_from(
                    [
                        {"type": "object"},
                        {"type": "nonsense"},
                        {"properties": {"a": {}, "b": {}}},
                        {"enum": [1]},
                        {"enum": [1, 2, 3]},
                    ]
                ),
                min_size=1,
                max_size=2,
            ),
            st.booleans(),
            st.sampled_from([SchemaLimits(), SchemaLimits(max_enum_values=2), SchemaLimits(max_bytes=40)]),
            st.sampled_from(["a", "b"]),
        ),
        max_size=8,
    )
)  # fmt: skip
def test_kept_verdicts_are_those_of_the_check(asked: list[Any]) -> None:
    for schemas, own, limits, scope in asked:
        tools = [
            ToolDefinition(name=f"f{index}", parameters=each) for index, each in enumerate(schemas)
        ]
        schema_limits._passed = type(schema_limits._passed)(max_size=0)
        expected = refused(tools, own, limits, scope)
        schema_limits._passed = KEPT
        assert refused(tools, own, limits, scope) is expected
        assert refused(tools, own, limits, scope) is expected


KEPT = schema_limits._passed


def test_a_verdict_is_kept_once_for_each_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    check = schema_limits._check_tool

    def noted(tool: ToolDefinition, *given: Any, own: bool) -> int:
        seen.append(tool.name)
        return check(tool, *given, own=own)

    monkeypatch.setattr(schema_limits, "_check_tool", noted)
    monkeypatch.setattr(schema_limits, "_passed", type(KEPT)(max_size=1 << 20))
    tools = [ToolDefinition(name="f", parameters={"title": "of this test"})]
    for scope in ("a", "a", "b", "a", "b"):
        assert not refused(tools, True, SchemaLimits(), scope)
    assert seen == ["f", "f"]
    turn = Turn(items=(), tools=tools)
    check_limits(turn, None, {}, SchemaLimits())
    assert seen == ["f", "f", "f"]


def test_schemas_that_are_nested_deep_are_refused_not_kept() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"not": deep}
    tools = [ToolDefinition(name="f", parameters=deep)]
    assert refused(tools, True, SchemaLimits(), "a")
    while deep:  # frees it without recursion
        deep = deep.pop("not")
