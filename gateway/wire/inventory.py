"""Types that describe a gateway's parts and their state to administrators."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from gateway.wire.common import Value


class ListedPlugin(Value, frozen=True, kw_only=True):
    """One thing that an installed plugin offers, or a plugin that failed."""

    kind: str
    name: str
    aliases: list[str] = []
    plugin: str
    distribution: str
    version: str
    state: str
    """`selected`, `available`, `active` (commands, and hooks that always run), `failed`, `off`, or `not installed`."""
    note: str = ""
    """The summary, or the reason of the failure."""


class ListedTools(Value, frozen=True, kw_only=True):
    """The tools of one table `[tools.<name>]`."""

    name: str
    types: list[str] = []
    """The tool types with which requests select them, such as `web_search`."""
    offered: list[str] = []
    """Names of the tools that requests have without selecting them."""


class ListedTool(Value, frozen=True, kw_only=True):
    """One tool of a tool server. Its texts are cut to a few hundred characters."""

    name: str
    description: str | None
    needs_approval: bool
    """Whether clients must approve each call, if the request does not decide it."""


class ListedToolServer(Value, frozen=True, kw_only=True):
    """A configured tool server, and the result of its last probe."""

    table: str
    """The name of its table, `[tools.<table>]`."""
    label: str
    types: list[str]
    """The tool types with which requests select its tools, such as `web_search`."""
    offered: bool
    """Whether requests have its tools without selecting them."""
    state: Literal["reachable", "unreachable", "unknown", "no_probe"]
    """`unknown`: not probed by this process since it started; `no_probe`: it depends on no other service."""
    probed: float | None
    """Unix time of the last probe."""
    seconds: float | None
    """Duration of the last probe, including the connection if one was made; null if it was not answered."""
    error: str | None
    """The reason why it is unreachable."""
    total: int | None
    """Number of its tools; null if they are not known. `tools` lists the first of them."""
    tools: list[ListedTool]


class ToolServerList(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/tools`."""

    object: Literal["gateway.tools"] = "gateway.tools"
    total: int
    """Number of tool servers; `data` lists the first of them."""
    data: list[ListedToolServer]


RunState: TypeAlias = Literal[
    "queued",
    "prompt",
    "decoding",
    "tool",
    "working",
    "completed",
    "incomplete",
    "failed",
    "cancelled",
]
"""`working` covers everything else, such as embedding, scoring, compacting and storing."""


class ListedPhase(Value, frozen=True, kw_only=True):
    """A part of a run: waiting in the queue, a generation until its first token, a generation after its first token, or
    a call of a tool."""

    kind: Literal["queue", "prompt", "decoding", "tool"]
    name: str = ""
    """The name of the called tool."""
    began: float
    """When it began, in seconds after the start of the run."""
    seconds: float


class ListedRun(Value, frozen=True, kw_only=True):
    """One response, completion, embedding or scoring: names, numbers and times, no texts."""

    id: str
    """Identifies the run among the runs of all worker processes, also after it has ended."""
    number: int
    """Number of the run within its process."""
    process: int
    """The process id of its worker."""
    request_id: str
    response_id: str | None
    api: str
    model: str
    key: str | None
    """The name of the API key; null without keys."""
    state: RunState
    started: float
    """Unix time."""
    seconds: float
    queue_seconds: float | None
    first_token_seconds: float | None
    input_tokens: int | None
    output_tokens: int
    """Output tokens so far. If the engine reports tokens only at the end of a generation, the current one is not
    included."""
    turns: int
    """Number of generations."""
    error_code: str | None
    phases: list[ListedPhase]
    """The phases in the order in which they ended."""


class RunList(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/runs`: the runs of all worker processes of this server."""

    object: Literal["gateway.runs"] = "gateway.runs"
    workers: int
    """Number of workers that should be running."""
    answered: int
    """Number of workers that reported their runs. The others are starting, or did not answer in time."""
    total: int
    """Number of runs in progress; `running` lists the oldest of them."""
    running: list[ListedRun]
    ended: list[ListedRun]
    """The runs that ended last, newest first; empty if they are not kept."""
    silent: list[int] = []
    """Process ids of workers that did not answer within two seconds. Their data is missing."""


class ListedSetting(Value, frozen=True, kw_only=True):
    """One setting of the configuration."""

    key: str
    """Its path in the configuration, such as `server.port`."""
    value: Any
    """The value. Secrets are hidden; a hidden secret is one that is set."""
    source: str
    """A file and line, an environment variable, the command line, or `default`."""
    note: str = ""
    """Whether the environment variable that the setting names is set."""


class SettingList(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/config`."""

    object: Literal["gateway.config"] = "gateway.config"
    source: str
    data: list[ListedSetting]


class ListedKey(Value, frozen=True, kw_only=True):
    """Information about the API keys of one name. Contains neither keys nor their hashes."""

    name: str
    sources: list[str]
    """Where the keys are defined: `the configuration`, a file, or the store."""
    keys: int
    """Number of keys."""
    admin: bool
    models: list[str] | None
    """Models that the keys may use; null for all. If there are several keys, the models of the first."""
    tools: list[str] | None
    priority: int
    weight: float
    expires: float | None
    """Unix time; null for never."""
    requests_per_minute: int | None
    tokens_per_minute: int | None
    tokens_per_day: int | None
    max_concurrent_requests: int | None
    running: int
    """Requests in progress."""
    last_used: float | None
    """Unix time of the last request that has ended; null for none since the server started."""
    requests_today: int
    """Since midnight, UTC, by all gateways with the same store."""
    tokens_today: int
    requests_30_days: int
    tokens_30_days: int


class KeyList(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/keys`."""

    object: Literal["gateway.keys"] = "gateway.keys"
    needs_key: bool
    """Whether requests need a key."""
    total: int
    """Number of names; `data` lists the first of them."""
    data: list[ListedKey]
    silent: list[int] = []
    """Process ids of workers that did not answer within two seconds. Their data is missing."""


class QueueMinute(Value, frozen=True, kw_only=True):
    """The highest numbers of running and of waiting requests during one minute."""

    at: int
    """Unix time of the start of the minute."""
    running: int
    waiting: int


class ListedModel(Value, frozen=True, kw_only=True):
    """The state and the queue of one model."""

    id: str
    state: str
    """`unloaded`, `loading`, `loaded`, `unloading` or `failed`."""
    engine: str | None
    """As configured; null if the model's path decides."""
    running: int
    waiting: int
    max_running: int
    max_waiting: int
    load: str
    idle_unload: float | None
    failure: str | None
    """The reason why the last attempt to load it failed."""
    measured: dict[str, float]
    """What the engine reports about memory and caches, by the names of its metrics."""
    queue: list[QueueMinute]
    """The last hour, oldest first."""


class ModelQueues(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/models`."""

    object: Literal["gateway.models"] = "gateway.models"
    data: list[ListedModel]
    silent: list[int] = []
    """Process ids of workers that did not answer within two seconds. Their data is missing."""


class GatewayInfo(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway`."""

    object: Literal["gateway"] = "gateway"
    started: int
    """Unix time."""
    plugins: list[ListedPlugin]
    tools: list[ListedTools]
