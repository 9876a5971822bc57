"""From a request to a stream: which replica is asked, what happens where one fails, and the end of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from time import perf_counter
from typing import Protocol, TypeVar

from msgspec import Struct

from gateway.errors import EngineError, EngineUnavailable, GatewayError
from gateway.protocols import EngineOutput, EngineRequest
from gateway_remote.client import Client, Reply, UndeliveredError
from gateway_remote.config import PoolConfig
from gateway_remote.failures import ReplicaBusy, ReplicaFailure
from gateway_remote.pool import Lease, Pool
from gateway_remote.replica import Outcome, Replica

logger = logging.getLogger("gateway.remote")

T = TypeVar("T")

_BETWEEN_ROUNDS = 0.1
"""Seconds before replicas that could not be reached are tried once more."""


class Call(Struct, frozen=True, eq=False):
    """A request, ready to be sent to any replica."""

    request: EngineRequest
    path: str
    body: bytes
    headers: dict[str, str]
    prompt_tokens: int
    """0 where only the server counts them."""
    chain: list[int]
    """The prompt's beginnings: see `gateway_remote.prefix`."""


class Stream(Protocol):
    """A reply that is being read. After an output with a finish reason there is nothing more to read."""

    reply: Reply

    @property
    def complete(self) -> bool:
        """Whether the server has said all that it will."""
        ...

    @property
    def count(self) -> int:
        """Tokens so far."""
        ...

    async def next(self) -> EngineOutput:
        """What is ready, as one output; waits if that is nothing.

        Raises `ReplicaFailure` for a stream that breaks off, falls silent, or makes no sense, and `GatewayError` for a
        refusal that comes late.
        """
        ...


class Language(Protocol):
    """How the replicas are spoken to."""

    def call(self, request: EngineRequest) -> Call:
        """Raises `InvalidRequest` for what cannot be asked."""
        ...

    def read(self, call: Call, reply: Reply) -> Stream: ...


class _Begun(Struct, frozen=True, eq=False):
    """A stream that has given its first output."""

    lease: Lease
    stream: Stream
    output: EngineOutput


