"""Families whose calls are tags, one per parameter."""

from __future__ import annotations

from gateway_parsers.families.json_calls import HERMES, K2_HORIZON_JSON
from gateway_parsers.kit.arguments import Trim
from gateway_parsers.kit.json_calls import JsonCalls
from gateway_parsers.kit.nested_tags import NestedTagCalls
from gateway_parsers.kit.tag_calls import TagCalls
from gateway_parsers.kit.value_tags import ValueTagCalls


def _functions(tag: str, *, trim: Trim = "newline", line: str = "\n") -> TagCalls:
    """`<tag><function=f><parameter=a>1</parameter></function></tag>`."""
    return TagCalls(
        start=f"<{tag}>",
        end=f"</{tag}>",
        more_starts=("<function=",),
        call_open="<function=",
        call_close="</function>",
        more_call_opens=("<function name=", "<invoke name="),
        noise=("</invoke>",),
        key_open="<parameter=",
        more_key_opens=("<parameter name=",),
        value_close="</parameter>",
        trim=trim,
        head=f"<{tag}>\n<function={{name}}>\n",
        parameter=f"<parameter={{key}}>{line}{{value}}{line}</parameter>\n",
        tail=f"</function>\n</{tag}>",
        reads_json=HERMES,
    )


QWEN_3_CODER = _functions("tool_call")
"""Qwen3-Coder, Qwen3.5, Nemotron 3, Step 3.5, Granite 4.2."""

MIMO = _functions("tool_call", trim="nothing", line="")
"""Like Qwen3-Coder, with values taken literally."""

SEED_OSS = _functions("seed:tool_call")


def _invokes(
    start: str, end: str, prefix: str = "", *, typed: bool = False, **more: object
) -> TagCalls:
    """`<invoke name="f"><parameter name="a">1</parameter></invoke>` within a section."""
    flag = ' string="{string}"' if typed else ""
    return TagCalls(
        start=start,
        end=end,
        call_open=f"<{prefix}invoke",
        call_close=f"</{prefix}invoke>",
        key_open=f"<{prefix}parameter",
        value_close=f"</{prefix}parameter>",
        name_attribute="name",
        key_attribute="name",
        type_attribute="string" if typed else "",
        head=f'<{prefix}invoke name="{{name}}">\n',
        parameter=f'<{prefix}parameter name="{{key}}"{flag}>{{value}}</{prefix}parameter>\n',
        tail=f"</{prefix}invoke>",
        opening=f"{start}\n",
        closing=f"\n{end}",
        **more,  # type: ignore[arg-type]
    )


_DSML = "｜DSML｜"
_DSML_WORDS = ("function_calls", "tool_calls", "toolcalls", "tool")


def _dsml(word: str, *, prefix: str = _DSML, spellings: tuple[TagCalls, ...] = ()) -> TagCalls:
    """Tags with `<PREFIXword>` around calls. The other words are also read."""
    start = f"<{prefix}{word}>"
    others = tuple(f"<{prefix}{other}>" for other in _DSML_WORDS if other != word)
    return _invokes(
        start,
        f"</{prefix}{word}>",
        prefix,
        typed=True,
        more_starts=(*others, f"<{prefix}invoke", f"{start[:-1]}\n"),
        noise=tuple(
            f"</{prefix}{other}>" for other in ("function_calls", "tool_calls") if other != word
        ),
        spellings=spellings,
    )


def _spaced_dsml(prefix: str = _DSML, *, spellings: tuple[TagCalls, ...] = ()) -> TagCalls:
    """Tags with a space after the prefix."""
    return _invokes(
        f"<{prefix} calls>",
        f"</{prefix} calls>",
        f"{prefix} ",
        typed=True,
        more_starts=(f"<{prefix} invoke",),
        spellings=spellings,
    )


