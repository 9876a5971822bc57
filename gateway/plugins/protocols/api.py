"""Further HTTP APIs for the same models, such as another vendor's.

An API translates its own requests into `GenerationRequest`s and writes its own answers from a parser's deltas. The
gateway does queueing, limits, cancellation, deadlines, shutdown, authentication, metrics and the tool calls that it
runs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from gateway.base.deltas import Delta
from gateway.base.errors import GatewayError, ParamPath
from gateway.plugins.protocols.engine import FinishReason, Sampling
from gateway.plugins.protocols.principals import Principal
from gateway.plugins.protocols.prompt import Turn
from gateway.plugins.protocols.tool_results import ToolResult
from gateway.plugins.protocols.tools import ServerTool
from gateway.wire.common import encode
from gateway.wire.parameters import SharedParameters
from gateway.wire.response import Usage, error_body
from gateway.wire.tools import Tool, ToolChoice

AsgiApp: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
"""An ASGI application for one HTTP request: `app(scope, receive, send)`."""


class GenerationRequest(Struct, frozen=True, kw_only=True):
    """A request for one generated answer, made by an API."""

    model: str | None
    """The model name from the client. None selects the only model, if exactly one is served."""
    turn: Turn
    """The prompt. The configured `chat_template_kwargs` of the model are merged into those of the turn."""
    tools: Sequence[Tool] = ()
    """Tools in the form of the Responses API; they replace the turn's tools. The gateway runs those that it can run.
    MCP tools that require approval are not offered."""
    tool_choice: ToolChoice | None = None
    """The tool choice among `tools`; replaces the turn's tool choice."""
    denied_tools: Collection[tuple[str, str]] = ()
    """MCP tools to hide from the model, as (server label, tool name)."""
    offers_tools: bool = False
    """Whether to offer the gateway tools that every Responses API request has as well."""
    max_uses: Mapping[str, int] = {}
    """Maximum number of calls per tool type (`web_search`). Further calls fail."""
    max_turns: int | None = None
    """Number of generations after which an answer that could continue ends with `Outcome.paused`. If None, exceeding
    the gateway's own limit is an error."""
    owner: str | None = None
    """The request's owner (`RouteRequest.owner`). Tools use this owner's containers and connections."""
    sampling: Sampling = Sampling()
    """Fields that are None are taken from the configuration, then from the model's own recommendation."""
    size: int = 0
    """Size of the request body in bytes. A hint for how long rendering takes."""
    parameters: SharedParameters | None = None
    """The client's parameters of self-hosted engines, for an API whose requests have them. Fields that are set complete
    `sampling`, which takes precedence, and the turn. What an API cannot honour is rejected with `Unsupported`."""
    thinking_budget: int | None = None
    """Maximum number of tokens of reasoning in each generation. Without effect for engines that count their tokens
    themselves. Overridden by `parameters`."""
    cache_salt: str | None = None
    """The client's cache salt. `parameters` overrides it, as well as `priority`."""
    priority: int = 0
    trace_headers: Mapping[str, str] | None = None
    own_path: Callable[[ParamPath], ParamPath] | None = None
    """Converts a path in this request to the path in the client's request that it was made from; empty if there is
    none. Applied to all errors about this request, also while it runs. None: errors keep the Responses API's names."""


class Outcome(Struct, frozen=True, kw_only=True):
    """How a generation ended."""

    reason: FinishReason
    """`stop`, `length` or `content_filter`. A failed generation has no outcome."""
    stop_reason: str | int | None
    """The stop string or token that ended the output, if any."""
    usage: Usage
    context_full: bool
    """Whether the model's context limit ended the output, rather than a limit of the request."""
    paused: bool = False
    """Whether `GenerationRequest.max_turns` ended the answer, after the calls of the last turn."""


class AvailableTool(Struct, frozen=True, kw_only=True):
    """A tool that the gateway can run for an answer."""

    server_label: str
    tool: ServerTool


class AnswerWriter(Protocol):
    """Serializes one answer in an API's own format. Each method returns the bytes to send, which may be empty.

    Methods must be synchronous and fast: `feed` is called for every token. For a non-streaming answer, the
    concatenation of all returned bytes is the body.
    """

    def feed(self, deltas: Sequence[Delta]) -> bytes:
        """Handle further output."""
        ...

    def end(self, held: Sequence[Delta], reason: FinishReason) -> bytes:
        """Handle the end of the output; `held` are its last deltas. A call that is still open was cut off."""
        ...

    def finish(self, outcome: Outcome) -> bytes:
        """Handle the end of the answer. Returns its last bytes."""
        ...

    def fail(self, error: GatewayError) -> bytes:
        """Handle a failure after part of the answer was sent. Called in place of `finish`; returns the last bytes."""
        ...

    def idle(self) -> bytes:
        """Return a keep-alive. Called when nothing was sent for a while."""
        ...


