"""From a decoded chat request to what has to be run: the plan of one answer."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from gateway.chat.items import items_of
from gateway.chat.search import WEB_SEARCH, searching_tools, web_search
from gateway.chat.store import ToKeep, to_keep
from gateway.chat.structure import structure_of, text_format_of, text_place
from gateway.errors import GatewayError, InvalidRequest, Unsupported
from gateway.loop.faults import Places, tool_places
from gateway.loop.generation import GenerationSettings
from gateway.loop.hints import hints_of
from gateway.loop.sampling import sampling_of
from gateway.protocols import Capability, NamedTool, Sampling, Turn
from gateway.serving.served import ServedModel, Services
from gateway.tools.offered import OfferedTools
from gateway.tools.requested import list_without_approval
from gateway.tools.toolset import Toolset, build_toolset
from gateway.wire.chat import ChatRequest, FinishReason
from gateway.wire.chat_messages import AssistantMessage
from gateway.wire.content import text_of
from gateway.wire.ids import new_id
from gateway.wire.items import Message
from gateway.wire.sampling import SamplingParameters
from gateway.wire.tools import AllowedToolsChoice, CustomChoice, FunctionChoice, type_of


class ChatStyle(Struct, frozen=True, kw_only=True):
    """What an answer shows, and how."""

    reasoning_fields: Sequence[str]
    """Under which names reasoning is shown; empty: it is not."""
    logprobs: bool
    legacy: bool
    """Whether calls are shown as the older `function_call`."""
    calls_finish: FinishReason
    stream: bool
    includes_usage: bool
    continuous_usage: bool
    token_ids: bool
    prompt_logprobs: bool
    service_tier: str | None
    """As the client sent it."""
    lead: str
    """Text that each choice begins with (`echo`)."""


class ChatPlan(Struct, frozen=True, kw_only=True):
    """All that is decided about an answer before it runs."""

    id: str
    created: int
    model: ServedModel
    turn: Turn
    origins: Sequence[int]
    """For each item of the turn, the number of its message."""
    max_tokens_param: str
    """How the client names the limit on the output."""
    toolset: Toolset
    settings: GenerationSettings
    n: int
    style: ChatStyle
    to_keep: ToKeep | None
    """What the answer is stored with, if it is."""


_REFUSED = {
    "audio": "Audio output is not available on this server. Leave the parameter out.",
    "moderation": "Moderation is not available on this server. Leave the parameter out.",
    "use_beam_search": "Beam search is not available on this server. Leave the parameter out.",
    "allowed_token_ids": "A list of allowed tokens is not available on this server. Use logit_bias.",
    "truncate_prompt_tokens": "Prompts are not cut on this server. Send fewer messages.",
    "logits_processors": "Logits processors are not taken from requests on this server.",
    "mm_processor_kwargs": "Settings of the media processor are not taken from requests on this server.",
    "kv_transfer_params": "Transfers of the engine's cache are not taken from requests on this server.",
    "vllm_xargs": "vLLM's own extra arguments are not taken from requests on this server.",
    "return_tokens_as_token_ids": "Tokens are shown as text on this server. Use return_token_ids.",
}
"""What is known and would change the answer if it were passed over."""


def refuse(request: SamplingParameters, refused: Mapping[str, str] = _REFUSED) -> None:
    """Refuse what cannot be honoured. Raises `Unsupported`."""
    for name, message in refused.items():
        if getattr(request, name, None):
            raise Unsupported(message, param=name)
    best_of = getattr(request, "best_of", None)
    if best_of is not None and best_of > (getattr(request, "n", None) or 1):
        raise Unsupported(
            "best_of is not available on this server: as many choices are made as are shown.",
            param="best_of",
        )
    if getattr(request, "length_penalty", None) not in (None, 1.0):
        raise Unsupported(
            "length_penalty is of beam search, which is not available here.", param="length_penalty"
        )
    if getattr(request, "spaces_between_special_tokens", None) is False:
        raise Unsupported(
            "Special tokens are written by the engine's own rule here. Leave the parameter out.",
            param="spaces_between_special_tokens",
        )


def refuse_scores(request: SamplingParameters, capabilities: frozenset[Capability]) -> None:
    """Refuse log probabilities that the engine does not give. Raises `Unsupported`."""
    if getattr(request, "logprobs", None) not in (None, False) and "logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities. Leave the parameter out.",
            param="logprobs",
        )
    asked = getattr(request, "prompt_logprobs", None)
    if asked is not None and "prompt_logprobs" not in capabilities:
        raise Unsupported(
            "The engine of this model gives no log probabilities of the prompt.",
            param="prompt_logprobs",
        )


async def make_chat_plan(
    request: ChatRequest,
    services: Services,
    *,
    size: int,
    owner: str | None = None,
    trace_headers: Mapping[str, str] | None = None,
) -> ChatPlan:
    """Decide everything about an answer. Raises what the client must be told, with the parameter that is at fault."""
    _refuse(request)
    if request.store and services.store is None:
        raise Unsupported(
            'This server stores nothing (store = "none"). Leave store out.', param="store"
        )
    model = services.model(request.model)
    capabilities = model.engine.capabilities
    refuse_scores(request, capabilities)
    toolset = await _toolset(request, services, model, owner)
    turn, origins = turn_of(request, model, toolset)
    sampling = _sampling(request, model)
    return ChatPlan(
        id=new_id("chatcmpl-"),
        created=int(time.time()),
        model=model,
        turn=turn,
        origins=origins,
        max_tokens_param=(
            "max_tokens" if request.max_completion_tokens is None else "max_completion_tokens"
        ),
        toolset=toolset,
        settings=GenerationSettings(
            sampling=sampling,
            cache_salt=request.cache_salt,
            priority=request.priority or 0,
            trace_headers=trace_headers,
            hints=hints_of(request),
            size=size,
            structure=structure_of(request, capabilities),
            places=_places(request),
        ),
        n=request.n or 1,
        style=_style(request, services, toolset, turn),
        to_keep=to_keep(request, sampling, owner),
    )


def _refuse(request: ChatRequest) -> None:
    refuse(request)
    if request.skip_special_tokens is False:
        raise Unsupported(
            "skip_special_tokens is not available in chat: the model's output format decides it.",
            param="skip_special_tokens",
        )
    if request.modalities is not None and "audio" in request.modalities:
        raise Unsupported(
            "Audio output is not available on this server. Ask for text.", param="modalities"
        )
    if (
        request.top_logprobs and not request.logprobs
    ):  # 0 asks for nothing; some clients send it always
        raise InvalidRequest(
            "The 'top_logprobs' parameter is only allowed when 'logprobs' is enabled.",
            param="top_logprobs",
        )
    if request.stream_options is not None and not request.stream:
        raise InvalidRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
            param="stream_options",
        )
    if request.stream and request.prompt_logprobs is not None:
        raise InvalidRequest(
            "Log probabilities of the prompt are not streamed. Leave out stream, or prompt_logprobs.",
            param="prompt_logprobs",
        )
    if request.continue_final_message:
        if request.add_generation_prompt:
            raise InvalidRequest(
                "A message is either continued or a new one begun. Send one of continue_final_message and "
                "add_generation_prompt.",
                param="add_generation_prompt",
            )
        if not isinstance(request.messages[-1], AssistantMessage):
            raise InvalidRequest(
                "There is no final message of the assistant to continue.",
                param="continue_final_message",
            )


def turn_of(
    request: ChatRequest, model: ServedModel, toolset: Toolset
) -> tuple[Turn, Sequence[int]]:
    """The turn of a request, and for each of its items the number of its message."""
    conversation = items_of(request.messages)
    turn = Turn(
        items=conversation.items,
        tools=toolset.definitions,
        tool_choice=toolset.choice,
        parallel_tool_calls=request.parallel_tool_calls is not False and not request.legacy,
        reasoning_effort=request.reasoning_effort,
        text_format=text_format_of(request),
        chat_template=request.chat_template,
        chat_template_kwargs={
            **model.config.chat_template_kwargs,
            **(request.chat_template_kwargs or {}),
        },
        documents=request.documents or (),
        add_generation_prompt=request.add_generation_prompt is not False,
        continue_final_message=bool(request.continue_final_message),
    )
    return turn, conversation.origins


async def _toolset(
    request: ChatRequest, services: Services, model: ServedModel, owner: str | None
) -> Toolset:
    offered = services.offered_tools[model.name]
    listed = await list_without_approval(
        [server for servers in offered.chat_servers for server in servers()]
    )
    tools, by_type = [*(request.tools or ())], {}
    asked = request.web_search_options
    if asked is not None and (found := searching_tools(offered, services.omitted_tools)):
        tools.append(web_search(asked))
        by_type[WEB_SEARCH] = found
    try:
        return build_toolset(
            tools,
            request.tool_choice,
            OfferedTools(by_type=by_type, always=offered.chat),
            listed,
            renderer=model.renderer,
            owner=owner,
        )
    except InvalidRequest as error:
        error.param = _tool_param(error.param, request)
        raise


def _places(request: ChatRequest) -> Places:
    """Where the request says what is to be enforced."""
    found = tool_places(request.tools or ())
    nested = {name: _tool_param(path, request) or path for name, path in found.items()}
    grammar = ".custom.format.definition"
    return Places(
        text=text_place(request),
        tools={
            name: path.replace(grammar, ".custom.format.grammar.definition")
            for name, path in nested.items()
        },
    )


_ENTRY = re.compile(r"tools\[(\d+)\]")
_TOOL = re.compile(r"tools\[(\d+)\]\.(?!type)(.*)")
_ALLOWED = re.compile(r"tool_choice\.tools\[(\d+)\]\.name")


def _tool_param(param: str | None, request: ChatRequest) -> str | None:
    """A parameter of the flat form of tools in Chat Completions' nested form."""
    if param is None:
        return None
    entry = _ENTRY.match(param)
    if entry is not None and int(entry[1]) >= len(request.tools or ()):
        return "web_search_options"  # which is the last of the tools
    if request.legacy:
        return re.sub(r"\Atools\b", "functions", param.replace("tool_choice", "function_call"))
    choice = request.tool_choice
    if (found := _TOOL.fullmatch(param)) is not None:
        kind = type_of((request.tools or ())[int(found[1])])
        return f"tools[{found[1]}].{kind}.{found[2]}"
    if isinstance(choice, AllowedToolsChoice) and (found := _ALLOWED.fullmatch(param)) is not None:
        number = int(found[1])
        kind = choice.tools[number]["type"]
        return f"tool_choice.allowed_tools.tools[{number}].{kind}.name"
    if param == "tool_choice.name" and isinstance(choice, FunctionChoice | CustomChoice):
        return f"tool_choice.{type_of(choice)}.name"
    return param


