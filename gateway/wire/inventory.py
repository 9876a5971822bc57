"""What a gateway consists of, as its administrators see it."""

from __future__ import annotations

from typing import Literal, TypeAlias

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
    """`selected`, `available`, `active` (hooks that always run), `failed`, `off`, or `not installed`."""
    note: str = ""
    """Its summary, or why it failed."""


class ListedTools(Value, frozen=True, kw_only=True):
    """The tools of one table `[tools.<name>]`."""

    name: str
    types: list[str] = []
    """The types by which requests ask for them, such as `web_search`."""
    offered: list[str] = []
    """The names of those that requests need not ask for."""


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


class GatewayInfo(Value, frozen=True, kw_only=True):
    """The answer of `/v1/gateway`."""

    object: Literal["gateway"] = "gateway"
    started: int
    """Unix time."""
    plugins: list[ListedPlugin]
    tools: list[ListedTools]