class Dispatcher:
    """Runs requests on the replicas of a pool. `discreet`: clients are not told where replicas are or what they say of
    their failures, which then is in the log alone."""

    def __init__(
        self,
        config: PoolConfig,
        client: Client,
        pool: Pool,
        language: Language,
        *,
        discreet: bool = False,
    ) -> None:
        self._config = config
        self._client = client
        self._pool = pool
        self._language = language
        self._discreet = discreet
        self.retries = 0
        self.hedges = 0

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`. Until the first token another replica may take over; after it the stream is its own.

        Closing the generator closes the connection, by which the server aborts.
        """
        call = self._language.call(request)
        try:
            if self._config.hedge_after is None:
                begun = await self._begin(call.chain, [], partial(self._attempt, call))
            else:
                begun = await self._hedge(call)
        except EngineUnavailable as error:
            raise self._told(error) from error
        lease, stream, output = begun.lease, begun.stream, begun.output
        outcome: Outcome = "abandoned"
        reply = stream.reply
        reply.watch()
        try:
            following = stream.next
            while output.finish_reason is None:
                yield output
                output = await following()
            outcome = "served"
            self._count(lease.replica, stream, output, call)
            yield output
            if stream.complete:
                await reply.finish()
        except ReplicaFailure as failure:
            outcome = "failed"
            lease.replica.totals.broken += 1
            logger.warning(
                "%s failed in the middle of a stream: %s", lease.replica.endpoint, failure
            )
            why = "" if self._discreet else f": {failure}"
            raise EngineError(f"The engine failed in the middle of its output{why}.") from failure
        finally:
            reply.close()
            self._pool.release(lease, outcome)

    async def whole(self, path: str, body: bytes, headers: Mapping[str, str]) -> bytes:
        """The body of an answer that comes as one. Until it is complete another replica may take over.

        Raises as `generate` does; cancelling closes the connection, by which the server aborts.
        """
        try:
            lease, answer = await self._begin((), [], partial(self._fetch, path, body, headers))
        except EngineUnavailable as error:
            raise self._told(error) from error
        self._pool.release(lease, "served")
        return answer

    async def ready(self) -> None:
        """Return once some replica can serve; raises `EngineUnavailable` or `RateLimited`."""
        try:
            await self._pool.ready()
        except EngineUnavailable as error:
            raise self._told(error) from error

    def healthy(self) -> None:
        """Raises `EngineUnavailable` with the reasons if no replica can serve."""
        if all(each.draining or each.down is not None for each in self._pool.replicas):
            raise self._told(self._pool.unavailable())

    def _told(self, error: EngineUnavailable) -> EngineUnavailable:
        """What the client is told of it."""
        if not self._discreet:
            return error
        logger.warning("%s", error.message)
        return EngineUnavailable("The upstream server cannot serve at the moment. Retry later.")

    async def _begin(
        self, chain: Sequence[int], tried: list[Replica], attempt: Callable[[Lease], Awaitable[T]]
    ) -> T:
        """What `attempt` gives with the first replica with which it succeeds. `tried` grows by those that are asked."""
        broken = 0
        started = perf_counter()
        while True:
            lease = await self._pool.acquire(chain, avoiding=tried)
            tried.append(lease.replica)
            try:
                return await attempt(lease)
            except ReplicaBusy as busy:
                self._pool.release(lease, "busy", retry_after=busy.retry_after)
                failure: ReplicaFailure = busy
            except ReplicaFailure as error:
                self._pool.release(lease, "failed")
                failure = error
                broken += not isinstance(error, UndeliveredError)
            except GatewayError:
                # A refusal of the request, from a replica that is well.
                self._pool.release(lease, "served")
                raise
            except BaseException:
                # Cancelled, or a mistake of ours: the place comes back whatever happens.
                self._pool.release(lease, "abandoned")
                raise
            logger.info("%s gave no token: %s", lease.replica.endpoint, failure)
            if broken >= self._config.attempts:
                raise _given_up(failure) from failure
            if self._pool.tried_all(tried):
                if not isinstance(failure, UndeliveredError | ReplicaBusy):
                    raise _given_up(failure) from failure
                if perf_counter() - started > self._config.wait_for_replica:
                    raise _given_up(failure) from failure
                tried.clear()
                await asyncio.sleep(_BETWEEN_ROUNDS)
            self.retries += 1

    async def _attempt(self, call: Call, lease: Lease) -> _Begun:
        """The first output of one replica."""
        replica = lease.replica
        async with self._patience(replica):
            reply = await self._client.start(replica.endpoint, call.path, call.body, call.headers)
            begun: _Begun | None = None
            try:
                stream = self._language.read(call, reply)
                begun = _Begun(lease, stream, await stream.next())
            finally:
                if begun is None:
                    reply.close()
        return begun

    async def _fetch(
        self, path: str, body: bytes, headers: Mapping[str, str], lease: Lease
    ) -> tuple[Lease, bytes]:
        """The whole answer of one replica."""
        replica = lease.replica
        parts: list[bytes] = []
        async with self._patience(replica):
            reply = await self._client.start(replica.endpoint, path, body, headers)
            try:
                while (piece := reply.take()) is not None:
                    if piece:
                        parts.append(piece)
                    else:
                        await reply.arrival()
            finally:
                reply.close()
        return lease, b"".join(parts)

    @asynccontextmanager
    async def _patience(self, replica: Replica) -> AsyncIterator[None]:
        """As long as a replica has for its first token; whoever ejects it meanwhile ends the wait.

        Raises `ReplicaFailure` when it is over.
        """
        seconds = self._config.first_token_timeout
        patience = asyncio.timeout(seconds)

        def give_back() -> None:
            if not patience.expired():
                patience.reschedule(0)

        replica.unbegun.add(give_back)
        try:
            async with patience:
                yield
        except TimeoutError as error:
            reason = replica.down or f"no token in {seconds:g} seconds"
            raise ReplicaFailure(reason) from error
        finally:
            replica.unbegun.discard(give_back)

    async def _hedge(self, call: Call) -> _Begun:
        """As `_begin`, but after a while a second replica is asked too, and the quicker one is used."""
        tried: list[Replica] = []
        attempt = partial(self._attempt, call)
        tasks = [asyncio.create_task(self._begin(call.chain, tried, attempt))]
        winner: asyncio.Task[_Begun] | None = None
        try:
            await asyncio.wait(tasks, timeout=self._config.hedge_after)
            if not tasks[0].done() and self._pool.has_spare(tried):
                self.hedges += 1
                tasks.append(asyncio.create_task(self._begin(call.chain, tried, attempt)))
            pending = set(tasks)
            while pending and winner is None:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                winner = next((task for task in done if task.exception() is None), None)
            return (winner or tasks[0]).result()
        finally:
            losers = [task for task in tasks if task is not winner]
            for task in losers:
                task.cancel()
            for result in await asyncio.gather(*losers, return_exceptions=True):
                if isinstance(result, _Begun):
                    result.stream.reply.close()
                    self._pool.release(result.lease, "abandoned")

    def _count(self, replica: Replica, stream: Stream, last: EngineOutput, call: Call) -> None:
        totals = replica.totals
        totals.output_tokens += stream.count
        totals.prompt_tokens += call.prompt_tokens or last.prompt_tokens or 0
        totals.cached_tokens += last.cached_tokens or 0


def _given_up(failure: ReplicaFailure) -> EngineUnavailable:
    return EngineUnavailable(f"No engine could serve the request: {failure}. Retry later.")
