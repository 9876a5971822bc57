"""Fronts: further APIs in front of the same models, such as another vendor's.

A front translates its own request into an `Ask`, and writes its own answer from a parser's deltas. Queueing, limits,
cancellation, deadlines, shutdown, keys, metrics and the running of the gateway's tools are the gateway's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.deltas import Delta
from gateway.errors import GatewayError
from gateway.protocols.engine import FinishReason, Sampling
from gateway.protocols.prompt import Turn
from gateway.protocols.tools import ServedTool, ToolResult
from gateway.wire.response import Usage
from gateway.wire.tools import Tool, ToolChoice

AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application for one HTTP request: `app(scope, receive, send)`."""


class Ask(Struct, frozen=True, kw_only=True):
    """One answer that a front wants of a model."""

    model: str | None
    """As the client names it; None: the only one, where only one is served."""
    turn: Turn
    """The model's configured `chat_template_kwargs` are added to its own."""
    tools: Sequence[Tool] = ()
    """Tools as the Responses API has them, in place of the turn's: the gateway runs those that it runs there. MCP servers
    whose calls are approved first are offered without the tools of which that is so."""
    tool_choice: ToolChoice | None = None
    """Of these `tools`, likewise."""
    denied_tools: Collection[tuple[str, str]] = ()
    """Tools of MCP servers that the model is not told of, by server label and name."""
    offers_tools: bool = False
    """Whether the model is also told of those tools of the gateway's that every request of the Responses API has."""
    max_uses: Mapping[str, int] = {}
    """How often the tools of a type (`web_search`) may be called at most; further calls fail."""
    max_turns: int | None = None
    """After so many generations an answer that could go on is `Outcome.paused`; None: past the gateway's limit, it fails."""
    owner: str | None = None
    """`RouteRequest.owner`: whose containers and connections the tools use."""
    sampling: Sampling = Sampling()
    """What is None is taken from the configuration, then from the model's own recommendation."""
    size: int = 0
    """Bytes of the request's body: a hint of how long rendering takes."""
    cache_salt: str | None = None
    priority: int = 0
    trace_headers: Mapping[str, str] | None = None


class Outcome(Struct, frozen=True, kw_only=True):
    """How a generation ended."""

    reason: FinishReason
    """`stop`, `length` or `content_filter`: what fails never ends."""
    stop_reason: str | int | None
    """The stop string or token that ended it, where one did."""
    usage: Usage
    context_full: bool
    """Whether it was the model's context that ended it, and not a limit of the request."""
    paused: bool = False
    """Whether `Ask.max_turns` ended it, after the calls of its last turn."""


class OfferedTool(Struct, frozen=True, kw_only=True):
    """A tool that the gateway runs in an answer."""

    server_label: str
    tool: ServedTool


class AnswerWriter(Protocol):
    """Writes one answer, in the form in which a front sends it. Each method returns what is to be sent, perhaps nothing.

    Synchronous and quick: `feed` is called for every token. For a plain answer all that is returned becomes one body.
    """

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        """More of the output."""
        ...

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        """The output has ended, with `held` as its last deltas. A call that is open now was cut off."""
        ...

    def finish(self, outcome: Outcome) -> bytes:
        """All is known. The last that is sent."""
        ...

    def fail(self, error: GatewayError) -> bytes:
        """The answer failed after something of it was sent. The last that is sent, in place of `finish`."""
        ...

    def idle(self) -> bytes:
        """Nothing was sent for a while: what keeps the connection from being given up."""
        ...


@runtime_checkable
class CallWriter(Protocol):
    """An `AnswerWriter` of answers in which the gateway runs tools (`Answer.served`).

    The deltas of their calls come like those of any other; `end` comes after each turn, and results after that.
    """

    def called(self, result: ToolResult) -> bytes:
        """The next of the served calls of the last turn has answered. They answer in the order in which they ended; one that
        was cut off is not run."""
        ...


