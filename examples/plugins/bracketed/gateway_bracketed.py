"""An output format plugin for models that write

    [[think]] It wants the weather. [[/think]]
    [[call]] {"tool": "get_weather", "with": {"city": "Oslo"}} [[/call]]

The syntax is of a supported kind, so the format is data for the kit of `litegate-parsers`. A format of another kind
implements `gateway.sdk.OutputFormat` and passes the same contract tests (see `tests/`). Install the plugin
(`pip install -e .`) and select it with `parser = "bracketed"`. It is selected automatically for models whose chat template
contains the markers.
"""

from gateway.sdk import (
    MakeFormat,
    ModelContext,
    ModelInfo,
    ModelProfile,
    NoConfig,
    Register,
    hookimpl,
)
from gateway_parsers import FormatSpec, JsonCalls, MarkupFormat, ReasoningMarkers

BRACKETED = FormatSpec(
    name="bracketed",
    reasoning=ReasoningMarkers(
        open="[[think]]", close="[[/think]]", after_open=" ", before_close=" ", after_close="\n"
    ),
    calls=JsonCalls(
        start="[[call]]",
        end="[[/call]]",
        before=" ",
        after=" ",
        name_keys=("tool",),
        argument_keys=("with",),
        head='{"tool": {name}, "with": ',
    ),
)


def make_bracketed(config: NoConfig, context: ModelContext) -> MarkupFormat:
    return MarkupFormat(BRACKETED, context.tokenizer)


@hookimpl
def gateway_register_parsers(register: Register[MakeFormat]) -> None:
    register("bracketed", make_bracketed, summary="Reasoning and JSON calls in double brackets.")


@hookimpl(tryfirst=True)
def gateway_model_profile(model: ModelInfo) -> ModelProfile | None:
    if "[[call]]" not in (model.chat_template or ""):
        return None
    return ModelProfile(
        renderer="chat_template", parser="bracketed", why="its chat template has [[call]]"
    )
