"""Prompts: a turn of the conversation, and what a renderer makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.constraints import Constraint
from gateway.wire.items import Item


class TokensPrompt(Struct, frozen=True, kw_only=True):
    """A prompt as the engine's own token ids."""

    token_ids: Sequence[int]


class ChatPrompt(Struct, frozen=True, kw_only=True):
    """A prompt for engines that work at message level: messages and tools in the shapes of the API that the engine speaks,
    which its renderer knows; Chat Completions' for the contract kit."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] = ()
    tool_choice: Any = None
    extra: dict[str, Any] = {}
    """Further fields that say what the turn says, under that API's names."""


Prompt: TypeAlias = TokensPrompt | ChatPrompt


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it, whoever runs it."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON schema of the arguments' object; None means: no arguments."""
    strict: bool = False
    kind: Literal["function", "custom", "builtin"] = "function"
    """custom: free text, told to models of function style as one string parameter `input`. builtin: a name that the
    model family knows by itself (Harmony's `python`, `browser`, `container`)."""
    grammar: Constraint | None = None
    """custom: what the free text must look like."""
    namespace: str | None = None


class NamedTool(Struct, frozen=True):
    """A `tool_choice` that names one tool."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


class TextFormat(Struct, frozen=True, kw_only=True):
    """What the final text must be (`text.format`, `response_format`)."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool = False
    description: str | None = None


class Source(Struct, frozen=True, kw_only=True):
    """What the citation marks `【<cursor>†L<line>-L<line>】` of one cursor stand for."""

    cursor: int
    url: str
    title: str = ""
    lines: tuple[int, int] | None = None
    """The first and the last line that are of this source, where the cursor's lines are of several; None: all."""


class FileSource(Struct, frozen=True, kw_only=True):
    """What the citation mark `【<mark>】`, or `【<mark>†…】`, stands for: two numbers with a colon (`4:0`), by custom those
    of a call and of one of its results."""

    mark: str
    file_id: str
    filename: str = ""


class ContainerFileSource(Struct, frozen=True, kw_only=True):
    """A file in a container, which a link of the model's to `sandbox:<path>` stands for."""

    path: str
    """`/mnt/data/plot.png`."""
    container_id: str
    file_id: str


class CallRecord(Struct, frozen=True, kw_only=True):
    """A call that the gateway has run, as the model knows it. Its item may show less, and be called otherwise."""

    name: str
    """As the model was told."""
    arguments: str
    """As the model wrote them."""
    result: str
    """What the model read."""
    sources: Sequence[Source] = ()
    """What the result lets the model cite."""
    files: Sequence[FileSource] = ()
    """Likewise, of uploaded files."""
    container_files: Sequence[ContainerFileSource] = ()
    """Likewise, of files in containers."""
    hidden: dict[str, Any] = {}
    """What its item would show where the request includes it, and does not: `outputs`, `results`, `sources`."""


class Turn(Struct, frozen=True, kw_only=True):
    """All that one call of the model depends on. Rendering the same turn twice gives the same prompt."""

    items: Sequence[Item]
    """The conversation so far, oldest first; never changed in place."""
    results: Mapping[str, CallRecord] = {}
    """By item id: the calls among `items` that the gateway has run and whose items do not show what the model read."""
    instructions: str | None = None
    """Of this request alone."""
    tools: Sequence[ToolDefinition] = ()
    tool_choice: ToolChoice = "auto"
    parallel_tool_calls: bool = True
    reasoning_effort: str | None = None
    text_format: TextFormat = TextFormat()
    chat_template: str | None = None
    chat_template_kwargs: Mapping[str, Any] = {}
    documents: Sequence[dict[str, Any]] = ()
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    today: str | None = None
    """ISO date, for families whose prompt names one; None: say no date."""


Tail: TypeAlias = Literal["text", "reasoning", "unknown"]
"""Where the output starts: in the answer's text, inside reasoning, or as the parser's own default has it."""


class RenderedPrompt(Struct, frozen=True, kw_only=True):
    """What a renderer makes of a turn."""

    prompt: Prompt
    tail: Tail = "unknown"
    prefill: str = ""
    """The beginning of the output where it is part of the prompt; fed to the parser before the engine's first output,
    and not counted."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    multi_modal: Mapping[str, Any] | None = None


class PromptRenderer(Protocol):
    """Everything that depends on how a model family is prompted. Stateless, thread-safe."""

    def render(self, turn: Turn) -> RenderedPrompt:
        """The prompt of `turn`. Raises `InvalidRequest` for what the family cannot express, naming the parameter."""
        ...


@runtime_checkable
class KnowingRenderer(Protocol):
    """A `PromptRenderer` of models that know some tools by themselves."""

    def knows_tool(self, name: str) -> bool:
        """Whether the models were trained with a tool of this name."""
        ...
