"""The services that the gateway offers to the plugins it has opened."""

from __future__ import annotations

from array import array
from asyncio import Task
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from gateway.protocols.principals import Principal
from gateway.protocols.store import SharedValues


class Embedder(Protocol):
    """A configured embedding model."""

    @property
    def model(self) -> str:
        """The model's own name, even if an alias was asked for."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        """One vector per text, each of length 1, so that scalar products are cosines. Arrays of type code `f`.

        A text longer than the model's limit is embedded in parts; its vector is the mean of theirs. The request waits
        in the model's queue, and is limited in time and counted like a client's. Raises `RateLimited` if the queue is
        full, `EngineUnavailable`, `EngineError`, `DeadlineExceeded`, and `InvalidRequest` for a text that cannot be
        embedded. Cancelling the awaiting task aborts the request in the engine.
        """
        ...


class Reranker(Protocol):
    """A configured reranking model."""

    @property
    def model(self) -> str:
        """The model's own name, even if an alias was asked for."""
        ...

    async def scores(self, query: str, documents: Sequence[str]) -> Sequence[float]:
        """The relevance of each document to `query`, in the order of the documents; higher is more relevant.

        A document longer than the model's limit is scored in parts; its score is the highest of theirs. The request waits in the model's queue, and is limited in time and counted like a client's. Raises `RateLimited`
        if the queue is full, `EngineUnavailable`, `EngineError`, `DeadlineExceeded`, and `InvalidRequest` for a text that
        is empty and for a query that is too long for the model. Cancelling the awaiting task aborts the request in the engine.
        """
        ...


class Delegation(Struct, frozen=True, kw_only=True):
    """The right to send requests later in the name of who sends the current one. May be stored as JSON."""

    principal: Principal | None
    """Who sent the request; None in anonymous mode. Its API key is looked up again for each request; a principal that an
    authenticator has found stays as it was."""
    models: Sequence[str] = ()
    """Models that the requests may name besides those of the principal: names and patterns, as for keys."""


class InternalAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a request that was sent within the process."""

    status: int
    """The HTTP status."""
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes


class CounterMetric(Protocol):
    """A number that only grows. May be used in any thread, like the other metrics."""

    def add(self, amount: float = 1, **labels: str) -> None:
        """Add to the series with these values of all labels of the metric. Raises `ValueError` for other labels and for a negative
        amount."""
        ...


class GaugeMetric(Protocol):
    """A number that goes up and down."""

    def set(self, value: float, **labels: str) -> None:
        """Set the series with these values of the labels. `/metrics` shows the sum of all server processes."""
        ...


class HistogramMetric(Protocol):
    """Numbers counted in buckets."""

    def observe(self, value: float, **labels: str) -> None:
        """Count a number in the series with these values of the labels."""
        ...


class GatewayServices(Protocol):
    """The gateway as seen by a plugin that is open."""

    @property
    def values(self) -> SharedValues:
        """Small named values in the gateway's store; in this process if there is none. Names begin with the plugin's."""
        ...

    def delegation(self, *, models: Sequence[str] = ()) -> Delegation:
        """The right to send requests in the name of who sends the request that the calling task works for; also to `models`, which
        that key may not be allowed to use itself."""
        ...

    async def send(
        self,
        path: str,
        body: bytes,
        *,
        delegation: Delegation,
        priority: int = 0,
        request_id: str | None = None,
        max_bytes: int = 67_108_864,
    ) -> InternalAnswer:
        """Send a POST request with a JSON body to one of the gateway's own paths, without HTTP, and return the whole answer.

        The request is routed, limited, counted, logged and traced like a client's with the same key. `priority` is added to that of
        its principal: with a positive one, requests of clients are served first. It is added in anonymous mode too, and if the
        model serves in the order of arrival.

        A task that works for a request, such as the call of a tool or the check of a policy, may send one too. That is part of the
        other: of the limits of the principal, only those of tokens hold for it, and the policy that sends it is not asked about it.
        A request that is worked for may hold a place in a model's queue, and keep its model loaded, so what is sent for it does not
        wait until a model is unloaded (503), and at most 30 seconds in a queue (429). If the other holds the last place of the same
        model, it is refused at once.

        Raises `PermissionDenied` if the API key was revoked or has expired, `EngineUnavailable` while the server starts, and `EngineError` if the answer has more than `max_bytes`
        bytes; then the request is cancelled. All other errors are answers with a status. Cancelling the awaiting task cancels the
        request.
        """
        ...

    def keep_runs(self, most: int) -> None:
        """Keep at least the last `most` runs that end from now on, with their phases, for `GET /v1/gateway/runs`. Where no plugin
        asks for it, none is kept."""
        ...

    def counter(self, name: str, description: str, labels: Sequence[str] = ()) -> CounterMetric:
        """A metric in `/metrics`, named `gateway_plugin_<plugin>_<name>_total`; `description` is its text there.

        It lasts as long as the plugin. A metric has at most 200 series: further values of labels are counted together, with `other`
        in place of each. Values are cut after 100 characters. Raises `ConfigurationError` for an unusable name or label, more than 4
        labels, more than 100 metrics of one plugin, and a metric that exists with another definition.
        """
        ...

    def gauge(self, name: str, description: str, labels: Sequence[str] = ()) -> GaugeMetric:
        """A metric named `gateway_plugin_<plugin>_<name>`; otherwise like `counter`."""
        ...

    def histogram(
        self,
        name: str,
        description: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = (),
    ) -> HistogramMetric:
        """A metric named `gateway_plugin_<plugin>_<name>`; otherwise like `counter`. `buckets`: at most 30 upper bounds, ascending; by
        default, those for seconds between 0.005 and 60."""
        ...

    def start_task(self, work: Coroutine[Any, Any, None], *, name: str) -> Task[None]:
        """Run `work` in a task, in the background, which works for no request. `name` is for the log.

        It is cancelled when the plugin is closed, after all responses and before anything else, and has 10 seconds then to end. An
        exception is logged, and ends this task only. Raises `RateLimited` if 1000 tasks of the plugin run, and `RuntimeError` if the
        plugin is closed.
        """
        ...

    def embedder(self, model: str) -> Embedder:
        """The embedding model with that name or alias. Raises `ConfigurationError` if there is none or it does not
        embed."""
        ...

    def reranker(self, model: str) -> Reranker:
        """The reranking model with that name or alias. Raises `ConfigurationError` if there is none or it does not
        rerank."""
        ...


@runtime_checkable
class ServicesUser(Protocol):
    """A `ToolServer`, `Api`, `Router`, `Policy` or resource that uses services of the gateway."""

    def use(self, services: GatewayServices) -> None:
        """Receive the services. Called once, when all models, resources, APIs and tools are open and before the first
        request.

        Must not block. The `tools` of a server may have been listed before. May raise `ConfigurationError`, which stops
        the start.
        """
        ...
