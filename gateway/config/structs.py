"""What `gateway.toml` says, as Structs that are decoded once at start-up.

The docstring under each field is what `docs/configuration.md` says of the key. `gateway.config.loading` reads the file,
the environment and the command line into a `Config`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, field

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]


class ApiKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.api_keys]]`: a key that requests may come with; `gateway key NAME` makes one."""

    name: Annotated[str, Meta(min_length=1)]
    """Whose it is: what is stored with it is seen with keys of the same name only."""
    sha256: str
    """The key's SHA-256, in hexadecimal: the key itself is not written down."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise ValueError("sha256 is 64 hexadecimal digits, as `gateway key NAME` prints them.")


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: the endpoint itself."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """The address to listen on; `0.0.0.0` for all of IPv4, `::` for all of IPv6."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """The TCP port; 0 takes any free one."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Server processes. Each opens every model and store for itself, so more than 1 is for engines and stores that live
    elsewhere."""
    store: Annotated[str, Meta(min_length=1)] = "memory"
    """The store that responses are kept in, by name; `none` keeps nothing."""
    lease_seconds: Annotated[float, Meta(ge=1)] = 15.0
    """Seconds after which a background response whose process has died is ended by another that shares its store."""
    rerun_lost: bool = False
    """Whether such a response is run by the other instead, if nobody has seen any of its output. Requests are stored with their
    responses for that, but for those with credentials of MCP servers."""
    max_body_bytes: Positive = 32 * 1024 * 1024
    """The largest request body, in bytes; a larger one is refused with 413."""
    max_embedding_inputs: Positive = 2048
    """How many texts one request to `/v1/embeddings` may have."""
    body_timeout: Seconds = 60.0
    """Seconds in which a request's body must have arrived."""
    request_timeout: Seconds = 3600.0
    """Seconds for one whole response, tool calls included; past it the response fails."""
    grace_period: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds that running responses get at shutdown before they are ended."""
    keep_alive: Seconds = 5.0
    """Seconds after which an idle connection is closed."""
    ping_interval: Annotated[float, Meta(ge=0)] = 15.0
    """Seconds of silence in a stream after which a comment is sent, so that proxies keep it open; 0 sends none."""
    log_level: LogLevel = "info"
    """`debug`, `info`, `warning` or `error`."""
    access_log: bool = False
    """Whether each request is logged with its status."""
    api_keys: list[ApiKey] = []
    """The keys of `[[server.api_keys]]`; without any, everybody who reaches the server may use it."""
    allow_anonymous: bool = False
    """Whether a server without keys may listen on an address that other machines reach."""
    reasoning_keys: list[str] = []
    """Fernet keys for `reasoning.encrypted_content`: the first seals, all open. Without any, what a process seals is lost
    with it."""
    cors_allow_origins: list[str] = []
    """Origins whose pages may call the server from a browser; `["*"]` is any."""
    chat_reasoning: list[Literal["reasoning_content", "reasoning"]] = field(
        default_factory=lambda: ["reasoning_content", "reasoning"]
    )
    """Under which names chat completions show reasoning; `[]` shows none."""
    chat_tools: list[str] = []
    """Tool servers, by their names in `[tools.<name>]`, that chat completions may use: their calls are run out of the
    client's sight. `mcp` is all MCP servers with `offer`, `mcp.<label>` is one."""
    routes: list[str] | None = None
    """Further APIs to serve, by name; `[]` is none. Left out, `messages` (the Anthropic Messages API), if it is
    installed, and those that selected tools come with, such as the files and vector stores of `file_search`."""
    unavailable_tools: Literal["refuse", "omit"] = "refuse"
    """What comes of a tool that a request asks the server to run and that is not here, such as a web search without a plugin
    for it: `refuse` answers 400; `omit` leaves it out, so that the model is not told of it."""
    metrics: bool = True
    """Whether `/metrics` shows Prometheus metrics."""

    def __post_init__(self) -> None:
        owners: dict[str, str] = {}
        for key in self.api_keys:
            owner = owners.setdefault(key.sha256.lower(), key.name)
            if owner != key.name:
                raise ValueError(
                    f"{owner!r} and {key.name!r} have the same API key; `gateway key NAME` makes one for each."
                )


class SamplingDefaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<name>.sampling]`: used where a request is silent; a key left out is left to the engine."""

    temperature: Annotated[float, Meta(ge=0)] | None = None
    """0 is greedy."""
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """The probability mass that tokens are sampled from."""
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    """How many of the likeliest tokens are sampled from; 0 and -1 are all of them."""
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The least probability, relative to the likeliest token's."""
    presence_penalty: Penalty | None = None
    """From -2 to 2."""
    frequency_penalty: Penalty | None = None
    """From -2 to 2."""
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    """1 is none."""
    max_tokens: Positive | None = None
    """The most tokens of one generation."""
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    """The fewest tokens of one generation."""
    seed: int | None = None
    """Makes sampling repeatable, as far as the engine can."""


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<name>]`: a model to serve under that name."""

    engine: str | None = None
    """The engine's name; left out, it is chosen by what `path` is."""
    path: Annotated[str, Meta(min_length=1)] | None = None
    """A file, a folder or a hub id; left out, the engine's own model. A relative path is looked for beside the
    configuration file first."""
    renderer: str | None = None
    """How prompts are written, by name; left out, it is chosen by the model's metadata."""
    parser: str | None = None
    """How output is read, by name; left out, it is chosen by the model's metadata."""
    reasoning: str | None = None
    """The format of reasoning alone, for a model that mixes families; not together with `parser`."""
    tools: str | None = None
    """The format of tool calls alone, for a model that mixes families; not together with `parser`."""
    reasoning_summary: Literal["full", "none"] = "full"
    """What a request that asks for a summary of the reasoning is told as one: `full` is the whole reasoning, for no summary
    is made; `none` is nothing."""
    allowed_tools: list[Annotated[str, Meta(min_length=1)]] | None = None
    """Tool servers that this model may use, by their names in `[tools.<name>]`; left out, all, and `[]` is none."""
    aliases: list[Annotated[str, Meta(min_length=1)]] = []
    """Further names that requests may use."""
    description: str | None = None
    """One line for the list of models."""
    max_model_len: Positive | None = None
    """The most tokens of prompt and output together; left out, what the model allows."""
    max_running: Positive = 256
    """Requests that run at once."""
    max_waiting: Annotated[int, Meta(ge=0)] = 1024
    """Requests that wait for their turn; more are refused with 429."""
    sampling: SamplingDefaults = SamplingDefaults()
    """The table `[models.<name>.sampling]`, below."""
    chat_template: Annotated[str, Meta(min_length=1)] | None = None
    """A Jinja chat template instead of the model's own: a file, or the text itself."""
    chat_template_kwargs: dict[str, Any] = {}
    """Variables for the chat template; those of a request come before them."""
    trust_request_chat_template: bool = False
    """Whether a request may bring a chat template of its own."""
    options: dict[str, dict[str, Any]] = {}
    """Tables for the plugins of this model: `[models.<name>.llamacpp]` is short for `[models.<name>.options.llamacpp]`.
    """


class PluginsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[plugins]`: which installed plugins may load, by the names of their entry points."""

    allow: list[str] | None = None
    """Only these load; left out, all."""
    disable: list[str] = []
    """These do not load."""


class Config(Struct, frozen=True, kw_only=True):
    """A whole configuration."""

    server: ServerConfig = ServerConfig()
    models: dict[str, ModelConfig]
    tools: dict[str, dict[str, Any]] = {}
    """`[tools.<name>]` selects the tool server of that name, and is its configuration."""
    stores: dict[str, dict[str, Any]] = {}
    """`[stores.<name>]` is the configuration of the store of that name, if `server.store` selects it."""
    routes: dict[str, dict[str, Any]] = {}
    """`[routes.<name>]` is the configuration of the further API of that name, if `server.routes` selects it."""
    resources: dict[str, dict[str, Any]] = {}
    """`[resources.<name>]` is the configuration of the resource of that name, if a selected tool or front needs it."""
    plugins: PluginsConfig = PluginsConfig()
    source: str = "the built-in configuration"
    """Where it was read from, for messages."""