@runtime_checkable
class CallWriter(Protocol):
    """An `AnswerWriter` of answers in which the gateway runs tools (`PreparedAnswer.available_tools`).

    Deltas of such calls arrive like those of any other call. `end` is called after each turn, and `called` for each
    result of that turn afterwards.
    """

    def called(self, result: ToolResult) -> bytes:
        """Handle the result of a call that the gateway ran in the last turn. Results arrive in the order in which the
        calls ended. A call that was cut off is not run."""
        ...


NewWriter: TypeAlias = Callable[[], AnswerWriter]
"""Makes the writer of an answer. Called again if another model than the planned one answers; see
`PreparedAnswer.stream`."""


class PreparedAnswer(Protocol):
    """A checked request, ready to generate: the engine has accepted its prompt. Used once, through one of its methods."""

    @property
    def model(self) -> str:
        """The model's own name, even if the client used an alias. Another model's name when a second writer is made."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """The prompt's length in tokens; 0 if only the engine knows it."""
        ...

    @property
    def available_tools(self) -> Mapping[str, AvailableTool]:
        """The tools that the gateway runs, keyed by the name that the model sees.

        If the gateway runs all tools of the request, it also answers calls of tools that do not exist, for the model to
        try again. A lookup of such a name returns a tool of the server `unknown`.
        """
        ...

    def stream(
        self,
        writer: AnswerWriter | NewWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "text/event-stream; charset=utf-8",
        idle_seconds: float | None = None,
    ) -> AsgiApp:
        """Stream the writer's output as it is produced. `AnswerWriter.idle` is sent after `idle_seconds` of silence.

        If several models may answer the request, and `writer` is a function that makes the writer, another model is
        tried when one fails before its first output. A second writer is then made, and `model`, `prompt_tokens` and
        `available_tools` describe the other model.

        A failure before the first byte is answered by the API's `error`, a later one by the writer's `fail`. If the
        client disconnects, the generation is aborted. Raises `RateLimited` if the model's queue is full.
        """
        ...

    def whole(
        self,
        writer: AnswerWriter | NewWriter,
        *,
        headers: Mapping[str, str] = {},
        content_type: str = "application/json",
    ) -> AsgiApp:
        """Send the writer's whole output as one body. Works otherwise like `stream`."""
        ...


class ListedModel(Struct, frozen=True, kw_only=True):
    """A model that requests can name."""

    name: str
    created: int
    """Unix time at which the model was loaded."""
    max_model_len: int | None
    description: str | None


class Gateway(Protocol):
    """The gateway as seen by an API."""

    def models(self) -> Sequence[ListedModel]:
        """All models, without aliases."""
        ...

    def model(self, name: str) -> ListedModel:
        """The model with that name or alias. Raises `ModelNotFound`."""
        ...

    def tool_types(self, model: str | None) -> Collection[str]:
        """The tool types that the gateway runs for that model, by their names in the Responses API
        (`code_interpreter`)."""
        ...

    async def prepare(self, request: GenerationRequest) -> PreparedAnswer:
        """Render the prompt and let the engine check it.

        Raises a `GatewayError` for an invalid request. Its `param` uses the Responses API's names: `input[i]…` for an
        item of the turn, `max_output_tokens` for the limit, `reasoning.effort`, `text.format`, `tools[i]`,
        `tool_choice`. A tool that cannot be run raises `Unsupported` with the code `unsupported_tool`. An MCP server
        that cannot list its tools raises `InvalidRequest` with `mcp_server_unavailable`.
        """
        ...

    async def count_tokens(self, request: GenerationRequest) -> int:
        """The prompt's length in tokens, by the model's own renderer and tokenizer. Raises like `prepare`.

        An image counts as its placeholder in the text. Raises `Unsupported` if the engine exposes no tokenizer.
        """
        ...

    def seal(self, text: str, owner: str | None, *, model: str | None = None) -> str:
        """Encrypt `text` so that only this server can read it, and only for `owner` (and only for `model`, if given)."""
        ...

    def unseal(self, sealed: str, owner: str | None, *, model: str) -> str | None:
        """Decrypt `sealed` for a request to `model`. Returns None if it is damaged or expired, belongs to another owner
        or model, or was sealed with an unknown key."""
        ...


