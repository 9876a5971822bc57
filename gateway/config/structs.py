"""The configuration in `gateway.toml` as Structs, decoded once at start-up.

The docstring under each field is the key's description in `docs/configuration.md`. `gateway.config.loading` reads the
file, the environment and the command line into a `Config`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from ipaddress import ip_address
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from msgspec import Meta, Struct, field

from gateway.config.hosts import AllowedHosts, TrustedProxies, is_loopback
from gateway.config.prompts import PromptConfig
from gateway.config.tables import KeyPath

Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(gt=0)]
Penalty: TypeAlias = Annotated[float, Meta(ge=-2, le=2)]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
EngineProcess: TypeAlias = Literal["server", "own"]
EngineParameter: TypeAlias = Literal[
    "vllm_xargs", "data_parallel_rank", "kv_transfer_params", "mm_processor_kwargs"
]
LogFormat: TypeAlias = Literal["text", "json"]

LEAST_PROCESS_TIMEOUT = 10.0
"""Minimum of `worker_timeout` and `engine_process_timeout` in seconds: twice the time for which the watching process
may itself be stopped without noticing it."""


class ApiKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[server.api_keys]]`: an accepted API key; `gateway key NAME` creates one."""

    name: Annotated[str, Meta(min_length=1)]
    """The owner's name. Stored data is visible only to keys with the same name."""
    sha256: str
    """SHA-256 of the key, in hexadecimal. The key itself is not stored."""
    admin: bool = False
    """Whether the key may change what the server serves (load, unload and delete models and adapters), and read the usage
    of all keys."""
    models: list[Annotated[str, Meta(min_length=1)]] | None = None
    """Names of the models that the key may use; `*` stands for any characters. Default: all."""
    tools: list[Annotated[str, Meta(min_length=1)]] | None = None
    """Tool servers that the key may use, by their names in `[tools.<name>]`. Default: all; `[]` for none."""
    requests_per_minute: Positive | None = None
    """Maximum number of requests per minute: those to models, and others that cost work ([keys.md](keys.md)). Further ones are
    rejected with 429. Limits hold for all keys of the same name together."""
    tokens_per_minute: Positive | None = None
    """Maximum number of tokens per minute, input and output together. A request counts its prompt and its `max_tokens` when it
    begins, and what it has used when it ends."""
    tokens_per_day: Positive | None = None
    """Maximum number of tokens per day (UTC)."""
    max_concurrent_requests: Positive | None = None
    """Maximum number of requests that run or wait at the same time."""
    priority: int = 0
    """Requests of keys with a lower number are served first if requests wait."""
    weight: Annotated[float, Meta(gt=0, le=1000)] = 1.0
    """The key's share of a model if requests wait, relative to other keys of the same priority."""
    expires: datetime | None = None
    """When the key expires, such as `2030-01-31T00:00:00Z`. Without an offset, the time is UTC. Default: never."""

    key_hints: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("key", "api_key", "value", "token", "secret", "hash"),
        "keys are not written here, but their SHA-256: `gateway key NAME` makes a key and prints the table with its sha256",
    )

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", self.sha256):
            raise ValueError("sha256 is 64 hexadecimal digits, as `gateway key NAME` prints them.")


class SchemaLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server.schemas]`: limits on the schemas, patterns and grammars in requests. A request that exceeds one is
    rejected with 400."""

    max_bytes: Positive = 2_000_000
    """Maximum total size of all schemas, patterns and grammars of a request, as JSON."""
    max_depth: Annotated[int, Meta(ge=1, le=100)] = 64
    """Maximum nesting depth of objects and arrays in one schema."""
    max_properties: Positive = 5000
    """Maximum number of properties of one schema, including those of nested objects."""
    max_enum_values: Positive = 5000
    """Maximum total number of enumeration values in one schema; also of the options of a choice."""
    max_alternatives: Positive = 1000
    """Maximum total number of members of `anyOf`, `oneOf` and `allOf` in one schema."""
    max_pattern_bytes: Positive = 8192
    """Maximum total size of the patterns of one schema, and of one regular expression."""
    max_grammar_bytes: Positive = 100_000
    """Maximum size of one grammar."""
    compile_seconds: Seconds = 10.0
    """Seconds that an engine may take to compile the constraints of one request."""


class ServerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[server]`: the endpoint itself."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    """The address to listen on; `0.0.0.0` for all IPv4 addresses, `::` for all IPv6 addresses. A name is listened on at all of its
    addresses, as `localhost` at `127.0.0.1` and `::1`."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8000
    """The TCP port; 0 selects a free one."""
    unix_socket: Annotated[str, Meta(min_length=1)] | None = None
    """Path of a Unix socket to listen on, in place of `host` and `port`. API keys are not required then."""
    unix_socket_mode: Annotated[
        str, Meta(pattern="^0?[0-7]{3}$", extra={"wanted": 'three octal digits, such as "660"'})
    ] = "660"
    """Permissions of the Unix socket, in octal: who may write to it may connect."""
    tls_certificate: str | None = None
    """File with the server's certificate and its chain, in PEM. The server then speaks HTTPS only. Where it, the key
    or `tls_client_ca` is renewed, new connections use it within two seconds, without a restart."""
    tls_key: str | None = None
    """File with the certificate's private key, in PEM, if it is not in `tls_certificate`."""
    tls_client_ca: str | None = None
    """File with the authorities that clients' certificates must come from, in PEM. Without it, clients need no
    certificate."""
    workers: Annotated[int, Meta(ge=1, le=256)] = 1
    """Number of server processes. They share the engines, each of which runs in one process of its own (see `process` of a
    model), and a store that is not `memory`."""
    worker_timeout: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds for which a worker of several may do nothing, not even answer `/health`, because its process was stopped or hangs.
    It is then killed, and another is started; at least 10, and 0 is never. While it opens an engine itself (`process = "server"`), it may take any time."""
    engine_process_timeout: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds for which the event loop of an engine's process (`process = "own"`, or several workers) may not run, because the process was
    stopped or hangs. It is then killed and started again, and its requests fail with 503; at least 10, and 0 is never. While it opens
    or closes the engine it may take any time. Long steps of an engine in threads or processes of its own do not count."""
    store: Annotated[str, Meta(min_length=1)] = "memory"
    """Name of the store for responses; `none` stores nothing. Default: the one that has a table `[stores.<name>]`; without one,
    `sqlite` if there is a configuration file and that store's package is installed, otherwise `memory`."""
    lease_seconds: Annotated[float, Meta(ge=1)] = 15.0
    """Seconds after which a background response whose process has died is ended by another process with the same store.
    """
    store_wait: Annotated[float, Meta(ge=0)] = 60.0
    """Seconds for which the stream of a background response waits for a store that is away, before it ends with an event
    `error`. The response can be retrieved or followed again later."""
    rerun_lost: bool = False
    """Whether such a response is run again instead, if none of its output was visible. Requests are then stored with
    their responses, except those that contain credentials of MCP servers."""
    max_body_bytes: Positive = 32 * 1024 * 1024
    """Maximum size of a request body in bytes, also when it is decompressed. Larger ones are rejected with 413."""
    max_websocket_bytes: Positive = 64 * 1024 * 1024
    """Maximum number of bytes that one WebSocket connection may hold: its queued and running requests, and its
    histories that are not stored. Beyond it, requests are rejected with an error event, 429."""
    max_owner_websocket_bytes: Positive = 256 * 1024 * 1024
    """The same limit for all connections of one API key's name in a worker; without keys, for all connections."""
    max_loaded: Positive | None = None
    """Maximum number of models that are loaded at a time. If another one is needed, the least recently used is unloaded. By
    default any number."""
    max_embedding_inputs: Positive = 2048
    """Maximum number of texts in one request to `/v1/embeddings`."""
    max_rerank_documents: Positive = 2048
    """Maximum number of documents in one request to `/v1/rerank`, and of pairs in one to `/v1/score`."""
    max_rerank_bytes: Positive = 16 * 1024 * 1024
    """Maximum size in bytes of all texts of such a request. The query counts once per document."""
    max_connections: Positive = 4096
    """Maximum number of concurrent connections of each worker. For a further one, the connection that has been idle for
    longest is closed; if none is idle, the further one is answered with 503. Lower if the process may open fewer files
    (`ulimit -n`)."""
    head_timeout: Seconds = 15.0
    """Seconds within which a request's line and headers must arrive, counted from the opening of the connection or from
    the first byte after an earlier request."""
    body_timeout: Seconds = 60.0
    """Seconds within which a request's body, or a WebSocket message, must arrive."""
    send_timeout: Seconds = 60.0
    """Seconds after which a slow client is disconnected: one with pending data that reads less than 1 KiB per second for
    that long."""
    request_timeout: Seconds = 3600.0
    """Time limit for one whole response, including tool calls, in seconds. The response fails when it is exceeded."""
    grace_period: Annotated[float, Meta(ge=0)] = 10.0
    """Seconds that running responses may take at shutdown before they are ended."""
    keep_alive: Seconds = 75.0
    """Seconds after which an idle connection is closed. Clients and proxies in front must give it up sooner, or they may send a
    request on a connection that is just being closed: OpenAI's SDK does after 5 s, nginx and many load balancers after 60."""
    ping_interval: Annotated[float, Meta(ge=0)] = 15.0
    """Seconds of silence in a stream after which a comment is sent to keep proxies from closing it; 0 disables this."""
    log_level: LogLevel = "info"
    """`debug`, `info`, `warning` or `error`. Keys, tokens and passwords are never logged."""
    log_format: LogFormat = "text"
    """`text`, or `json`: one object per line."""
    log_content: Literal["off", "errors", "all"] = "off"
    """Whether bodies of requests and outputs of models are logged, cut to 16,384 characters: of none, of those that failed,
    or of all. Credentials of tools are removed, and what a plugin's hook `gateway_redact_content` removes."""
    access_log: bool = True
    """Whether each request is logged at its end, in one line: ids, the key's name, model, status, tokens and times. Requests
    to `/health`, `/ready` and `/metrics` are logged at the level `debug`, unless their key is refused."""
    log_client_address: bool = False
    """Whether these lines have the client's address as `client`, for tools such as fail2ban. Addresses of people are personal data."""
    trusted_proxies: list[str] = []
    """Addresses and networks (`10.0.0.0/8`) of the proxies in front, and `unix` for whoever connects to `unix_socket`. Their header
    `X-Forwarded-For` says who the client is; that of anybody else is ignored. For `log_client_address` only."""
    api_keys: list[ApiKey] = []
    """The keys in `[[server.api_keys]]`. Without any, the server can be used by anyone who can reach it."""
    keys_file: Annotated[str, Meta(min_length=1)] | None = None
    """A TOML file with further keys, as tables `[[api_keys]]` with the keys of `[[server.api_keys]]`. Changes take effect within
    a second. If another file is named, or none, the keys of the last one are refused from the reload on. A relative path is first looked up relative to the configuration file."""
    stored_keys: bool = False
    """Whether keys in the store are accepted, which `gateway key add`, `set` and `revoke` change on all running servers
    within a second."""
    currency: Annotated[
        str, Meta(pattern="^[a-z]{3}$", extra={"wanted": 'three small letters, such as "usd"'})
    ] = "usd"
    """The currency of `[models.<name>.price]`, three small letters as in ISO 4217."""
    limits_timeout: Seconds = 1.0
    """Seconds that a store may take to count a request against the limits of its key."""
    limits_unavailable: Literal["refuse", "count_here"] = "refuse"
    """What happens to requests of keys with limits if the store does not answer: `refuse` answers 503; `count_here` counts
    them in this process alone until it does."""
    allow_anonymous: bool = False
    """Whether a server without keys may listen on an address that other machines can reach. Set `allowed_hosts` as
    well, or a web page in any browser of that network can reach the server by DNS rebinding."""
    allowed_hosts: list[str] | None = None
    """Names (`gateway.example`, `*.example`), addresses and networks (`10.0.0.0/8`) that are accepted in a request's
    `Host` header, in addition to those of this machine (`localhost`, `127.0.0.0/8`, `::1`); `["*"]` accepts any. By
    default, a server without keys that listens on loopback accepts only those of this machine, and any other server
    accepts any. This protects against web pages that use DNS rebinding. `/health` and `/ready` accept any."""
    reasoning_keys: list[str] = []
    """Fernet keys for `reasoning.encrypted_content`: the first encrypts, all decrypt. Without keys, one is kept in
    the store, for all gateways that share it and after restarts; where the store does not outlast the process, nor does the
    key. Approval requests are signed with them too; without keys, with another one of the store."""
    reasoning_lifetime: Annotated[float, Meta(ge=0)] = 30 * 86_400.0
    """Seconds after which `encrypted_content` expires; 0 means never."""
    approval_lifetime: Seconds = 86_400.0
    """Seconds for which a request for approval of an MCP call can be answered. The result of the call is stored
    somewhat longer, for answers that are repeated."""
    max_background_bytes: Positive = 256 * 1024 * 1024
    """Maximum total size, in bytes, of the requests of one API key's background responses that are queued or running in
    one process. Further ones are rejected with 429."""
    max_conversation_items: Positive = 10_000
    """Maximum number of items of one conversation."""
    max_conversation_bytes: Positive = 64 * 1024 * 1024
    """Maximum total size of one conversation's items in bytes."""
    cors_allow_origins: list[str] = []
    """Origins whose pages may call the server from a browser; `["*"]` allows any. A server without keys rejects
    requests from pages of other origins with 403, except plain GET requests, whose answers the browser hides from them.
    """
    chat_reasoning: list[Literal["reasoning_content", "reasoning"]] = field(
        default_factory=lambda: ["reasoning_content", "reasoning"]
    )
    """The fields in which chat completions show reasoning; `[]` hides it."""
    compatibility: Literal["lenient", "strict"] = "lenient"
    """Whether requests that OpenAI's server rejects are rejected too, with its errors: `strict`. This includes all parameters
    that OpenAI does not know. `lenient` accepts what has a meaning here, and reports parameters without effect."""
    chat_tools: list[str] = []
    """Tool servers, by their names in `[tools.<name>]`, that chat completions may use. Their calls run without being
    shown to the client. `mcp` selects all MCP servers with `offer`, `mcp.<label>` a single one."""
    apis: list[str] | None = None
    """Names of further APIs to serve; `[]` for none. Default: `messages` (the Anthropic Messages API) and `console` (the
    page at `/`), if installed, those that have a table, such as `batches`, those that belong to selected tools, such as the vector stores of
    `file_search`, and those with the name of a resource that a tool needs or that has a table, such as `files`."""
    unavailable_tools: Literal["refuse", "omit"] = "refuse"
    """How to treat a tool that a request asks the server to run but that is not available, such as a web search without
    a plugin for it: `refuse` answers 400; `omit` ignores it, and the model does not see it."""
    schemas: SchemaLimits = SchemaLimits()
    """The table `[server.schemas]`, below."""
    metrics: bool | list[str] = True
    """Whether `/metrics` shows Prometheus metrics to anyone who can reach the server. A list has the names of API keys
    that may read them: a scraper sends its key as a bearer token."""

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.unix_socket is not None or is_loopback(self.host)

    @property
    def needs_key(self) -> bool:
        """Whether requests need an API key."""
        return bool(self.api_keys) or self.keys_file is not None or self.stored_keys

    def __post_init__(self) -> None:
        _check_host(self.host)
        for origin in self.cors_allow_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"cors_allow_origins: {origin!r} is not an origin: write scheme and host, without a path, as in "
                    '"https://app.example.com", or "*" for any.'
                )
        if self.tls_certificate is None and (self.tls_key or self.tls_client_ca):
            raise ValueError("tls_key and tls_client_ca need tls_certificate.")
        for key in ("worker_timeout", "engine_process_timeout"):
            if 0 < getattr(self, key) < LEAST_PROCESS_TIMEOUT:
                raise ValueError(
                    f"{key} is at least {LEAST_PROCESS_TIMEOUT:g} seconds, so that no process is killed that is merely busy; 0 is never."
                )
        TrustedProxies(self.trusted_proxies)
        AllowedHosts([host for host in self.allowed_hosts or () if host != "*"])
        if self.stored_keys and self.store == "none":
            raise ValueError('stored_keys = true needs a store, and store is "none".')
        if isinstance(self.metrics, list) and not (self.keys_file or self.stored_keys):
            _check_metrics_keys(self.metrics, {key.name for key in self.api_keys})
        check_same_keys(self.api_keys)


