"""Which format a model's own metadata chooses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gateway_harmony
import gateway_parsers
from gateway.base.errors import ConfigurationError
from gateway.plugins.hookspecs import ModelContext
from gateway.plugins.protocols import CallPiece, ModelInfo, ReasoningPiece
from gateway_parsers import (
    BY_NAME,
    FORMATS,
    MarkupFormat,
    compose,
    gateway_model_profile,
    gateway_register_parsers,
)
from gateway_scripted.chatml import CHAT_TEMPLATE
from gateway_testing import load_plugins

JSON_CALLS = '{{ "<tool_call>\\n{\\"name\\": \\"" + name + "\\", \\"arguments\\": " }}'


@pytest.mark.parametrize(
    ("template", "kind", "parser"),
    [
        (CHAT_TEMPLATE, "", "qwen3"),
        (JSON_CALLS, "", "qwen3"),
        ("<think> {{ content.split('</think>')[-1] }}", "", "think"),
        ("<think></think><tool_call>\n<function=name>", "", "qwen3_coder"),
        ("</think><tool_call>\n<function=name>\n<parameter=a>", "mimo", "mimo"),
        ("<tool_call>{function-name}\n<arg_key>k</arg_key>\n<arg_value>", "glm4_moe", "glm45"),
        ("<tool_call>{function-name}<arg_key>k</arg_key><arg_value>", "glm4_moe", "glm47"),
        ("function<｜tool▁sep｜><｜tool▁calls▁begin｜>\n```json", "deepseek_v3", "deepseek_v3"),
        ("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>", "deepseek_v3", "deepseek_v31"),
        ("{% set dsml_token = '｜DSML｜' %}<{{ dsml_token }}function_calls>", "", "deepseek_v32"),
        ("{% set dsml_token = '｜DSML｜' %}<{{ dsml_token }}tool_calls>", "", "deepseek_v4"),
        ("<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}", "kimi_k2", "kimi_k2"),
        ("'<|open|>' + tag + '<|sep|>' '<|close|>'", "kimi_k3", "kimi_k3"),
        ("<minimax:tool_call>\n<invoke name=", "minimax_m2", "minimax_m2"),
        ("]<]minimax[>[<tool_call>", "minimax_m3", "minimax_m3"),
        ("[TOOL_CALLS]{{ name }}[ARGS]", "mistral3", "mistral"),
        ("[TOOL_CALLS] [{{ calls }}]", "mistral", "mistral_v3"),
        ("<|tool_call>call:{{ name }}<tool_call|><|channel>thought<channel|>", "gemma4", "gemma4"),
        ("<start_function_call>call:", "gemma3_text", "functiongemma"),
        ("<|python_tag|>", "llama", "llama3_json"),
        (
            '{"name": function name, "parameters": dictionary of argument name',
            "llama",
            "llama3_json",
        ),
        ("[func_name1(params_name1=params_value1)]", "llama", "pythonic"),
        ("[func_name1(param1=value1)]", "llama4", "llama4_pythonic"),
        ("List of tools: ", "lfm2", "lfm2"),
        ("<|tool_call_start|>", "", "lfm2"),
        ("<function_calls></function_calls></think>", "olmo3", "olmo3"),
        ("<|START_ACTION|><|START_RESPONSE|><|START_THINKING|>", "cohere2", "cohere_command3"),
        ("<|START_ACTION|><|START_TEXT|>", "cohere2_moe", "cohere_command4"),
        ('<|START_TEXT|><cofl:tool_calls><cofl:value name="a" type="raw">', "", "cohere_command5"),
        ("<|tool_call|>Here is my thought process", "granite", "granite"),
        ("<function_call>", "gpt_bigcode", "granite-20b-fc"),
        ("<seed:tool_call><function=", "seed_oss", "seed_oss"),
        ("<｜tool_calls_begin｜><steptml:invoke", "step3_text", "step3"),
        ("<tool_calls>[{}]</tool_calls>", "hunyuan_v1_moe", "hunyuan_a13b"),
        ("<tool_calls><tool_call>f<tool_sep>", "hy_v3", "hy_v3"),
        (
            'content.split(\'<tool_sep>\') <function name="f"><param name="a">',
            "minicpm",
            "minicpm5",
        ),
        ("render('function call') ~ '<|role_sep|>\\n' ~ call", "deepseek_v3", "gigachat3"),
        ("<tool_calls><tool_call>f<arg_key>", "hy_v4", "hy_v4"),
        ("<tool_calls>", "jamba", "jamba"),
        ("<｜GCML｜tool_calls><｜GCML｜invoke", "gigachat", "gigachat35"),
        ("<|start|>assistant to=<|message|><atem:function_calls>", "muse", "muse_glimmer"),
        ("<|tool_call:start|>{{ name }}<|think:start|><|think:end|>", "solar", "solar_open2"),
        ("<tool_call>{{ name }}<param_key>k</param_key></think>", "telechat4", "telechat4"),
        ("<|action_start|><|plugin|>", "internlm2", "internlm"),
        ("<|tool|>{{ tools }}<|/tool|>", "phi3", "phi4_mini_json"),
        ("<tool_call> 'arguments' </think>", "ernie4_5_moe", "ernie45"),
        ("<longcat_tool_call>", "longcat_flash", "longcat"),
        ("<|content_invoke_tool_json|>", "inkling", "inkling"),
        ("<|tools_prefix|>[{{ calls }}]<|tools_suffix|>", "apertus", "apertus"),
        ('[{"name": "tool_call_name", "arguments": {', "qwen2", "xlam"),
        ("◁think▷◁/think▷", "kimi_vl", "kimi"),
        ("{{ content.split('</thought>')[-1] }}[|assistant|]<thought>", "exaone", "thought"),
        (
            "<|tool_calls|><|tool_call:begin|>' + id + '<|tool_call:name|>",
            "solar_open",
            "solar_open",
        ),
        ("<|begin|>assistant<|think|>{{ r }}<|end|><|tool_call:begin|>", "", "solar_open"),
        ("Here are my reasoning steps:\\n [BEGIN FINAL RESPONSE] <tool_calls>[", "", "apriel"),
        (
            "<|channel|>analysis<|message|>{{ r }}<|end|><rfl:parameter name=",
            "BeamForCausalLM",
            "beam",
        ),
        ("<think></think><tool_call>\n<function=f>\n<parameter=a>", "step5", "step5"),
        ("<think></think><tool_call>\n<function=f>\n<parameter=a>", "Step5ForCausalLM", "step5"),
        ("<think></think><tool_call>\n<function=f>\n<parameter=a>", "step3p5", "qwen3_coder"),
        (
            "<|start|>assistant to=self<|message|><atem:function_calls>",
            "MuseSparkForConditionalGeneration",
            "muse",
        ),
        ("<|im_start|>assistant -> tool/function_call\n", "llama", "hyperclovax_seed_think_14b"),
        # SmolLM3: its tools are in `xml_tools`.
        (
            '{%- if xml_tools -%}<tool_call>\\n{\\"name\\": <n>, \\"arguments\\": <a>}<think></think>',
            "smollm3",
            "qwen3",
        ),
        ("<seed:think></seed:think>", "", "seed_oss"),
        ("{{ messages[0].content }}", "", "plain"),
    ],
)
def test_the_chat_template_chooses(template: str, kind: str, parser: str) -> None:
    info = ModelInfo(name="m", engine="e", chat_template=template, model_type=kind or None)
    profile = gateway_model_profile(info)
    assert profile is not None
    assert (profile.renderer, profile.parser) == ("chat_template", parser)
    assert profile.parser in BY_NAME
    assert profile.why


def test_reasoning_and_calls_of_two_families_make_a_pair() -> None:
    for template, reasoning, tools in (
        ("<|python_tag|> content.split('</think>')", "think", "llama3_json"),
        ("◁think▷ ◁/think▷ <|tool_call_begin|>", "kimi", "kimi_k2"),
        ("<think></think><|action_start|><|plugin|>", "think", "internlm"),
        (JSON_CALLS + "[THINK][/THINK]", "mistral", "qwen3"),
    ):
        info = ModelInfo(name="m", engine="e", chat_template=template)
        profile = gateway_model_profile(info)
        assert profile is not None
        assert (profile.parser, profile.reasoning, profile.tools) == (None, reasoning, tools)
        spec = compose(reasoning, tools)
        assert spec.reasoning == BY_NAME[reasoning].reasoning
        assert spec.calls == BY_NAME[tools].calls


def test_a_model_without_a_chat_template_is_not_known() -> None:
    assert gateway_model_profile(ModelInfo(name="m", engine="e")) is None


def test_calls_that_no_format_reads_are_told_of() -> None:
    for template in ("<|channel|>commentary", "<|channel|>analysis<|message|>{{ r }}<|end|>"):
        info = ModelInfo(name="m", engine="e", chat_template=template)
        profile = gateway_model_profile(info)
        assert profile is not None
        assert profile.parser == "plain"
        assert "harmony" in profile.why


def test_beam_is_not_taken_for_harmony() -> None:
    harmony = "<|channel|>analysis<|message|>{{ r }}<|end|>"
    for template, harmonic in ((harmony, True), (harmony + "<rfl:parameter name=", False)):
        info = ModelInfo(name="m", engine="e", chat_template=template)
        assert (gateway_harmony.gateway_model_profile(info) is not None) is harmonic


VLLM_TOOLS = """dots deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 deepseek_v41 cohere_command3 cohere_command4
    ernie45 glm45 glm47 ling3 granite-20b-fc granite granite4 hermes hf poolside_v1 hunyuan_a13b hy_v3 hy_v4 internlm
    jamba lfm2 kimi_k2 kimi_k3 k2_horizon llama3_json llama4_json llama4_pythonic longcat mimo minimax_m2 minimax_m3
    minicpm5 mistral olmo3 plamo3 muse_glimmer openai phi4_mini_json pythonic qwen3_coder qwen3_json qwen3_xml seed_oss
    step3 step3p5 inkling xlam gigachat3 functiongemma gemma4 apertus solar_open2
    berrylm spark3 openpangu_v2 beam muse musespark1x step5"""
VLLM_REASONING = """deepseek_r1 deepseek_v3 deepseek_v4 deepseek_v41 poolside_v1 cohere_command3 cohere_command4 ernie45
    gemma4 glm45 glm47 ling3 openai_gptoss granite granite_thinking_parser hf holo2 hunyuan_a13b hy_v3 hy_v4 kimi_k2
    kimi_k3 k2_horizon mimo minicpmv minimax_m2 minimax_m2_append_think minimax_m3 mistral nemotron_v3 olmo3 plamo3
    muse_glimmer qwen3 seed_oss step3 step3p5 inkling solar_open2
    berrylm kolibri1 openpangu_v2 beam muse musespark1x step5"""
SGLANG_TOOLS = """apertus2509 cohere_command4 deepseekv3 deepseekv31 deepseekv32 deepseekv4 deepseekv41 dots glm glm45
    glm47 gpt-oss k2_horizon kimi_k2 kimi_k3 lfm2 ling3 llama3 mimo minicpm5 mistral muse poolside_v1 pythonic qwen
    qwen25 qwen3_coder spark25 step3 step3p5 minimax-m2 minimax-m3 trinity interns1 hermes hunyuan gigachat3 gigachat35
    gemma4 inkling berrylm spark3 iquest_q1"""
SGLANG_REASONING = """apertus2509 deepseek-r1 deepseek-v3 deepseek-v4 deepseek-v41 glm45 hunyuan gpt-oss kimi kimi_k2
    kimi_k3 mimo poolside_v1 qwen3 qwen3-thinking minimax minimax-append-think minimax-m3 step3 step3p5 mistral
    nemotron_3 nano_v3 interns1 gemma4 inkling cohere_command4 telechat4"""
SMG = "sarashina"


def test_names_of_other_servers_are_known() -> None:
    """The names of vLLM 0.32 and of its later sources, SGLang and SMG, of tool and reasoning parsers."""
    plugins = load_plugins(extra=[gateway_parsers, gateway_harmony], installed=False)
    known = set(plugins.names("parser"))
    for names in (VLLM_TOOLS, VLLM_REASONING, SGLANG_TOOLS, SGLANG_REASONING, SMG):
        assert not set(names.split()) - known


def test_a_name_of_a_reasoning_parser_has_reasoning_and_one_of_a_tool_parser_has_calls() -> None:
    elsewhere = {"hf", "openai", "openai_gptoss", "gpt-oss"}
    for names in (VLLM_TOOLS, SGLANG_TOOLS, SMG):
        assert not [n for n in set(names.split()) - elsewhere if not BY_NAME[n].has("calls")]
    for names in (VLLM_REASONING, SGLANG_REASONING):
        assert not [n for n in set(names.split()) - elsewhere if not BY_NAME[n].has("reasoning")]


def test_a_name_belongs_to_one_format() -> None:
    names = [name for spec in FORMATS for name in (spec.name, *spec.aliases)]
    assert len(names) == len(set(names))


def formatted(name: str, template: str) -> MarkupFormat:
    info = ModelInfo(name="m", engine="e", chat_template=template)
    offers: dict[str, Any] = {}

    def register(offer: str, make: Any, **rest: Any) -> None:
        offers[offer] = (make, rest["config"])

    gateway_register_parsers(register)  # type: ignore[arg-type]  # takes any offer
    make, config = offers[name]
    made: MarkupFormat = make(config(), ModelContext(info=info, tokenizer=None))
    return made


def test_the_template_tells_versions_of_a_family_apart() -> None:
    call = CallPiece("f", "{}")
    assert formatted("mistral", "[TOOL_CALLS] [").write([call]) == (
        '[TOOL_CALLS] [{"name": "f", "arguments": {}}]'
    )
    assert formatted("mistral", "[TOOL_CALLS][ARGS]").write([call]) == "[TOOL_CALLS]f[ARGS]{}"
    suffixed = formatted("hy_v3", "<tool_calls:6124c78e>").write([ReasoningPiece("hm"), call])
    assert "</think:6124c78e>" in suffixed
    assert "<tool_call:6124c78e>f<tool_sep:6124c78e>" in suffixed


def test_two_halves_make_a_format() -> None:
    spec = compose("deepseek_r1", "hermes")
    assert spec.reasoning == BY_NAME["deepseek_r1"].reasoning
    assert spec.calls == BY_NAME["qwen3"].calls
    assert compose(None, "qwen3").reasoning is None
    assert compose("qwen3", None).calls is None


def test_a_half_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ConfigurationError, match=r"'deepseek_r1' with tool calls\. .*hermes"):
        compose("qwen3", "deepseek_r1")
    with pytest.raises(ConfigurationError, match=r'reasoning\. Did you mean "glm53"\? There are: '):
        compose("glm5", None)
    with pytest.raises(ConfigurationError, match="'nonsense' with reasoning"):
        compose("nonsense", "hermes")


def test_the_readme_names_every_format_and_every_alias() -> None:
    readme = (Path(gateway_parsers.__file__).parent.parent / "README.md").read_text("utf-8")
    assert not [name for name in BY_NAME if f"`{name}`" not in readme]


def test_a_template_for_tools_says_which_format_calls_have() -> None:
    model = ModelInfo(
        name="m", engine="e", chat_template="{{ messages }}", tool_chat_template=JSON_CALLS
    )
    profile = gateway_model_profile(model)
    assert profile is not None
    assert profile.parser == "qwen3"
