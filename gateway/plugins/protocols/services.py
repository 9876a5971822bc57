"""The services that the gateway offers to the plugins it has opened."""

from __future__ import annotations

from array import array
from asyncio import Task
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from gateway.plugins.protocols.principals import Principal
from gateway.plugins.protocols.store import SharedValues


class Embedder(Protocol):
    """A configured embedding model."""

    @property
    def model(self) -> str:
        """The model's own name, even if it was requested by an alias."""
        ...

    async def embed(self, texts: Sequence[str]) -> Sequence[array[float]]:
        """Return one vector per text, each of length 1, so that scalar products are cosines. Arrays of type code `f`.

        A text longer than the model's limit is embedded in parts; its vector is the mean of the parts' vectors. The
        request waits in the model's queue, and is limited in time and counted like a client's request. Raises
        `RateLimited` if the queue is full, `EngineUnavailable`, `EngineError`, `DeadlineExceeded`, and `InvalidRequest`
        for a text that cannot be embedded. Cancelling the awaiting task aborts the request in the engine.
        """
        ...


class Reranker(Protocol):
    """A configured reranking model."""

    @property
    def model(self) -> str:
        """The model's own name, even if it was requested by an alias."""
        ...

    async def scores(self, query: str, documents: Sequence[str]) -> Sequence[float]:
        """Return the relevance of each document to `query`, in the order of the documents; higher is more relevant.

        A document longer than the model's limit is scored in parts; its score is the highest of the parts' scores. The
        request waits in the model's queue, and is limited in time and counted like a client's request. Raises
        `RateLimited` if the queue is full, `EngineUnavailable`, `EngineError`, `DeadlineExceeded`, and `InvalidRequest`
        for a text that is empty and for a query that is too long for the model. Cancelling the awaiting task aborts the
        request in the engine.
        """
        ...


class Delegation(Struct, frozen=True, kw_only=True):
    """The right to send requests later in the name of the sender of the current one. May be stored as JSON."""

    principal: Principal | None
    """The sender of the request; None in anonymous mode. Its API key is looked up again for each request; a principal
    that an authenticator identified is used unchanged."""
    models: Sequence[str] = ()
    """Models that the requests may name in addition to those of the principal: names and patterns, as for keys."""


class InternalAnswer(Struct, frozen=True, kw_only=True):
    """The answer to a request that was sent within the process."""

    status: int
    """The HTTP status."""
    headers: Mapping[str, str]
    """The headers by lower-case name."""
    body: bytes


class CounterMetric(Protocol):
    """A number that only grows. Like the other metrics, it may be used in any thread."""

    def add(self, amount: float = 1, **labels: str) -> None:
        """Add to the series with these values of all labels of the metric. Raises `ValueError` for other labels and for
        a negative amount."""
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
    """The gateway as seen by an open plugin."""

    @property
    def values(self) -> SharedValues:
        """Small named values in the gateway's store; in this process if there is none. Choose names that begin with the
        plugin's name."""
        ...

    def delegation(self, *, models: Sequence[str] = ()) -> Delegation:
        """The right to send requests in the name of the sender of the request that the calling task works for. With
        `models`, they may also name models that the sender's key may not use itself."""
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
        """Send a POST request with a JSON body to one of the gateway's own paths, without HTTP, and return the complete
        answer.

        The request is routed, limited, counted, logged and traced like a client's request with the same key. `priority`
        is added to the principal's: with a positive number, requests of clients are served first. It is added in
        anonymous mode too, and if the model serves in the order of arrival.

        A task that works for a request, such as the call of a tool or the check of a policy, may send one too. This
        inner request is part of the outer one: of the principal's limits, only the token limits apply to it, and the
        policy that sends it is not called for it. The outer request may hold a place in a model's queue, and keep its
        model loaded. The inner request therefore does not wait until a model is unloaded (503), and waits at most 30
        seconds in a queue (429). If the outer request holds the last place of the same model, the inner one is refused
        immediately.

        Raises `PermissionDenied` if the API key was revoked or has expired, `EngineUnavailable` while the server
        starts, and `EngineError` if the answer has more than `max_bytes` bytes; then the request is cancelled. All
        other errors are answers with a status. Cancelling the awaiting task cancels the request.
        """
        ...

    def keep_runs(self, most: int) -> None:
        """Keep at least the `most` runs that ended last, from now on, with their phases, for `GET /v1/gateway/runs`. If
        no plugin calls this, none are kept."""
        ...

    def counter(self, name: str, description: str, labels: Sequence[str] = ()) -> CounterMetric:
        """Create a metric in `/metrics`, named `gateway_plugin_<plugin>_<name>_total`; `description` is its text there.

        It lasts as long as the plugin. A metric has at most 200 series: further label values are counted together, with
        `other` in place of each value. Values are cut after 100 characters. Raises `ConfigurationError` for an unusable
        name or label, more than 4 labels, more than 100 metrics of one plugin, and a metric that exists with another
        definition.
        """
        ...

    def gauge(self, name: str, description: str, labels: Sequence[str] = ()) -> GaugeMetric:
        """Create a metric named `gateway_plugin_<plugin>_<name>`; otherwise like `counter`."""
        ...

    def histogram(
        self,
        name: str,
        description: str,
        labels: Sequence[str] = (),
        *,
        buckets: Sequence[float] = (),
    ) -> HistogramMetric:
        """Create a metric named `gateway_plugin_<plugin>_<name>`; otherwise like `counter`. `buckets`: at most 30 upper
        bounds, ascending; by default, bounds for seconds between 0.005 and 60."""
        ...

    def start_task(self, work: Coroutine[Any, Any, None], *, name: str) -> Task[None]:
        """Run `work` in a background task that belongs to no request. `name` is for the log.

        The task is cancelled when the plugin is closed, after all responses have ended and before anything else is
        closed; it then has 10 seconds to end. An exception is logged, and ends this task only. Raises `RateLimited` if
        1000 tasks of the plugin run, and `RuntimeError` if the plugin is closed.
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