_BARS = ("｜｜", "‖", "|")
"""Other bar characters, which the models sometimes write."""
_DSML_VARIANTS = tuple(_dsml("tool_calls", prefix=f"{bar}DSML{bar}") for bar in _BARS)
_SPACED_DSML_VARIANTS = tuple(_spaced_dsml(f"{bar}DSML{bar}") for bar in _BARS)
_DSML_SPELLINGS = (*_DSML_VARIANTS, _spaced_dsml(), *_SPACED_DSML_VARIANTS)
DEEPSEEK_V32 = _dsml("function_calls", spellings=_DSML_SPELLINGS)
DEEPSEEK_V4 = _dsml("tool_calls", spellings=_DSML_SPELLINGS)
DEEPSEEK_V41 = _spaced_dsml(
    spellings=(*_SPACED_DSML_VARIANTS, _dsml("tool_calls"), *_DSML_VARIANTS)
)

GIGACHAT_35 = _invokes(
    "<｜GCML｜tool_calls>",
    "</｜GCML｜tool_calls>",
    "｜GCML｜",
    typed=True,
    more_starts=("<｜GCML｜invoke",),
)

MUSE_GLIMMER = _invokes(
    "<atem:function_calls>",
    "</atem:function_calls>",
    "atem:",
    prefaces=("<|start|>assistant to=", "to="),
    preface_end="<|message|>",
    doubled_names=True,
)
"""Calls are in messages of their own, which name the recipient."""

MINIMAX_M2 = _invokes("<minimax:tool_call>", "</minimax:tool_call>", more_starts=("<invoke",))

MINIMAX_M3 = NestedTagCalls(prefix="]<]minimax[>[")

DOTS = _invokes("<dots_function_call>", "</dots_function_call>", reads_json=HERMES)

STEP_3 = TagCalls(
    start="<｜tool_calls_begin｜>",
    end="<｜tool_calls_end｜>",
    call_open="<steptml:invoke",
    call_close="</steptml:invoke>",
    key_open="<steptml:parameter",
    value_close="</steptml:parameter>",
    noise=("<｜tool_call_begin｜>", "function", "<｜tool_sep｜>", "<｜tool_call_end｜>"),
    titled="<｜tool_sep｜>",
    name_attribute="name",
    key_attribute="name",
    head='<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">\n',
    parameter='<steptml:parameter name="{key}">{value}</steptml:parameter>\n',
    tail="</steptml:invoke><｜tool_call_end｜>",
    opening="<｜tool_calls_begin｜>\n",
    closing="\n<｜tool_calls_end｜>",
)


def _keys(
    line: str,
    *,
    tags: str = "",
    suffix: str = "",
    section: bool = False,
    separator: str = "",
    argument: str = "arg",
    typed: bool = False,
    call: str = "tool_call",
    reads_json: JsonCalls | None = None,
) -> TagCalls:
    """`<tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>`."""

    def tag(name: str) -> str:
        return (
            f"<{tags}{name}{suffix}>"
            if not name.startswith("/")
            else f"</{tags}{name[1:]}{suffix}>"
        )

    separated = tag(separator) if separator else ""
    key, value = tag(f"{argument}_key"), tag(f"{argument}_value")
    key_end, value_end = tag(f"/{argument}_key"), tag(f"/{argument}_value")
    return TagCalls(
        start=tag("tool_calls") if section else tag(call),
        end=tag("/tool_calls") if section else tag(f"/{call}"),
        more_starts=(tag("tool_call"),) if section else (),
        call_open=tag("tool_call") if section else "",
        call_close=tag("/tool_call") if section else "",
        head_end=(separated, "\n") if separated else ("\n",),
        key_open=key,
        key_end=key_end,
        value_open=value,
        value_close=value_end,
        head=f"{tag(call)}{{name}}{separated}{line}",
        parameter=f"{key}{{key}}{key_end}{line}{value}{{value}}{value_end}{line}",
        tail=tag(f"/{call}"),
        opening=tag("tool_calls") + line if section else "",
        closing=line + tag("/tool_calls") if section else "",
        between=line,
        type_open=tag(f"{argument}_type") if typed else "",
        type_close=tag(f"/{argument}_type") if typed else "",
        reads_json=reads_json,
    )


