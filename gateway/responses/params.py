"""Parameter names of the Responses API."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from gateway.errors import ParamPath, RenamedParams
from gateway.wire import items


def request_params(
    before: int,
    own: Sequence[items.Item],
    conversation_id: str | None,
    *,
    logprobs: str = "top_logprobs",
    text_param: ParamPath = (),
    preamble: int = 0,
) -> RenamedParams:
    """A context in which errors about a conversation name the parameters of the request. `before` is the number of
    items that precede the request's `own` ones, `preamble` how many of these are of a stored prompt."""
    return RenamedParams(
        partial(
            request_path,
            before=before,
            own=len(own),
            source_param="previous_response_id" if conversation_id is None else "conversation",
            logprobs=logprobs,
            text_param=text_param,
            preamble=preamble,
        )
    )


def request_path(
    path: ParamPath,
    *,
    before: int,
    own: int,
    source_param: str,
    logprobs: str,
    text_param: ParamPath = (),
    preamble: int = 0,
) -> ParamPath:
    """The place in the request of `path`, which names an item by its index in the whole conversation.

    `before` is the number of items that precede the request's `own` ones. `source_param` is the parameter that they came
    from, which is named in errors about them. `logprobs` is the parameter that asks for log probabilities. `text_param`
    is what sets the form of the final text, if `text.format` does not. `preamble` is the number of items of a stored prompt,
    which come first. Empty for items that were written since.
    """
    match path:
        case ("input", int(index), *_) if index < preamble:
            return ("prompt",)
        case ("input", int(index), *_) if index < before:
            return (source_param,)
        case ("input", int(index), *rest):
            return ("input", index - before, *rest) if index < before + own else ()
        case ("max_tokens",):
            return ("max_output_tokens",)
        case ("logprobs",):
            return (logprobs,)
        case ("text", "format", *_) if text_param:
            return text_param
        case _:
            return path