def _sampling(request: ChatRequest, model: ServedModel) -> Sampling:
    most = request.max_completion_tokens
    return sampling_of(
        request,
        model,
        max_tokens=most if most is not None else request.max_tokens,
        logprobs=(request.top_logprobs or 0) if request.logprobs else None,
        prompt_logprobs=request.prompt_logprobs,
    )


def _style(request: ChatRequest, services: Services, toolset: Toolset, turn: Turn) -> ChatStyle:
    options = request.stream_options
    calls_finish: FinishReason = "function_call" if request.legacy else "tool_calls"
    if isinstance(toolset.choice, NamedTool):
        calls_finish = "stop"  # OpenAI's rule: a call that was asked for by name is no surprise
    last = turn.items[-1] if turn.items else None
    echoed = request.echo and isinstance(last, Message) and last.role == "assistant"
    return ChatStyle(
        reasoning_fields=(
            () if request.include_reasoning is False else services.config.server.chat_reasoning
        ),
        logprobs=bool(request.logprobs),
        legacy=request.legacy,
        calls_finish=calls_finish,
        stream=bool(request.stream),
        includes_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.include_usage and options.continuous_usage_stats),
        token_ids=bool(request.return_token_ids),
        prompt_logprobs=request.prompt_logprobs is not None,
        service_tier=request.service_tier,
        lead=text_of(last.content) if echoed and isinstance(last, Message) else "",
    )


_ITEM = re.compile(r"input\[(\d+)\](.*)\Z")


def in_chats_words(error: GatewayError, plan: ChatPlan) -> GatewayError:
    """`error` with the parameter that it is about named as in Chat Completions."""
    param, origins = error.param, plan.origins
    if param is None:
        return error
    if param == "input":
        error.param = "messages"
    elif param in ("max_output_tokens", "max_tokens"):
        error.param = plan.max_tokens_param
    elif param.startswith("text.format"):
        error.param = plan.settings.places.text
    elif (item := _ITEM.match(param)) is not None and int(item[1]) < len(origins):
        rest = re.sub(r"\A\.output\b", ".content", item[2])
        error.param = f"messages[{origins[int(item[1])]}]{rest}"
    return error