GLM_45 = _keys("\n", reads_json=HERMES)
GLM_47 = _keys("", reads_json=HERMES)
IQUEST_Q1 = _keys("\n", call="iquest_tool_call")
K2_HORIZON = _keys("\n", tags="ifm|", section=True, typed=True, reads_json=K2_HORIZON_JSON)
"""Its template can ask for values with their types, or for calls as JSON; all are read."""


def hy_v3(suffix: str = "") -> TagCalls:
    """Hunyuan 3. Some checkpoints have tokens with a suffix."""
    return _keys("\n", suffix=suffix, section=True, separator="tool_sep")


def hy_v4(suffix: str = "") -> TagCalls:
    """Hunyuan 4, with suffixes like Hunyuan 3."""
    return _keys("", suffix=suffix, section=True)


TELECHAT_4 = _keys("", argument="param", reads_json=HERMES)

SOLAR_OPEN_2 = TagCalls(
    start="<|tool_call:start|>",
    end="<|tool_call:end|>",
    call_open="",
    call_close="",
    head_end=("\n",),
    key_open="<|tool_arg:start|>",
    key_end="<|tool_arg:value|>",
    value_close="<|tool_arg:end|>",
    head="<|tool_call:start|>{name}\n",
    parameter="<|tool_arg:start|>{key}<|tool_arg:value|>{value}<|tool_arg:end|>\n",
    tail="<|tool_call:end|>",
)


def _kimi_k3(sep: str, *, spellings: tuple[TagCalls, ...] = ()) -> TagCalls:
    """`sep` ends each tag."""
    return TagCalls(
        start=f"<|open|>tools{sep}",
        end=f"<|close|>tools{sep}",
        more_starts=("<|open|>call",) if spellings else (),
        call_open="<|open|>call",
        call_close=f"<|close|>call{sep}",
        head_end=("<|sep|>", "\n"),
        key_open="<|open|>argument",
        key_end=sep,
        value_close=f"<|close|>argument{sep}",
        name_attribute="tool",
        key_attribute="key",
        type_attribute="type",
        json_marks=(f'<|open|>json type="object"{sep}', f"<|close|>json{sep}"),
        escaped=True,
        head=f'<|open|>call tool="{{name}}" index="{{index}}"{sep}',
        parameter=(
            f'<|open|>argument key="{{key}}" type="{{type}}"{sep}{{value}}<|close|>argument{sep}'
        ),
        tail=f"<|close|>call{sep}",
        opening=f"<|open|>tools{sep}",
        closing=f"<|close|>tools{sep}",
        between="",
        spellings=spellings,
    )


KIMI_K3 = _kimi_k3("<|sep|>", spellings=(_kimi_k3("\n"),))

COHERE_5 = ValueTagCalls(prefix="cofl:", section="tool_calls", call="tool_call", value="value")

MINICPM_5 = TagCalls(
    start="<function",
    end="</function>",
    call_open="<function",
    call_close="",
    key_open="<param",
    value_close="</param>",
    name_attribute="name",
    key_attribute="name",
    head='<function name="{name}">',
    parameter='<param name="{key}">{value}</param>',
    tail="</function>",
    cdata=True,
)

BEAM = TagCalls(
    start=" to=",
    end="<|call|>",
    more_starts=("<|start|>assistant to=", "to="),
    prose_starts=(" to=", "to="),
    call_open="",
    call_close="<|end|>",
    head_end=("<|channel|>analysis <|constrain|>xml<|message|>",),
    key_open="<rfl:parameter",
    value_close="</rfl:parameter>",
    key_attribute="name",
    noise=("<|start|>assistant",),
    trim="newline",
    head=" to={name}<|channel|>analysis <|constrain|>xml<|message|>",
    parameter='<rfl:parameter name="{key}">\n{value}\n</rfl:parameter>',
    tail="",
    between="<|end|><|start|>assistant",
    closing="<|call|>",
)
"""Calls are messages of their own, in channels as Harmony's."""
