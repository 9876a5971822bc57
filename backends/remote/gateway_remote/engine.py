"""The engine: a request goes to one of the replicas, its stream comes back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from time import perf_counter

import msgspec
from msgspec import Struct

from gateway.errors import EngineError, EngineUnavailable, GatewayError
from gateway.protocols import Capability, EngineOutput, EngineRequest, ModelInfo
from gateway_remote.client import Client, Reply, UndeliveredError
from gateway_remote.config import RemoteConfig
from gateway_remote.dialects import Dialect
from gateway_remote.failures import ReplicaBusy, ReplicaFailure
from gateway_remote.generation import Generation
from gateway_remote.output import OutputBuilder
from gateway_remote.pool import Lease, Pool
from gateway_remote.prefix import prefix_chain
from gateway_remote.replica import Outcome, Replica
from gateway_remote.samples import Sample, describe, samples
from gateway_remote.tokenizer import JsonTokenizer

logger = logging.getLogger("gateway.remote")

_BETWEEN_ROUNDS = 0.1
"""Seconds before replicas that could not be reached are tried once more."""


class _Call(Struct, frozen=True, eq=False):
    """A request, ready to be sent to any replica."""

    request: EngineRequest
    body: bytes
    headers: dict[str, str]
    prompt_tokens: int
    chain: list[int]


class _Begun(Struct, frozen=True, eq=False):
    """A stream that has given its first output."""

    lease: Lease
    generation: Generation
    output: EngineOutput


class RemoteEngine:
    """Engines behind HTTP. Satisfies `gateway.protocols.Engine`; bound to the event loop that opened it."""

    def __init__(
        self,
        *,
        config: RemoteConfig,
        info: ModelInfo,
        dialect: Dialect,
        tokenizer: JsonTokenizer,
        client: Client,
        pool: Pool,
    ) -> None:
        self._config = config
        self._info = info
        self._dialect = dialect
        self._tokenizer = tokenizer
        self._client = client
        self._pool = pool
        self._retries = 0
        self._hedges = 0
        self._encode = msgspec.json.Encoder().encode

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._dialect.capabilities

    @property
    def tokenizer(self) -> JsonTokenizer:
        return self._tokenizer

    def describe(self) -> list[dict[str, object]]:
        """The replicas and how they do, one row each, for `gateway models`."""
        return describe(self._pool.replicas)

    def metrics(self) -> list[Sample]:
        """What is counted, as of now."""
        return samples(self._pool.replicas, retries=self._retries, hedges=self._hedges)

    async def health(self) -> None:
        """Return if some replica can serve; raise `EngineUnavailable` with the reasons if none can."""
        if all(each.draining or each.down is not None for each in self._pool.replicas):
            raise self._pool.unavailable()

    async def check(self, request: EngineRequest) -> None:
        """Refuse what `generate` would refuse here; what only the servers know is refused by them."""
        self._dialect.body(request, self._dialect.prompt(request))
        await self._pool.ready()

    async def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`. Until the first token another replica may take over; after it the stream is its own.

        Closing the generator closes the connection, by which the server aborts.
        """
        call = self._call(request)
        begun = await (
            self._begin(call, []) if self._config.hedge_after is None else self._hedge(call)
        )
        lease, generation, output = begun.lease, begun.generation, begun.output
        outcome: Outcome = "abandoned"
        reply = generation.reply
        reply.watch()
        try:
            following = generation.next
            while output.finish_reason is None:
                yield output
                output = await following()
            outcome = "served"
            self._count(lease.replica, generation.builder, output, call)
            yield output
            if generation.builder.complete:
                await reply.finish()
        except ReplicaFailure as failure:
            outcome = "failed"
            lease.replica.totals.broken += 1
            logger.warning(
                "%s failed in the middle of a stream: %s", lease.replica.endpoint, failure
            )
            raise EngineError(
                f"The engine failed in the middle of its output: {failure}."
            ) from failure
        finally:
            reply.close()
            self._pool.release(lease, outcome)

    def _call(self, request: EngineRequest) -> _Call:
        dialect = self._dialect
        prompt = dialect.prompt(request)
        body = self._encode(dialect.body(request, prompt))
        chain: list[int] = []
        if len(self._pool.replicas) > 1:
            seed = (request.cache_salt, request.adapter)
            chain = prefix_chain(prompt, block=self._config.affinity_block, seed=seed)
        headers = {"X-Request-Id": request.request_id, **(request.trace_headers or {})}
        return _Call(request, body, headers, len(prompt), chain)

    async def _begin(self, call: _Call, tried: list[Replica]) -> _Begun:
        """The first output of the first replica that gives one. `tried` grows by those that are asked."""
        broken = 0
        started = perf_counter()
        while True:
            lease = await self._pool.acquire(call.chain, avoiding=tried)
            tried.append(lease.replica)
            try:
                return await self._attempt(call, lease)
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
            self._retries += 1

    async def _attempt(self, call: _Call, lease: Lease) -> _Begun:
        """The first output of one replica; whoever ejects the replica meanwhile ends the wait."""
        replica, request = lease.replica, call.request
        builder = OutputBuilder(
            self._tokenizer,
            request.sampling,
            eos_is_last=self._dialect.eos_is_last,
            prompt_tokens=call.prompt_tokens,
        )
        reply: Reply | None = None
        begun: _Begun | None = None
        seconds = self._config.first_token_timeout
        patience = asyncio.timeout(seconds)

        def give_back() -> None:
            if not patience.expired():
                patience.reschedule(0)

        try:
            async with patience:
                replica.unbegun.add(give_back)
                reply = await self._client.start(
                    replica.endpoint, self._dialect.path, call.body, call.headers
                )
                generation = Generation(reply, self._dialect, builder)
                begun = _Begun(lease, generation, await generation.next())
        except TimeoutError as error:
            reason = f"it is {replica.down}" if replica.down else f"no token in {seconds:g} seconds"
            raise ReplicaFailure(reason) from error
        finally:
            replica.unbegun.discard(give_back)
            if begun is None and reply is not None:
                reply.close()
        return begun

    async def _hedge(self, call: _Call) -> _Begun:
        """As `_begin`, but after a while a second replica is asked too, and the quicker one is used."""
        tried: list[Replica] = []
        tasks = [asyncio.create_task(self._begin(call, tried))]
        winner: asyncio.Task[_Begun] | None = None
        try:
            await asyncio.wait(tasks, timeout=self._config.hedge_after)
            if not tasks[0].done() and self._pool.has_spare(tried):
                self._hedges += 1
                tasks.append(asyncio.create_task(self._begin(call, tried)))
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
                    result.generation.reply.close()
                    self._pool.release(result.lease, "abandoned")

    def _count(
        self, replica: Replica, builder: OutputBuilder, last: EngineOutput, call: _Call
    ) -> None:
        totals = replica.totals
        totals.output_tokens += builder.count
        totals.prompt_tokens += call.prompt_tokens
        totals.cached_tokens += last.cached_tokens or 0


def _given_up(failure: ReplicaFailure) -> EngineUnavailable:
    return EngineUnavailable(f"No engine could serve the request: {failure}. Retry later.")
