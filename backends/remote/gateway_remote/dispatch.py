"""Dispatches requests to replicas: choice, retries, hedging and streaming."""

from __future__ import annotations

import asyncio
import logging
import math
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

from gateway.sdk import EngineError, EngineOutput, EngineRequest, EngineUnavailable, GatewayError
from gateway_remote.client import ReplicaClient, StreamedReply, UndeliveredError
from gateway_remote.config import PoolConfig
from gateway_remote.failures import GatewayRefused, ReplicaBusy, ReplicaFailure
from gateway_remote.pool import Lease, Pool
from gateway_remote.replica import Endpoint, Outcome, Replica

logger = logging.getLogger("gateway.remote")

T = TypeVar("T")

REFUSED = "upstream_refused"
"""Code of the error of a request that the server has refused because of the gateway itself."""
_BETWEEN_ROUNDS = 0.1
"""Seconds before unreachable replicas are retried."""


class EncodedRequest(Struct, frozen=True, eq=False):
    """A request encoded for any replica."""

    request: EngineRequest
    path: str
    body: bytes
    headers: dict[str, str]
    prompt_tokens: int
    """0 if only the server counts them."""
    chain: list[int]
    """Hashes of the prompt's prefixes; see `gateway_remote.prefix`."""
    body_for: Callable[[Endpoint], Awaitable[bytes]] | None = None
    """Makes the body for one replica, if it depends on the replica; `body` is then empty."""


class ReplyStream(Protocol):
    """A reply being read. The output with a finish reason is the last."""

    reply: StreamedReply

    @property
    def complete(self) -> bool:
        """Whether the server's reply is complete."""
        ...

    @property
    def count(self) -> int:
        """Number of tokens so far."""
        ...

    def poll(self) -> EngineOutput | None:
        """Return the available output, or None if there is none: `reply.arrival` then has to be awaited.

        Raises `ReplicaFailure` if the stream breaks, stalls or is malformed, and `GatewayError` for a late rejection.
        """
        ...


class Language(Protocol):
    """Encodes requests for the replicas."""

    async def prepare(self, request: EngineRequest) -> None:
        """Do the slow part of `call`. Raises `InvalidRequest` for a request that cannot be sent."""
        ...

    def call(self, request: EngineRequest) -> EncodedRequest:
        """Encode `request`. Raises `InvalidRequest` if it cannot be sent."""
        ...

    def read(self, call: EncodedRequest, reply: StreamedReply) -> ReplyStream: ...


class _StartedStream(Struct, frozen=True, eq=False):
    """A stream and its first output."""

    lease: Lease
    stream: ReplyStream
    output: EngineOutput


class _PushedOutputs:
    """Outputs of a reply, which are pushed as they arrive while the generator waits for the next."""

    __slots__ = ("_failure", "_poll", "_push", "_refused", "_reply")

    def __init__(self, stream: ReplyStream, push: Callable[[EngineOutput], bool]) -> None:
        self._reply = stream.reply
        self._poll = stream.poll
        self._push = push
        self._refused: EngineOutput | None = None
        self._failure: Exception | None = None

    def arrived(self) -> bool:
        """Push what has arrived. Returns whether all of it was taken."""
        try:
            while (output := self._poll()) is not None:
                if not self._push(output):
                    self._refused = output
                    return False
        except Exception as error:
            self._failure = error
            return False
        self._reply.wait_anew()
        return True

    async def wait(self) -> EngineOutput:
        """Wait for the next output that is not taken, when there is none yet. Raises what `ReplyStream.poll` raises."""
        output: EngineOutput | None = None
        while output is None:
            await self._reply.arrival(self.arrived)
            if self._failure is not None:
                failure, self._failure = self._failure, None
                try:
                    raise failure
                finally:
                    del failure  # it refers to this frame
            output, self._refused = self._refused, None
            if output is None:
                output = self._poll()
        return output


