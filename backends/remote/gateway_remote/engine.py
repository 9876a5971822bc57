"""The engine: prompts go out as token ids to one of the replicas, tokens come back."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from gateway.protocols import Capability, EngineOutput, EngineRequest, ModelInfo
from gateway_remote.client import Client, Reply
from gateway_remote.config import RemoteConfig
from gateway_remote.dialects import Dialect
from gateway_remote.dispatch import Call, Dispatcher
from gateway_remote.generation import Generation
from gateway_remote.output import OutputBuilder
from gateway_remote.pool import Pool
from gateway_remote.prefix import prefix_chain
from gateway_remote.samples import Sample, describe, samples
from gateway_remote.tokenizer import JsonTokenizer


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
        self._info = info
        self._dialect = dialect
        self._tokenizer = tokenizer
        self._client = client
        self._pool = pool
        language = TokenLanguage(dialect, tokenizer, pool, config.affinity_block)
        self._dispatcher = Dispatcher(config, client, pool, language)

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
        dispatcher = self._dispatcher
        return samples(self._pool, retries=dispatcher.retries, hedges=dispatcher.hedges)

    async def health(self) -> None:
        """Return if some replica can serve; raise `EngineUnavailable` with the reasons if none can."""
        self._dispatcher.healthy()

    async def check(self, request: EngineRequest) -> None:
        """Refuse what `generate` would refuse here; what only the servers know is refused by them."""
        self._dialect.body(request, self._dialect.prompt(request))
        await self._dispatcher.ready()

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`; see `Dispatcher.generate`."""
        return self._dispatcher.generate(request)


class TokenLanguage:
    """Prompts and outputs as token ids, in a server's dialect."""

    def __init__(
        self, dialect: Dialect, tokenizer: JsonTokenizer, pool: Pool, affinity_block: int
    ) -> None:
        self._dialect = dialect
        self._tokenizer = tokenizer
        self._pool = pool
        self._affinity_block = affinity_block
        self._encode = msgspec.json.Encoder().encode

    def call(self, request: EngineRequest) -> Call:
        dialect = self._dialect
        prompt = dialect.prompt(request)
        body = self._encode(dialect.body(request, prompt))
        chain: list[int] = []
        if len(self._pool.replicas) > 1:
            seed = (request.cache_salt, request.adapter)
            chain = prefix_chain(prompt, block=self._affinity_block, seed=seed)
        headers = {"X-Request-Id": request.request_id, **(request.trace_headers or {})}
        return Call(request, dialect.path, body, headers, len(prompt), chain)

    def read(self, call: Call, reply: Reply) -> Generation[OutputBuilder]:
        builder = OutputBuilder(
            self._tokenizer,
            call.request.sampling,
            eos_is_last=self._dialect.eos_is_last,
            prompt_tokens=call.prompt_tokens,
        )
        return Generation(reply, self._dialect.read, builder)