_ORIGIN: Final = re.compile(r"null|file://|\*[^/?#\s]*|[A-Za-z*][A-Za-z0-9+.*-]*://[^/?#\s]+")
"""An origin as sent by browsers, in which `*` may stand for any part. Some browsers send `file://` for pages of
files."""


def _check_host(host: str) -> None:
    """Raise `ValueError` if `host` is neither a name nor an address."""
    try:
        ip_address(host)
    except ValueError:
        if re.search(r"[/:\s\[\]]", host):
            raise ValueError(
                f"host is a name or an address, without scheme, port and brackets, not {host!r}; the port has a key of its own: port."
            ) from None


def check_same_keys(keys: Iterable[ApiKey]) -> None:
    """Raise `ValueError` if two names have the same key."""
    owners: dict[str, str] = {}
    for key in keys:
        owner = owners.setdefault(key.sha256.lower(), key.name)
        if owner != key.name:
            raise ValueError(
                f"{owner!r} and {key.name!r} have the same API key; `gateway key NAME` makes one for each."
            )


def _check_metrics_keys(names: list[str], known: set[str]) -> None:
    if not names:
        raise ValueError("metrics = [] names no API key: false shows no metrics.")
    for name in names:
        if name not in known:
            raise ValueError(
                f"metrics names the API key {name!r}, and there is none of that name under [[server.api_keys]]."
            )


