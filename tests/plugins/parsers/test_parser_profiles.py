"""Which format a model's own metadata chooses."""

from __future__ import annotations

import pytest

from gateway.errors import ConfigurationError
from gateway.protocols import ModelInfo
from gateway.testing.chatml import CHAT_TEMPLATE
from gateway_parsers import BY_NAME, compose, gateway_model_profile

JSON_CALLS = '{{ "<tool_call>\\n{\\"name\\": \\"" + name + "\\", \\"arguments\\": " }}'


@pytest.mark.parametrize(
    ("template", "parser"),
    [
        (CHAT_TEMPLATE, "qwen3"),
        (JSON_CALLS, "qwen3"),
        ("<think> {{ content.split('</think>')[-1] }}", "think"),
        ("<think></think><tool_call>\n<function=name>", "think"),
        ("<tool_call>\n<function=name>", "plain"),
        ("[TOOL_CALLS]", "plain"),
        ("{{ messages[0].content }}", "plain"),
    ],
)
def test_the_chat_template_chooses(template: str, parser: str) -> None:
    profile = gateway_model_profile(ModelInfo(name="m", engine="e", chat_template=template))
    assert profile is not None
    assert (profile.renderer, profile.parser) == ("chat_template", parser)
    assert profile.parser in BY_NAME
    assert profile.why


def test_a_model_without_a_chat_template_is_not_known() -> None:
    assert gateway_model_profile(ModelInfo(name="m", engine="e")) is None


def test_calls_that_no_format_reads_are_told_of() -> None:
    profile = gateway_model_profile(ModelInfo(name="m", engine="e", chat_template="<function="))
    assert profile is not None
    assert "qwen3_coder" in profile.why


def test_two_halves_make_a_format() -> None:
    spec = compose("deepseek_r1", "hermes")
    assert spec.reasoning == BY_NAME["deepseek_r1"].reasoning
    assert spec.calls == BY_NAME["qwen3"].calls
    assert compose(None, "qwen3").reasoning is None
    assert compose("qwen3", None).calls is None


def test_a_half_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'deepseek_r1' with tool calls; .*hermes"):
        compose("qwen3", "deepseek_r1")
    with pytest.raises(ConfigurationError, match="'nonsense' with reasoning"):
        compose("nonsense", "hermes")
