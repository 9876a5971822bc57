"""Prompts: a turn of the conversation and the prompt rendered from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.base.constraints import Constraint
from gateway.plugins.protocols.media import Media, MediaKind, MediaSource, PlacedMedia
from gateway.wire.content import InputImage
from gateway.wire.items import Item


class TokensPrompt(Struct, frozen=True, kw_only=True):
    """A prompt as the engine's own token ids."""

    token_ids: Sequence[int]
    media: Sequence[PlacedMedia] = ()
    """Images and sounds, in the order of the prompt. Only for engines with the capability `images` or `audio`."""


class ChatPrompt(Struct, frozen=True, kw_only=True):
    """A prompt for message-level engines: messages and tools in the shapes of the API that the engine speaks, which its
    renderer knows. For the contract kit these are Chat Completions' shapes."""

    messages: Sequence[dict[str, Any]]
    tools: Sequence[dict[str, Any]] = ()
    tool_choice: Any = None
    extra: dict[str, Any] = {}
    """Further request fields that the turn implies, by that API's names."""


Prompt: TypeAlias = TokensPrompt | ChatPrompt


class ToolDefinition(Struct, frozen=True, kw_only=True):
    """A tool in the form that the model sees, regardless of who runs it."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """JSON schema of the arguments object. None: the tool takes no arguments."""
    strict: bool | None = None
    """Whether arguments must conform to the schema. None: the client did not set it, which counts as no."""
    kind: Literal["function", "custom", "builtin"] = "function"
    """custom: free text, presented to function-calling models as one string parameter `input`. builtin: a name that the
    model family was trained with (Harmony's `python`, `browser`, `container`)."""
    grammar: Constraint | None = None
    """For custom tools: the constraint on the free text."""
    namespace: str | None = None


class NamedTool(Struct, frozen=True):
    """A `tool_choice` that names one tool."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


class TextFormat(Struct, frozen=True, kw_only=True):
    """The required format of the final text (`text.format`, `response_format`)."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool = False
    description: str | None = None


class Source(Struct, frozen=True, kw_only=True):
    """The source that the citation marks `【<cursor>†L<line>-L<line>】` of one cursor refer to."""

    cursor: int
    url: str
    title: str = ""
    lines: tuple[int, int] | None = None
    """First and last line that come from this source, if the cursor's lines have several sources; None: all lines."""


class FileSource(Struct, frozen=True, kw_only=True):
    """The uploaded file that the citation mark `【<mark>】`, or `【<mark>†…】`, refers to. A mark is two numbers with a
    colon (`4:0`), by convention the numbers of a call and of one of its results."""

    mark: str
    file_id: str
    filename: str = ""


class ContainerFileSource(Struct, frozen=True, kw_only=True):
    """A file in a container, which a `sandbox:<path>` link in the model's output refers to."""

    path: str
    """Absolute path in the container: `/mnt/data/plot.png`."""
    container_id: str
    file_id: str


class CallRecord(Struct, frozen=True, kw_only=True):
    """A call that the gateway has run, in the form that the model saw. The call's item may show less, or another name.

    Also stores the encrypted form of a reasoning item (`of_reasoning`), which has no name, arguments or result.
    """

    name: str
    """The name that the model saw."""
    arguments: str
    """The arguments as the model wrote them."""
    result: str
    """The result that the model read."""
    sources: Sequence[Source] = ()
    """Sources that the result lets the model cite."""
    files: Sequence[FileSource] = ()
    """Uploaded files that the result lets the model cite."""
    container_files: Sequence[ContainerFileSource] = ()
    """Files in containers that the model may link to."""
    images: Sequence[InputImage] = ()
    """Images of the result that a model with the capability `images` sees, as `data:` URLs."""
    hidden: dict[str, Any] = {}
    """Fields of the item that are shown only if the request includes them (`outputs`, `results`, `sources`), and the
    engine's original `encrypted_content` of reasoning, which is never shown in this form."""

    @classmethod
    def of_reasoning(cls, encrypted: str) -> CallRecord:
        """The record of a reasoning item that an engine encrypted."""
        return cls(name="", arguments="", result="", hidden={"encrypted_content": encrypted})

    @property
    def encrypted_reasoning(self) -> str | None:
        """The encrypted form of a reasoning item, if this is its record."""
        found = self.hidden.get("encrypted_content")
        return found if isinstance(found, str) else None


class Turn(Struct, frozen=True, kw_only=True):
    """The complete input of one generation. Rendering the same turn twice gives the same prompt."""

    items: Sequence[Item]
    """The conversation so far, oldest first; never changed in place."""
    results: Mapping[str, CallRecord] = {}
    """Records of calls by item id: calls among `items` that the gateway ran and whose items do not show what the model
    read or saw. For engines with the capability `encrypted_reasoning`, also reasoning that the engine encrypted."""
    instructions: str | None = None
    """Instructions of this request only."""
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
    media: Mapping[MediaSource, Media] | None = None
    """The images and sounds of `items`, by the source of their parts (`media_source`). None if the model takes none, or
    if there are none."""
    cache_scope: str | None = None
    """Renderers may keep parts of a prompt for later turns with the same value. None: nothing may be kept."""
    thinking_budget: int | None = None
    """Maximum number of tokens of reasoning, for families whose prompt names it."""
    today: str | None = None
    """ISO date for families whose prompt names one; None: omit the date. See `DatedRenderer`."""


Tail: TypeAlias = Literal["text", "reasoning", "unknown"]
"""Where the output starts: in the answer's text, inside reasoning, or at the parser's default."""


class RenderedPrompt(Struct, frozen=True, kw_only=True):
    """A rendered turn."""

    prompt: Prompt
    tail: Tail = "unknown"
    prefill: str = ""
    """Output text that the prompt already contains. Fed to the parser first, and not counted as output."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()


class PromptRenderer(Protocol):
    """Renders prompts for one model family. Stateless and thread-safe."""

    def render(self, turn: Turn) -> RenderedPrompt:
        """Render `turn`. Raises `InvalidRequest`, naming the parameter, for what the family cannot express."""
        ...


@runtime_checkable
class IsolatingRenderer(Protocol):
    """A `PromptRenderer` that accepts chat templates from requests."""

    async def render_isolated(self, turn: Turn) -> RenderedPrompt:
        """Like `render`, for a turn with a `chat_template`. The template is evaluated in a separate process that can be
        killed."""
        ...


@runtime_checkable
class DatedRenderer(Protocol):
    """A `PromptRenderer` whose prompts may name a date."""

    def date_at(self, time: float) -> str | None:
        """The value of `Turn.today` for a request at this Unix time: an ISO date. Called once for each answer. None: no
        date."""
        ...


@runtime_checkable
class MediaRenderer(Protocol):
    """A `PromptRenderer` that places images or sounds in prompts of tokens."""

    @property
    def media_kinds(self) -> frozenset[MediaKind]:
        """The kinds of media that it places. `Turn.media` contains the kinds that the engine also takes."""
        ...


@runtime_checkable
class BuiltinToolRenderer(Protocol):
    """A `PromptRenderer` for models that were trained with built-in tools."""

    def knows_tool(self, name: str) -> bool:
        """Whether the models were trained with a tool of this name."""
        ...
