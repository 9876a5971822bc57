"""The engine: sends prompts as token ids to one of the replicas and returns tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from gateway.sdk import Capability, EngineRequest, ModelInfo, PlacedMedia, Prompt, TokensPrompt
from gateway_remote.adapter_loading import AdapterLoading
from gateway_remote.client import ReplicaClient, StreamedReply
from gateway_remote.config import RemoteConfig
from gateway_remote.connecting import ReplicaEngine
from gateway_remote.dialects import Dialect
from gateway_remote.dispatch import Dispatcher, EncodedRequest
from gateway_remote.generation import RemoteGeneration
from gateway_remote.media import LlamaServerMedia
from gateway_remote.output import OutputBuilder
from gateway_remote.pool import Pool
from gateway_remote.prefix import prefix_chain
from gateway_remote.replica import Endpoint
from gateway_remote.tokenizer import JsonTokenizer


class RemoteEngine(ReplicaEngine):
    """Engines over HTTP. Implements `gateway.sdk.Engine`; bound to the event loop that opened it."""

    def __init__(
        self,
        *,
        config: RemoteConfig,
        info: ModelInfo,
        dialect: Dialect,
        tokenizer: JsonTokenizer,
        client: ReplicaClient,
        pool: Pool,
    ) -> None:
        self._media = LlamaServerMedia(client, pool, tokenizer)
        language = TokenLanguage(dialect, tokenizer, pool, config.affinity_block, self._media)
        super().__init__(info, pool, Dispatcher(config, client, pool, language))
        self._dialect = dialect
        self.tokenizer = tokenizer
        self._adapters = AdapterLoading(client, pool, dialect.name)

    async def load_adapter(self, name: str, path: str) -> None:
        """Load an adapter on all servers. Servers that are discovered or started later do not have it."""
        await self._adapters.load(name, path)
        self._serve_adapters((*self.info.adapters, name))

    async def unload_adapter(self, name: str) -> None:
        self._serve_adapters(tuple(each for each in self.info.adapters if each != name))
        await self._adapters.unload(name)

    def _serve_adapters(self, names: tuple[str, ...]) -> None:
        self.info = msgspec.structs.replace(self.info, adapters=names)
        self._dialect.served = msgspec.structs.replace(self._dialect.served, adapters=names)

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._dialect.capabilities

    async def check(self, request: EngineRequest) -> None:
        """Reject what `generate` would reject locally. The servers reject the rest."""
        prompt = self._dialect.prompt(request)
        await self._dialect.prepare(request)
        self._dialect.body(request, prompt)
        if media := media_of(request.prompt):
            await asyncio.to_thread(self._media.check, prompt, media)
            length = len(prompt) + await self._media.count(media)
            self._dialect.room(request.sampling, length)
        await self._dispatcher.ready()

    async def count(self, prompt: TokensPrompt) -> int:
        """The length of `prompt` in tokens. Asks a server for those of images and sounds."""
        return len(prompt.token_ids) + await self._media.count(prompt.media)


class TokenLanguage:
    """Encodes prompts and decodes outputs as token ids, in a server's dialect."""

    def __init__(
        self,
        dialect: Dialect,
        tokenizer: JsonTokenizer,
        pool: Pool,
        affinity_block: int,
        media: LlamaServerMedia,
    ) -> None:
        self._dialect = dialect
        self.tokenizer = tokenizer
        self._pool = pool
        self._affinity_block = affinity_block
        self._media = media
        self._encode = msgspec.json.Encoder().encode

    async def prepare(self, request: EngineRequest) -> None:
        await self._dialect.prepare(request)
        if media := media_of(request.prompt):
            await self._media.count(media)

    def call(self, request: EngineRequest) -> EncodedRequest:
        dialect = self._dialect
        prompt = dialect.prompt(request)
        fields = dialect.body(request, prompt)
        media = media_of(request.prompt)
        length = len(prompt)
        if media:
            length += self._media.counted(media)
            fields["n_predict"] = dialect.room(request.sampling, length)
        body = b"" if media else self._encode(fields)
        chain: list[int] = []
        if len(self._pool.replicas) > 1:
            seed = (request.prefix_salt, request.adapter)
            chain = prefix_chain(prompt, block=self._affinity_block, seed=seed)
        headers = {"X-Request-Id": request.request_id, **(request.trace_headers or {})}
        if request.data_parallel_rank is not None:
            headers["X-data-parallel-rank"] = str(request.data_parallel_rank)

        async def body_for(where: Endpoint) -> bytes:
            own = {**fields, "prompt": await self._media.prompt(where, prompt, media)}
            return await asyncio.to_thread(self._encode, own)

        return EncodedRequest(
            request,
            dialect.path,
            body,
            headers,
            length,
            chain,
            body_for if media else None,
        )

    def read(self, call: EncodedRequest, reply: StreamedReply) -> RemoteGeneration[OutputBuilder]:
        builder = OutputBuilder(
            self.tokenizer,
            call.request.sampling,
            eos_is_last=self._dialect.eos_is_last,
            prompt_tokens=call.prompt_tokens,
        )
        return RemoteGeneration(reply, self._dialect.read, builder)


def media_of(prompt: Prompt) -> Sequence[PlacedMedia]:
    """The images and sounds of a prompt."""
    return prompt.media if isinstance(prompt, TokensPrompt) else ()
