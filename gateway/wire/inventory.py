"""What a gateway consists of, as its administrators see it."""

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
    """Its summary, or why it failed."""


class ListedTools(Value, frozen=True, kw_only=True):
    """The tools of one table `[tools.<name>]`."""

    name: str
    types: list[str] = []
    """The types by which requests ask for them, such as `web_search`."""
    offered: list[str] = []
    """The names of those that requests need not ask for."""


class ListedTool(Value, frozen=True, kw_only=True):
    """One tool of a tool server. Its texts are cut to a few hundred characters."""

    name: str
    description: str | None
    needs_approval: bool
    """Whether clients approve each call, if the request does not say."""


class ListedToolServer(Value, frozen=True, kw_only=True):
    """A tool server of the configuration, and what the last probe of it found."""

    table: str
    """Its table is `[tools.<table>]`."""
    label: str
    types: list[str]
    """The types by which requests ask for its tools, such as `web_search`."""
    offered: bool
    """Whether requests have tools of it without asking."""
    state: Literal["reachable", "unreachable", "unknown", "no_probe"]
    """`unknown`: not probed by this process since it started; `no_probe`: there is nothing to ask."""
    probed: float | None
    """Unix time of the last probe."""
    seconds: float | None
    """How long the answer to the last probe took, with connecting if that was needed; null if there was none."""
    error: str | None
    """Why it is unreachable."""
    total: int | None
    """Number of its tools; null if they are not known. `tools` has the first of them."""
    tools: list[ListedTool]


class ToolServerList(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/tools`."""

    object: Literal["gateway.tools"] = "gateway.tools"
    total: int
    """Number of tool servers; `data` has the first of them."""
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
"""`working` is what is neither of the others, such as embedding, scoring, compacting and storing."""


class ListedPhase(Value, frozen=True, kw_only=True):
    """A part of a run: waiting for its turn, a generation until its first token or from there on, or a call of a tool."""

    kind: Literal["queue", "prompt", "decoding", "tool"]
    name: str = ""
    """The name of the tool."""
    began: float
    """Seconds after the run began."""
    seconds: float


class ListedRun(Value, frozen=True, kw_only=True):
    """One response, completion, embedding or scoring: names, numbers and times, no texts."""

    id: str
    """Names the run among those of all worker processes, while it runs and afterwards."""
    number: int
    """Of all runs of its process."""
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
    """So far. Engines that report tokens at the end of a generation only have none before."""
    turns: int
    """Number of generations."""
    error_code: str | None
    phases: list[ListedPhase]
    """In the order of their ends."""


class RunList(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/runs`: what runs in all worker processes of this server."""

    object: Literal["gateway.runs"] = "gateway.runs"
    workers: int
    """Number of workers that there should be."""
    answered: int
    """Number of workers whose runs these are. The others start, or did not answer in time."""
    total: int
    """Number of runs in progress; `running` has the oldest of them."""
    running: list[ListedRun]
    ended: list[ListedRun]
    """The last that have ended, newest first; empty if they are not kept."""
    silent: list[int] = []
    """Process ids of workers that did not answer within two seconds: what they know is missing."""


class ListedSetting(Value, frozen=True, kw_only=True):
    """One setting of the configuration."""

    key: str
    """Its place, such as `server.port`."""
    value: Any
    """Without secrets: what is hidden is set."""
    source: str
    """A file and line, an environment variable, the command line, or `default`."""
    note: str = ""
    """Whether the environment variable that it names is set."""


class SettingList(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/config`."""

    object: Literal["gateway.config"] = "gateway.config"
    source: str
    data: list[ListedSetting]


class ListedKey(Value, frozen=True, kw_only=True):
    """What is known of the API keys of one name. Never a key, nor its hash."""

    name: str
    sources: list[str]
    """Where its keys are: `the configuration`, a file, or the store."""
    keys: int
    """How many there are."""
    admin: bool
    models: list[str] | None
    """Those that it may use; null for all. With several keys, those of the first."""
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
    """Number of names; `data` has the first of them."""
    data: list[ListedKey]
    silent: list[int] = []
    """Process ids of workers that did not answer within two seconds: what they know is missing."""


class QueueMinute(Value, frozen=True, kw_only=True):
    """The most requests that ran and waited at a time within a minute."""

    at: int
    """Unix time at which it began."""
    running: int
    waiting: int


class ListedModel(Value, frozen=True, kw_only=True):
    """The state and the queue of one model."""

    id: str
    state: str
    """`unloaded`, `loading`, `loaded`, `unloading` or `failed`."""
    engine: str | None
    """As configured; null where its path decides."""
    running: int
    waiting: int
    max_running: int
    max_waiting: int
    load: str
    idle_unload: float | None
    failure: str | None
    """Why the last attempt to load it failed."""
    measured: dict[str, float]
    """What its engine says of memory and caches, by the names of its metrics."""
    queue: list[QueueMinute]
    """The last hour, oldest first."""


class ModelQueues(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway/models`."""

    object: Literal["gateway.models"] = "gateway.models"
    data: list[ListedModel]
    silent: list[int] = []
    """Process ids of workers that did not answer within two seconds: what they know is missing."""


class GatewayInfo(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway`."""

    object: Literal["gateway"] = "gateway"
    started: int
    """Unix time."""
    plugins: list[ListedPlugin]
    tools: list[ListedTools]
