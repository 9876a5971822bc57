"""Upstreams' listings of models (`GET /models`), which tell whether an upstream is there.

All models of one upstream share its listing: it is asked once in an interval, however many they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from gateway_openai.config import OpenAIConfig
from gateway_remote.client import ReplicaClient
from gateway_remote.failures import ReplicaFailure
from gateway_remote.reading import reader_of
from gateway_remote.replica import Endpoint

_AWAY: Final = frozenset({401, 502, 503, 504})
"""What says that chat will fail too: the key is refused, or what stands before the upstream does not reach it."""
_FAILURE_SECONDS: Final = 1.0
"""How long a failure to connect is taken for the answer to others."""


_SELF_HOSTED: Final = frozenset({"litegate", "llamacpp", "sglang", "vllm"})
"""What servers of open models say of themselves in `owned_by`."""


class _Card(Struct):
    id: str
    max_model_len: int | None = None
    owned_by: Any = None


class _Models(Struct):
    data: list[_Card] = []


_read = reader_of(_Models)


def _is_self_hosted(card: _Card) -> bool:
    owner = card.owned_by
    return card.max_model_len is not None or (isinstance(owner, str) and owner in _SELF_HOSTED)


class Listing(Struct, frozen=True):
    """The answer to a listing."""

    status: int
    models: dict[str, int | None] | None = None
    """Context lengths by model; None if the answer is no list of models."""
    self_hosted: bool = False
    """Whether the list is one that a server of open models makes: of Litegate, vLLM, SGLang or llama.cpp."""

    def problem(self, path: str, *, is_listing: bool) -> str | None:
        """Why the upstream should get no requests; None if nothing speaks against it. `is_listing`: the path is that of the
        listing, which many upstreams do not have, limit or forbid though their chat works. An operator's own path means what it
        answers."""
        away = self.status in _AWAY if is_listing else self.status >= 400
        return f"{path} answers {self.status}" if away else None


class SharedListings:
    """The listings of one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._asking: dict[Hashable, asyncio.Task[Listing]] = {}
        self._known: dict[Hashable, tuple[float, Listing | ReplicaFailure]] = {}

    async def get(
        self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, Listing]], *, max_age: float
    ) -> Listing:
        """The result of `ask`, or of another call for the same `key` that runs or is not older than `max_age` seconds. Raises
        `ReplicaFailure`."""
        at, found = self._known.get(key, (0.0, None))
        age = self._clock() - at
        if isinstance(found, ReplicaFailure) and age < min(max_age, _FAILURE_SECONDS):
            raise ReplicaFailure(str(found))
        if isinstance(found, Listing) and age < max_age:
            return found
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._ask(key, ask, max_age))
            task.add_done_callback(_retrieved)
        return await asyncio.shield(task)

    async def _ask(
        self, key: Hashable, ask: Callable[[], Coroutine[Any, Any, Listing]], max_age: float
    ) -> Listing:
        self._forget(max_age)
        began = self._clock()
        try:
            found = await ask()
        except ReplicaFailure as failure:
            self._known[key] = began, failure
            raise
        else:
            self._known[key] = began, found
            return found
        finally:
            del self._asking[key]

    def _forget(self, max_age: float) -> None:
        oldest = self._clock() - 10 * max_age
        for key in [key for key, (at, _) in self._known.items() if at < oldest]:
            del self._known[key]


def _retrieved(task: asyncio.Task[Listing]) -> None:
    """A failure that nobody waits for any more is none of the event loop's business."""
    if not task.cancelled():
        task.exception()


_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, SharedListings] = WeakKeyDictionary()


class UpstreamListing:
    """The listings that one model's health checks ask for."""

    def __init__(self, client: ReplicaClient, config: OpenAIConfig, path: str) -> None:
        loop = asyncio.get_running_loop()
        self._shared = _of_loops.get(loop)
        if self._shared is None:
            self._shared = _of_loops[loop] = SharedListings(time.monotonic)
        self.self_hosted = False
        """Whether any answer was that of a server of open models."""
        self._client = client
        self._path = path
        self._within = config.health_timeout
        # Checks come in intervals; what another model asked in this one will do.
        self._max_age = 0.9 * config.health_interval
        self._is_listing = path.rstrip("/").endswith("/models")
        self._asked_as = (
            path,
            config.ca_file,
            config.tls_verify,
            tuple(sorted(client.headers.items())),
        )

    async def get(self, where: Endpoint) -> Listing:
        """The listing of one replica. Raises `ReplicaFailure` if there is no answer."""

        async def ask() -> Listing:
            status, body = await self._client.answer(where, self._path, within=self._within)
            if status != 200:
                return Listing(status)
            try:
                cards = _read(body).data
            except msgspec.DecodeError:
                return Listing(status)
            models = {card.id: card.max_model_len for card in cards}
            return Listing(status, models, any(map(_is_self_hosted, cards)))

        assert self._shared is not None, "it was made before"
        found = await self._shared.get((where, self._asked_as), ask, max_age=self._max_age)
        self.self_hosted = self.self_hosted or found.self_hosted
        return found

    async def problem(self, where: Endpoint) -> str | None:
        """Why a replica should get no requests, or None."""
        try:
            found = await self.get(where)
        except ReplicaFailure as failure:
            return str(failure)
        return found.problem(self._path, is_listing=self._is_listing)