class Dispatcher:
    """Runs requests on the replicas of a pool.

    If `discreet`, replicas' addresses and error messages appear only in the log, not in messages to clients.
    """

    def __init__(
        self,
        config: PoolConfig,
        client: ReplicaClient,
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

    async def generate(
        self, request: EngineRequest, push: Callable[[EngineOutput], bool]
    ) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`. `push`: see `PushingEngine`. Another replica may take over before the first token, none after it.

        Closing the generator closes the connection, which aborts the request on the server.
        """
        await self._language.prepare(request)
        call = self._language.call(request)
        try:
            if self._config.hedge_after is None:
                begun = await self._begin(call.chain, [], partial(self._attempt, call))
            else:
                begun = await self._hedge(call)
        except EngineUnavailable as error:
            raise self._client_error(error) from error
        lease, stream, output = begun.lease, begun.stream, begun.output
        outcome: Outcome = "abandoned"
        reply = stream.reply
        reply.watch()
        try:
            poll, pushed = stream.poll, _PushedOutputs(stream, push)
            while output.finish_reason is None:
                yield output
                output = poll() or await pushed.wait()
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
            reply.close(content_complete=outcome == "served" and stream.complete)
            self._pool.release(lease, outcome)

    async def answer_to(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        most_bytes: int | None = None,
    ) -> bytes:
        """The body of an unstreamed response. Another replica may take over until it is complete, also for one of more
        than `most_bytes`.

        Raises as `generate` does. Cancelling closes the connection, which aborts the request on the server.
        """
        try:
            lease, answer = await self._begin(
                (), [], partial(self._fetch, path, body, headers, most_bytes)
            )
        except EngineUnavailable as error:
            raise self._client_error(error) from error
        self._pool.release(lease, "served")
        return answer

    async def ready(self) -> None:
        """Return once some replica can serve; raises `EngineUnavailable` or `RateLimited`."""
        try:
            await self._pool.ready()
        except EngineUnavailable as error:
            raise self._client_error(error) from error

    def healthy(self) -> None:
        """Raises `EngineUnavailable` with the reasons if no replica can serve."""
        if all(each.draining or each.down is not None for each in self._pool.replicas):
            raise self._client_error(self._pool.unavailable())

    def _client_error(self, error: EngineUnavailable) -> EngineUnavailable:
        """The error as the client sees it."""
        if not self._discreet or error.code == REFUSED:
            return error
        logger.warning("%s", error.message)
        return EngineUnavailable(
            "The upstream server cannot serve at the moment. Retry later.", headers=error.headers
        )

    def _refused_error(self, refused: GatewayRefused) -> EngineUnavailable:
        """A 503 that clients and batches do not send again by themselves; another model of a route may answer."""
        why = "" if self._discreet else f": {refused}"
        return EngineUnavailable(
            f"The upstream server of this model refuses this server{why}. Its operator has to look at it: the log says why.",
            code=REFUSED,
            headers={"x-should-retry": "false"},
        )

    async def _begin(
        self, chain: Sequence[int], tried: list[Replica], attempt: Callable[[Lease], Awaitable[T]]
    ) -> T:
        """The result of `attempt` on the first replica that succeeds. Replicas are added to `tried` as they are
        used."""
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
            except GatewayRefused as refused:
                # It is there, and answers. The other replicas have the same key.
                self._pool.release(lease, "served")
                raise self._refused_error(refused) from refused
            except ReplicaFailure as error:
                self._pool.release(lease, "failed")
                failure = error
                broken += not isinstance(error, UndeliveredError)
            except GatewayError:
                # The request was rejected by a healthy replica.
                self._pool.release(lease, "served")
                raise
            except BaseException:
                # Cancellation or an internal error: release the place in any case.
                self._pool.release(lease, "abandoned")
                raise
            logger.info("%s gave no token: %s", lease.replica.endpoint, failure)
            if broken >= self._config.attempts:
                raise _gave_up_error(failure) from failure
            if self._pool.tried_all(tried):
                if not isinstance(failure, UndeliveredError | ReplicaBusy):
                    raise _gave_up_error(failure) from failure
                if perf_counter() - started > self._config.wait_for_replica:
                    raise _gave_up_error(failure) from failure
                tried.clear()
                await asyncio.sleep(_BETWEEN_ROUNDS)
            self.retries += 1

    async def _attempt(self, call: EncodedRequest, lease: Lease) -> _StartedStream:
        """The first output from one replica."""
        replica = lease.replica
        async with self._patience(replica):
            where, body = replica.endpoint, call.body
            if call.body_for is not None:
                body = await call.body_for(where)
            reply = await self._client.start(where, call.path, body, call.headers)
            begun: _StartedStream | None = None
            try:
                stream = self._language.read(call, reply)
                while (output := stream.poll()) is None:
                    await reply.arrival()
                begun = _StartedStream(lease, stream, output)
            finally:
                if begun is None:
                    reply.close()
        return begun

    async def _fetch(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        most_bytes: int | None,
        lease: Lease,
    ) -> tuple[Lease, bytes]:
        """The whole response of one replica."""
        replica = lease.replica
        parts: list[bytes] = []
        size = 0
        async with self._patience(replica):
            reply = await self._client.start(replica.endpoint, path, body, headers)
            try:
                while (piece := reply.take()) is not None:
                    if piece:
                        size += len(piece)
                        if most_bytes is not None and size > most_bytes:
                            raise ReplicaFailure(f"its answer has more than {most_bytes} bytes")
                        parts.append(piece)
                    else:
                        await reply.arrival()
            finally:
                reply.close()
        return lease, b"".join(parts)

    @asynccontextmanager
    async def _patience(self, replica: Replica) -> AsyncIterator[None]:
        """Apply the first-token timeout of a replica. Ejecting the replica also ends the wait.

        Raises `ReplicaFailure` in both cases.
        """
        seconds = self._config.first_token_timeout
        patience = asyncio.timeout(seconds)

        def give_back() -> None:
            if not patience.expired():
                patience.reschedule(0)

        replica.waiting_for_first_token.add(give_back)
        try:
            async with patience:
                yield
        except TimeoutError as error:
            reason = replica.down or f"no token in {seconds:g} seconds"
            raise ReplicaFailure(reason) from error
        finally:
            replica.waiting_for_first_token.discard(give_back)

    async def _hedge(self, call: EncodedRequest) -> _StartedStream:
        """Like `_begin`, but sends the request to a second replica after `hedge_after` and uses the faster one."""
        tried: list[Replica] = []
        attempt = partial(self._attempt, call)
        tasks = [asyncio.create_task(self._begin(call.chain, tried, attempt))]
        winner: asyncio.Task[_StartedStream] | None = None
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
                if isinstance(result, _StartedStream):
                    result.stream.reply.close()
                    self._pool.release(result.lease, "abandoned")

    def _count(
        self, replica: Replica, stream: ReplyStream, last: EngineOutput, call: EncodedRequest
    ) -> None:
        totals = replica.totals
        totals.output_tokens += stream.count
        totals.prompt_tokens += call.prompt_tokens or last.prompt_tokens or 0
        totals.cached_tokens += last.cached_tokens or 0


def _gave_up_error(failure: ReplicaFailure) -> EngineUnavailable:
    wait = failure.retry_after
    return EngineUnavailable(
        f"No engine could serve the request: {failure}. Retry later.",
        headers=None if wait is None else {"retry-after": str(math.ceil(wait))},
    )