class SamplingDefaults(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<name>.sampling]`: defaults for parameters that a request does not set. For missing keys, the engine's
    defaults apply."""

    temperature: Annotated[float, Meta(ge=0)] | None = None
    """Sampling temperature; 0 is greedy."""
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    """Cumulative probability of the tokens to sample from."""
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    """Number of most likely tokens to sample from; 0 and -1 mean all."""
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Minimum probability of a token, relative to the most likely one."""
    presence_penalty: Penalty | None = None
    """From -2 to 2; 0 has no effect."""
    frequency_penalty: Penalty | None = None
    """From -2 to 2; 0 has no effect."""
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    """1 has no effect."""
    max_tokens: Positive | None = None
    """Maximum number of tokens in one generation."""
    min_tokens: Annotated[int, Meta(ge=0)] | None = None
    """Minimum number of tokens in one generation."""
    seed: int | None = None
    """Seed that makes sampling reproducible, as far as the engine supports it."""


class Price(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<name>.price]`: the prices of a million tokens, for `/v1/organization/costs` and `gateway usage`."""

    input: Annotated[float, Meta(ge=0)] = 0.0
    """The price of input tokens that the engine had not cached."""
    cached: Annotated[float, Meta(ge=0)] | None = None
    """The price of input tokens that the engine had cached. Default: that of `input`."""
    output: Annotated[float, Meta(ge=0)] = 0.0
    """The price of output tokens, reasoning included."""


class ModelConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[models.<name>]`: a model to serve under that name."""

    engine: str | None = None
    """The engine's name. By default it is chosen from the kind of `path`."""
    path: Annotated[str, Meta(min_length=1)] | None = None
    """A file, a folder, a URL or a name of the hub (`owner/repo`, `owner/repo-GGUF:Q4_K_M`); by default the engine's own
    model. A relative path is first looked up relative to the configuration file."""
    renderer: str | None = None
    """Name of the renderer, which writes prompts. By default it is chosen from the model's metadata."""
    parser: str | None = None
    """Name of the parser, which reads output. By default it is chosen from the model's metadata."""
    reasoning: str | None = None
    """Name of the reasoning format only, for a model that mixes families. Cannot be combined with `parser`."""
    tools: str | None = None
    """Name of the tool-call format only, for a model that mixes families. Cannot be combined with `parser`."""
    reasoning_summary: Literal["full", "none"] = "full"
    """The answer to a request for a summary of the reasoning: `full` returns the whole reasoning, since no summary is
    generated; `none` returns nothing."""
    allowed_tools: list[Annotated[str, Meta(min_length=1)]] | None = None
    """Tool servers that this model may use, by their names in `[tools.<name>]`. Default: all; `[]` for none."""
    aliases: list[Annotated[str, Meta(min_length=1)]] = []
    """Further names for this model in requests."""
    description: str | None = None
    """One line for the list of models."""
    required: bool = True
    """Whether the start fails if the model cannot be opened. With `false`, the other models are served, and requests for it try
    to open it again."""
    load: Literal["start", "on_demand"] = "start"
    """When the model is loaded: when the server starts, or for the first request that needs it."""
    idle_unload: Seconds | None = None
    """Seconds without a request after which the model is unloaded. The next request loads it again. Default: never."""
    process: EngineProcess | None = None
    """Where the engine runs: `server` opens it in the server process, in each one if there are several `workers`; `own` in a
    process of its own, which all workers share. Default: `own` with several workers, and for `llamacpp` with `load = "on_demand"`;
    engines that reach a server elsewhere always run in the server process."""
    max_model_len: Positive | None = None
    """Maximum number of tokens of prompt and output together. Default: the model's limit."""
    max_running: Positive = 256
    """Maximum number of concurrently running requests."""
    max_waiting: Annotated[int, Meta(ge=0)] = 1024
    """Maximum number of queued requests; further ones are rejected with 429. Queued lines of batches do not count for the requests of
    clients."""
    max_waiting_per_key: Positive | None = None
    """Maximum number of queued requests of one API key's name. By default, a key may have as many queued requests as there are free
    places left, which leaves places for other keys."""
    scheduling: Literal["fair", "fifo"] = "fair"
    """Who is served first of those who wait: `fair` serves by the priorities of keys, and keys of one priority by shares of
    tokens (`weight`); `fifo` serves in the order of arrival."""
    sampling: SamplingDefaults = SamplingDefaults()
    """The table `[models.<name>.sampling]`, below."""
    price: Price | None = None
    """The table `[models.<name>.price]`, below."""
    chat_template: Annotated[str, Meta(min_length=1)] | None = None
    """A Jinja chat template that replaces the model's own: a file, or the text itself."""
    chat_template_kwargs: dict[str, Any] = {}
    """Variables for the chat template. Those of a request take precedence."""
    trust_request_chat_template: bool = False
    """Whether a request may provide its own chat template. It is evaluated in a helper process, limited to five seconds
    and 512 MiB."""
    engine_parameters: list[EngineParameter] = []
    """Parameters that requests may pass to the engine unchecked: vLLM's extra arguments (`vllm_xargs`), the replica to run on
    (`data_parallel_rank`, also as the header `X-data-parallel-rank`), transfers of the cache (`kv_transfer_params`) and arguments of
    the processor of images (`mm_processor_kwargs`). Others reject them."""
    options: dict[str, dict[str, Any]] = {}
    """Tables for the plugins of this model: `[models.<name>.llamacpp]` is short for `[models.<name>.options.llamacpp]`.
    """


class RouteConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[routes.<name>]`: a name that requests may use as a model, answered by one of several models."""

    models: Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(min_length=1)]
    """Names of the models, in order of trial."""
    weights: list[Annotated[float, Meta(ge=0)]] | None = None
    """The share of requests that each model is tried first for, in the order of `models`. With weights, the order is random
    for each request; models with the weight 0 come last. Default: always the order of `models`."""
    fallback: bool = True
    """Whether the next model is tried if one cannot answer. With `false`, only the first one is tried."""

    def __post_init__(self) -> None:
        if len(set(self.models)) < len(self.models):
            raise ValueError("models names a model twice; keep one of them.")
        if self.weights is None:
            return
        if len(self.weights) != len(self.models):
            raise ValueError(
                f"weights has {len(self.weights)} numbers for {len(self.models)} models; give one for each."
            )
        if not any(self.weights):
            raise ValueError("weights are all 0; give at least one model a positive weight.")


class MediaConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[media]`: limits on the images and sounds in requests to models that take them, and from where images are fetched."""

    max_parts: Positive = 64
    """Maximum number of images and sounds in the conversation of one request, earlier turns included."""
    max_bytes: Annotated[int, Meta(ge=1, le=1 << 30)] = 20 * 1024 * 1024
    """Maximum size of one file in bytes, as it is sent, fetched or stored."""
    max_total_bytes: Positive = 128 * 1024 * 1024
    """Maximum total size, in bytes, of the images and sounds of one request, as they are handed to the engine."""
    max_pixels: Annotated[int, Meta(ge=1, le=1 << 30)] = 40_000_000
    """Maximum number of pixels of one image file. A process that decodes images may take 24 bytes of memory for each."""
    max_side: Annotated[int, Meta(ge=16, le=16_384)] = 2048
    """Maximum length of an image's longer side in pixels, for `detail` `auto`; larger images are scaled down. For `low` it is at
    most 512."""
    max_side_high: Annotated[int, Meta(ge=16, le=16_384)] = 4096
    """The same for `detail` `high` and `original`, if larger than `max_side`."""
    max_audio_seconds: Annotated[float, Meta(gt=0, le=86_400)] = 600.0
    """Maximum length of one sound in seconds."""
    decode_seconds: Seconds = 10.0
    """Seconds that decoding one file may take."""
    decode_processes: Annotated[int, Meta(ge=1, le=64)] = 2
    """Maximum number of helper processes that decode files. They are started when they are needed."""
    cache_bytes: Annotated[int, Meta(ge=0)] = 64 * 1024 * 1024
    """Maximum total size, in bytes, of decoded images and sounds that are kept for requests that contain them again."""
    allow_hosts: list[Annotated[str, Meta(min_length=1)]] = []
    """Hosts from which images are fetched by `http` and `https` URLs: `example.com`, `*.example.com`, `example.com:8443`,
    or `*` for every host. By default none: images are then sent as `data:` URLs."""
    deny_hosts: list[Annotated[str, Meta(min_length=1)]] = []
    """Hosts from which no images are fetched, whatever `allow_hosts` says. An address denies the names that resolve to
    it, too."""
    allow_private: bool = False
    """Whether images are also fetched from addresses of this machine and of private networks. Those of the clouds'
    metadata services are always blocked."""
    fetch_seconds: Seconds = 10.0
    """Seconds that fetching one image may take, redirects included."""
    max_redirects: Annotated[int, Meta(ge=0, le=20)] = 3
    """Maximum number of redirects of one fetch."""


class DocumentsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[documents]`: limits on the files in requests, which models read as text."""

    max_files: Positive = 32
    """Maximum number of files in the conversation of one request, earlier turns included."""
    max_bytes: Annotated[int, Meta(ge=1, le=1 << 30)] = 32 * 1024 * 1024
    """Maximum size of one file in bytes, as it is sent, fetched or stored."""
    max_total_bytes: Positive = 67_108_864
    """Maximum total size, in bytes, of the uploaded files of one request that are sent to an upstream as they are."""
    max_text: Positive = 1_000_000
    """Maximum number of characters of one file's text."""
    max_total_text: Positive = 4_000_000
    """Maximum number of characters of the text of all files of one request."""
    max_pages: Positive = 2000
    """Maximum number of pages of one PDF."""
    max_page_images: Annotated[int, Meta(ge=1, le=1000)] = 20
    """Maximum number of pages of all PDFs of one request that are shown as images."""
    page_side: Annotated[int, Meta(ge=16, le=4096)] = 1536
    """Length of the longer side of a page's image in pixels."""
    seconds: Seconds = 30.0
    """Seconds that reading one file may take."""
    memory: Annotated[int, Meta(ge=134_217_728)] = 1_073_741_824
    """Memory limit, in bytes, of a helper process that reads a file."""
    processes: Annotated[int, Meta(ge=1, le=64)] = 2
    """Maximum number of helper processes that read files. Each reads one, and is started when it is needed."""
    cache_bytes: Annotated[int, Meta(ge=0)] = 64 * 1024 * 1024
    """Maximum total size, in bytes, of texts and pages that are kept for requests that contain a file again."""


class PluginsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[plugins]`: which installed plugins may load, by the names of their entry points."""

    allow: list[str] | None = None
    """The only plugins to load. Default: all."""
    disable: list[str] = []
    """Plugins not to load."""


class Setting(Struct, frozen=True, kw_only=True):
    """A setting of the configuration."""

    path: KeyPath
    value: Any
    """Plain: a number, a text, a list or, for a table without keys, `{}`."""
    source: str
    """A file and line, an environment variable, or the command line."""


class Config(Struct, frozen=True, kw_only=True):
    """A complete configuration."""

    server: ServerConfig = ServerConfig()
    models: dict[str, ModelConfig]
    tools: dict[str, dict[str, Any]] = {}
    """`[tools.<name>]` selects the tool server of that name, and is its configuration."""
    stores: dict[str, dict[str, Any]] = {}
    """`[stores.<name>]` is the configuration of the store of that name. The table selects it, if `server.store` does not name
    another."""
    apis: dict[str, dict[str, Any]] = {}
    """`[apis.<name>]` is the configuration of the further API of that name. It selects the API if `server.apis` is not set."""
    resources: dict[str, dict[str, Any]] = {}
    """`[resources.<name>]` is the configuration of the resource of that name, if a selected tool or API needs it. An API
    of that name is served if `server.apis` is not set."""
    routes: dict[str, RouteConfig] = {}
    prompts: dict[str, PromptConfig] = {}
    authenticators: dict[str, dict[str, Any]] = {}
    """`[authenticators.<name>]` selects the authenticator of that name, and is its configuration."""
    routers: dict[str, dict[str, Any]] = {}
    """`[routers.<name>]` selects the router of that name, and is its configuration."""
    policies: dict[str, dict[str, Any]] = {}
    """`[policies.<name>]` selects the policy of that name, and is its configuration."""
    plugins: PluginsConfig = PluginsConfig()
    media: MediaConfig = MediaConfig()
    documents: DocumentsConfig = DocumentsConfig()
    source: str = "the built-in configuration"
    """Where it was read from, for messages."""
    settings: Sequence[Setting] = ()
    """The settings in the order of the file, each with its source."""