class RouteRequest(Protocol):
    """An HTTP request to an API's route. Its API key, if one is required, has been checked."""

    @property
    def id(self) -> str:
        """The request id, as sent in the response header `x-request-id`."""
        ...

    @property
    def owner(self) -> str | None:
        """The name of the request's API key; None in anonymous mode."""
        ...

    @property
    def principal(self) -> Principal | None:
        """The sender and what they may use; None in anonymous mode."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The request headers, by lower-case name."""
        ...

    @property
    def query(self) -> Mapping[str, str]: ...

    @property
    def path_parameters(self) -> Mapping[str, str]: ...

    @property
    def trace_headers(self) -> Mapping[str, str] | None:
        """The W3C trace context, to pass on in `GenerationRequest`."""
        ...

    @property
    def gateway(self) -> Gateway: ...

    def take_rank(self, parameters: SharedParameters) -> None:
        """Set `data_parallel_rank` of the request's parameters from the header `X-data-parallel-rank`, if it was sent.
        Raises `InvalidRequest` if it is not a rank."""
        ...

    def note_unknown(self, names: Collection[str]) -> None:
        """Report the request's parameters that have no effect, in the log, the metrics and a header of the answer."""
        ...

    def begin_stream(
        self,
        *,
        fail: Callable[[GatewayError], bytes],
        idle: bytes = b": keep-alive\n\n",
        headers: Mapping[str, str] = {},
        content_type: str = "text/event-stream; charset=utf-8",
        idle_seconds: float | None = None,
    ) -> None:
        """Announce that the answer is a stream. Called before `Gateway.prepare`, which may take long: it waits for a
        model to be loaded, and lists the tools of tool servers. The handler then returns `PreparedAnswer.stream` with
        the same `headers`, `content_type` and `idle_seconds`.

        After `idle_seconds` of silence the answer is begun and `idle` is sent, and `idle` is sent again after each
        further period of silence. With None or 0 this never happens. An error that is raised after the beginning is not
        answered by `Api.error`: the result of `fail` is then the whole stream.
        """
        ...

    async def body(self) -> bytes:
        """The whole body of a JSON request. Raises if it exceeds the server's size or time limit."""
        ...

    def stream(self, limit: int) -> AsyncGenerator[bytes, None]:
        """Stream a body of any type (such as a form with a file), up to `limit` bytes and within the server's time
        limit.

        Read it to its end or close it (`aclosing`). `body` cannot be used afterwards.
        """
        ...


class Reply(Struct, frozen=True, kw_only=True):
    """A complete HTTP response."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"
    headers: Mapping[str, str] = {}

    @classmethod
    def json(cls, value: object, headers: Mapping[str, str] | None = None) -> Reply:
        """`value`, a wire Struct, as JSON."""
        return cls(body=encode(value), headers=headers or {})

    @classmethod
    def error(cls, error: GatewayError) -> Reply:
        """`error` in OpenAI's envelope."""
        return cls(status=error.status, body=error_body(error), headers=error.headers)


class Route(Struct, frozen=True, kw_only=True):
    """One method on one path."""

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    """`/v1/messages`. `{name:str}` matches one segment, `{name:path}` the rest of the path."""
    handle: Callable[[RouteRequest], Awaitable[Reply | AsgiApp]]
    """Handles a request. May raise any `GatewayError`."""
    header: str | None = None
    """A header name in lower case. The route then matches only requests with this header, and takes precedence over the
    gateway's own route."""
    public: bool = False
    """Whether the route needs no API key, such as a page that asks its reader for one. Only for GET, on a path without
    parameters. The request then has no owner, even if a key is sent."""
    counted: bool = False
    """Whether a request, while it is handled, counts as a request of its key for the limits `requests_per_minute` and
    `max_concurrent_requests`. Requests that are generated through `RouteRequest.gateway` count in any case."""
    takes: Any = None
    """The type of the body, for `/openapi.json`: any type that msgspec can describe. The docstring of `handle` is the
    description there."""
    answers: Any = None
    """The type of the JSON answer, for `/openapi.json`."""
    streams: Any = None
    """The type of the events that are sent instead if the request has `stream`; for `/openapi.json`."""


class Api(Protocol):
    """A further HTTP API. Opened once at start-up."""

    @property
    def routes(self) -> Sequence[Route]:
        """The API's routes. Called once, after the API has been opened."""
        ...

    def error(self, error: GatewayError, request_id: str) -> Reply:
        """Format `error` for this API: an error of a handler, a failed authentication, or an unknown path below the
        API's own."""
        ...