class Answer(Protocol):
    """An answer that can be made: the engine has looked at its prompt. Used once, by one of its methods."""

    @property
    def model(self) -> str:
        """The model's own name, where the client may have used an alias."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """The prompt's length; 0 where only the engine knows."""
        ...

    @property
    def served(self) -> Mapping[str, OfferedTool]:
        """The tools that the gateway runs, by the names that the model is told."""
        ...

    def stream(
        self,
        writer: AnswerWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "text/event-stream; charset=utf-8",
        idle_seconds: float | None = None,
    ) -> AsgiApp:
        """Send what the writer gives as it comes; `idle_seconds` of silence, and its `idle` is sent.

        What fails before anything was sent is answered by the front's `error`, later by the writer's `fail`. A client
        that leaves aborts the generation. Raises `RateLimited` where the model's queue is full.
        """
        ...

    def whole(
        self,
        writer: AnswerWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "application/json",
    ) -> AsgiApp:
        """Send all that the writer gave as one body. Otherwise as `stream`."""
        ...


class ListedModel(Struct, frozen=True, kw_only=True):
    """A model that requests may name."""

    name: str
    created: int
    """Unix time at which it was opened."""
    max_model_len: int | None
    description: str | None


class Gateway(Protocol):
    """What a front may use of the gateway."""

    def models(self) -> Sequence[ListedModel]:
        """All models, without their aliases."""
        ...

    def model(self, name: str) -> ListedModel:
        """The model of that name or alias; raises `ModelNotFound`."""
        ...

    def tool_types(self, model: str | None) -> Collection[str]:
        """The types of tools that the gateway runs for that model, as the Responses API calls them (`code_interpreter`)."""
        ...

    async def prepare(self, ask: Ask) -> Answer:
        """Make the prompt and let the engine look at it.

        Raises what the client must be told, with `param` in the Responses API's words: `input[i]…` is an item of the
        turn, `max_output_tokens` the limit, `reasoning.effort`, `text.format`, `tools[i]`, `tool_choice`. A tool that nobody
        runs here is `Unsupported` with the code `unsupported_tool`, an MCP server that does not list its tools
        `InvalidRequest` with `mcp_server_unavailable`.
        """
        ...

    async def count_tokens(self, ask: Ask) -> int:
        """The length of the prompt of `ask`, by the model's own renderer and tokenizer. Raises as `prepare` does.

        Images count as what stands for them in the text. Raises `Unsupported` for engines that keep tokens to themselves.
        """
        ...

    def seal(self, text: str, owner: str | None) -> str:
        """`text` so that only this server can read it, and only for `owner`."""
        ...

    def unseal(self, sealed: str, owner: str | None) -> str | None:
        """The text again; None for what is damaged, another's, or sealed with an unknown key."""
        ...

    def unknown_parameters(self, path: str) -> None:
        """Count a request to `path` with parameters that nobody knows."""
        ...


class RouteRequest(Protocol):
    """An HTTP request on a front's route. Its API key, if the server asks for one, is already checked."""

    @property
    def id(self) -> str:
        """As in the header `x-request-id` of the answer."""
        ...

    @property
    def owner(self) -> str | None:
        """The name of its API key; None in anonymous mode."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """By names in lower case."""
        ...

    @property
    def query(self) -> Mapping[str, str]: ...

    @property
    def path_parameters(self) -> Mapping[str, str]: ...

    @property
    def trace_headers(self) -> Mapping[str, str] | None:
        """The W3C trace context, for `Ask`."""
        ...

    @property
    def gateway(self) -> Gateway: ...

    async def body(self) -> bytes:
        """The whole body of a JSON request, within the server's limits of size and time; raises where it is not."""
        ...

    def stream(self, limit: int) -> AsyncGenerator[bytes, None]:
        """A body of any type (a form with a file) as it arrives: at most `limit` bytes, within the server's limit of time.

        Read it to its end or close it (`aclosing`); `body` cannot be asked for then.
        """
        ...


class Reply(Struct, frozen=True, kw_only=True):
    """A whole HTTP answer."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}


class Route(Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """`/v1/messages`; `{name:str}` stands for one segment, `{name:path}` for all that follow."""
    handle: Callable[[RouteRequest], Awaitable[Reply | AsgiApp]]
    """May raise any `GatewayError`."""
    header: str | None = None
    """In lower case: the route holds for requests with this header only, and goes before one of the gateway's own."""


class Front(Protocol):
    """A further API. Opened once at start-up."""

    @property
    def routes(self) -> Sequence[Route]:
        """Asked once, when the front has been opened."""
        ...

    def error(self, error: GatewayError, request_id: str) -> Reply:
        """`error` in this API's form: whatever its handlers raise, a wrong key, an unknown path below its own."""
        ...
