"""The formats that the plugin offers, by vLLM's names, with SGLang's as aliases."""

from __future__ import annotations

from gateway_parsers.families import header_calls as headers
from gateway_parsers.families import json_calls as objects
from gateway_parsers.families import other_calls as others
from gateway_parsers.families import reasoning as marks
from gateway_parsers.families import tag_calls as tags
from gateway_parsers.spec import FormatSpec

FORMATS = (
    FormatSpec(
        name="qwen3",
        reasoning=marks.THINK,
        calls=objects.HERMES,
        aliases=("hermes", "qwen", "qwen3_json", "qwen25", "granite4", "interns1"),
        summary="<think> reasoning and JSON calls in <tool_call> tags (Qwen3, Qwen2.5, Hermes, Granite 4)",
    ),
    FormatSpec(
        name="qwen3_coder",
        reasoning=marks.THINK,
        calls=tags.QWEN_3_CODER,
        aliases=(
            "qwen3_xml", "nemotron_v3", "nemotron_3", "step3p5", "granite_thinking_parser", "minicpmv", "trinity",
        ),
        summary="<think> reasoning and calls as <function=…><parameter=…> (Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5)",
    ),
    FormatSpec(
        name="mimo",
        reasoning=marks.THINK,
        calls=tags.MIMO,
        summary="as qwen3_coder, with values to the letter (MiMo)",
    ),
    FormatSpec(
        name="deepseek_r1",
        reasoning=marks.THINK_FROM_START,
        aliases=("deepseek-r1", "holo2", "qwen3-thinking"),
        summary="<think> reasoning that the prompt opens, no tool calls (DeepSeek-R1 and distills)",
    ),
    FormatSpec(
        name="deepseek_v3",
        reasoning=marks.THINK_UNTIL_CALL,
        calls=headers.DEEPSEEK_V3,
        aliases=("deepseekv3", "deepseek-v3"),
        summary="<think> reasoning and fenced JSON calls in special tokens (DeepSeek-V3, R1-0528)",
    ),
    FormatSpec(
        name="deepseek_v31",
        reasoning=marks.THINK_UNTIL_CALL,
        calls=headers.DEEPSEEK_V31,
        aliases=("deepseekv31",),
        summary="<think> reasoning and JSON calls in special tokens (DeepSeek-V3.1)",
    ),
    FormatSpec(
        name="deepseek_v32",
        reasoning=marks.THINK_UNTIL_CALL,
        calls=tags.DEEPSEEK_V32,
        aliases=("deepseekv32",),
        summary="<think> reasoning and DSML calls (DeepSeek-V3.2)",
    ),
    FormatSpec(
        name="deepseek_v4",
        reasoning=marks.THINK_UNTIL_CALL,
        calls=tags.DEEPSEEK_V4,
        aliases=("deepseekv4",),
        summary="<think> reasoning and DSML calls (DeepSeek-V4)",
    ),
    FormatSpec(
        name="deepseek_v41",
        reasoning=marks.THINK_UNTIL_CALL,
        calls=tags.DEEPSEEK_V41,
        summary="<think> reasoning and spaced DSML calls (DeepSeek-V4.1)",
    ),
    FormatSpec(
        name="kimi_k2",
        reasoning=marks.THINK_UNTIL_CALL,
        calls=headers.KIMI_K2,
        hidden=marks.KIMI_2_SECTION,
        summary="<think> reasoning and calls with ids functions.NAME:INDEX (Kimi K2)",
    ),
    FormatSpec(
        name="kimi_k3",
        reasoning=marks.KIMI_3,
        calls=tags.KIMI_K3,
        frame=marks.KIMI_3_TEXT,
        summary="channels and typed arguments in special tokens (Kimi K3)",
    ),
    FormatSpec(
        name="kimi",
        reasoning=marks.KIMI_1,
        summary="◁think▷ reasoning, no tool calls (Kimi-VL)",
    ),
    FormatSpec(
        name="glm45",
        reasoning=marks.THINK,
        calls=tags.GLM_45,
        hidden=marks.BOX,
        aliases=("glm", "poolside_v1"),
        summary="<think> reasoning and calls as <arg_key>, <arg_value> (GLM-4.5, GLM-4.6, Poolside)",
    ),
    FormatSpec(
        name="glm47",
        reasoning=marks.THINK,
        calls=tags.GLM_47,
        hidden=marks.BOX,
        aliases=("ling3",),
        summary="as glm45, without line breaks (GLM-4.7, GLM-5, Ling 3)",
    ),
    FormatSpec(
        name="llama3_json",
        calls=objects.LLAMA_3,
        aliases=("llama3", "llama4_json"),
        summary="bare JSON calls, or behind <|python_tag|> (Llama 3.1 to 3.3)",
    ),
    FormatSpec(
        name="mistral",
        reasoning=marks.MISTRAL,
        calls=headers.MISTRAL,
        summary="[THINK] reasoning and calls as [TOOL_CALLS]NAME[ARGS]{…} (Mistral, from tokenizer v11 on)",
    ),
    FormatSpec(
        name="mistral_v3",
        reasoning=marks.MISTRAL,
        calls=objects.MISTRAL_LIST,
        summary="calls as [TOOL_CALLS] [{…}] (Mistral before tokenizer v11)",
    ),
    FormatSpec(
        name="gemma4",
        reasoning=marks.GEMMA,
        calls=others.GEMMA_4,
        summary="a thought channel and calls as call:NAME{…} (Gemma 4)",
    ),
    FormatSpec(
        name="minimax_m2",
        reasoning=marks.THINK_FROM_START_UNTIL_CALL,
        calls=tags.MINIMAX_M2,
        aliases=("minimax", "minimax-m2", "minimax_m2_append_think", "minimax-append-think"),
        summary="<think> reasoning that the prompt opens, and calls as <invoke> (MiniMax M2)",
    ),
    FormatSpec(
        name="minimax_m3",
        reasoning=marks.MINIMAX_3,
        calls=tags.MINIMAX_M3,
        summary="<mm:think> reasoning and calls as nested elements (MiniMax M3)",
    ),
    FormatSpec(
        name="pythonic",
        calls=others.PYTHONIC,
        summary="calls as a Python list (Llama 3.2, ToolACE)",
    ),
    FormatSpec(
        name="llama4_pythonic",
        calls=others.LLAMA_4,
        aliases=("llama4",),
        summary="calls as a Python list, perhaps between <|python_start|> and <|python_end|> (Llama 4)",
    ),
    FormatSpec(
        name="lfm2",
        reasoning=marks.THINK,
        calls=others.LFM_2,
        summary="<think> reasoning and a Python list of calls in special tokens (LFM2)",
    ),
    FormatSpec(
        name="olmo3",
        reasoning=marks.THINK_FROM_START,
        calls=others.OLMO_3,
        summary="<think> reasoning that the prompt opens, and Python calls in <function_calls> (Olmo 3)",
    ),
    FormatSpec(
        name="cohere_command3",
        reasoning=marks.COHERE,
        calls=objects.COHERE,
        frame=marks.COMMAND_3_TEXT,
        summary="thinking, response and action blocks (Command A, Command R7B)",
    ),
    FormatSpec(
        name="cohere_command4",
        reasoning=marks.COHERE,
        calls=objects.COHERE,
        frame=marks.COMMAND_4_TEXT,
        summary="thinking, text and action blocks (Command A+)",
    ),
    FormatSpec(
        name="granite",
        reasoning=marks.GRANITE,
        calls=objects.GRANITE,
        frame=marks.RESPONSE,
        summary="reasoning in words and a JSON list behind <|tool_call|> (Granite 3)",
    ),
    FormatSpec(
        name="granite-20b-fc",
        calls=objects.GRANITE_20B,
        summary="JSON calls behind <function_call> (Granite 20B functioncalling)",
    ),
    FormatSpec(
        name="seed_oss",
        reasoning=marks.SEED,
        calls=tags.SEED_OSS,
        summary="<seed:think> reasoning and calls as qwen3_coder (Seed-OSS)",
    ),
    FormatSpec(
        name="step3",
        reasoning=marks.THINK_FROM_START_UNTIL_CALL,
        calls=tags.STEP_3,
        summary="<think> reasoning that the prompt opens, and calls as <steptml:invoke> (Step 3)",
    ),
    FormatSpec(
        name="hunyuan_a13b",
        reasoning=marks.THINK,
        calls=objects.HUNYUAN,
        frame=marks.ANSWER,
        aliases=("hunyuan",),
        summary="<think>, <answer> and a JSON list in <tool_calls> (Hunyuan A13B)",
    ),
    FormatSpec(
        name="hy_v3",
        reasoning=marks.THINK,
        calls=tags.hy_v3(),
        summary="<think> reasoning and calls as glm45 in <tool_calls> (Hunyuan 3)",
    ),
    FormatSpec(
        name="internlm",
        calls=objects.INTERNLM,
        summary="JSON calls between <|action_start|><|plugin|> and <|action_end|> (InternLM2)",
    ),
    FormatSpec(
        name="phi4_mini_json",
        calls=objects.PHI_4_MINI,
        summary="calls as functools[…] (Phi-4-mini)",
    ),
    FormatSpec(
        name="functiongemma",
        calls=others.FUNCTION_GEMMA,
        summary="calls as call:NAME{…} between <start_function_call> and <end_function_call> (FunctionGemma)",
    ),
    FormatSpec(
        name="ernie45",
        reasoning=marks.THINK_FROM_START,
        calls=objects.HERMES,
        frame=marks.RESPONSE,
        summary="<think> reasoning that the prompt opens, <response> and JSON calls in <tool_call> (ERNIE 4.5)",
    ),
    FormatSpec(
        name="longcat",
        reasoning=marks.LONGCAT,
        calls=objects.LONGCAT,
        summary="<longcat_think> reasoning and JSON calls in <longcat_tool_call> (LongCat)",
    ),
    FormatSpec(
        name="inkling",
        reasoning=marks.INKLING,
        calls=objects.INKLING,
        frame=marks.INKLING_TEXT,
        summary="typed content blocks in special tokens (Inkling)",
    ),
    FormatSpec(
        name="apertus",
        reasoning=marks.APERTUS,
        calls=objects.APERTUS,
        summary="inner text and calls as [{NAME: arguments}] in special tokens (Apertus)",
    ),
    FormatSpec(
        name="xlam",
        reasoning=marks.THINK,
        calls=objects.XLAM,
        summary="a bare JSON list of calls, perhaps fenced or tagged (xLAM)",
    ),
    FormatSpec(
        name="json",
        calls=objects.PLAIN_JSON,
        summary="bare JSON calls with name and arguments, for models told to write them so",
    ),
    FormatSpec(
        name="jamba",
        calls=objects.JAMBA,
        summary="a JSON list of calls in <tool_calls> (Jamba)",
    ),
    FormatSpec(
        name="nemotron_json",
        reasoning=marks.THINK,
        calls=objects.NEMOTRON,
        summary="<think> reasoning and a JSON list of calls in <TOOLCALL> (Nemotron Nano 2)",
    ),
    FormatSpec(
        name="gigachat3",
        calls=objects.GIGACHAT_3,
        summary="a JSON call behind <|function_call|> (GigaChat 3)",
    ),
    FormatSpec(
        name="dots",
        reasoning=marks.THINK,
        calls=tags.DOTS,
        summary="<think> reasoning and calls as <invoke> in <dots_function_call> (dots)",
    ),
    FormatSpec(
        name="minicpm5",
        reasoning=marks.THINK,
        calls=tags.MINICPM_5,
        summary='<think> reasoning and calls as <function name="…"><param name="…"> (MiniCPM 5)',
    ),
    FormatSpec(
        name="k2_horizon",
        reasoning=marks.K2_HORIZON,
        calls=tags.K2_HORIZON,
        summary="<ifm|think> reasoning and calls as <ifm|arg_key> (K2 Horizon)",
    ),
    FormatSpec(
        name="plamo3",
        reasoning=marks.PLAMO,
        calls=headers.PLAMO_3,
        summary="reasoning and JSON calls in <|plamo:…|> markers (PLaMo 3)",
    ),
    FormatSpec(
        name="think",
        reasoning=marks.THINK,
        summary="<think> reasoning that the prompt or the model opens, no tool calls",
    ),
    FormatSpec(name="plain", summary="no markup: all output is text"),
)  # fmt: skip

BY_NAME = {name: spec for spec in FORMATS for name in (spec.name, *spec.aliases)}
