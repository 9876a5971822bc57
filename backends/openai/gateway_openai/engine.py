"""The engine: messages go out to one of the upstream's replicas, deltas come back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from gateway.errors import Unsupported
from gateway.protocols import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineOutput,
    EngineRequest,
    ModelInfo,
)
from gateway_openai.body import body_of
from gateway_openai.building import DeltaBuilder
from gateway_openai.chat_stream import ChatBuilder, read_chat
from gateway_openai.config import OpenAIConfig
from gateway_openai.errors import Translator
from gateway_openai.responses_stream import ResponsesBuilder, read_responses
from gateway_remote.client import Client, Reply
from gateway_remote.dispatch import Call, Dispatcher, Stream
from gateway_remote.generation import Generation
from gateway_remote.pool import Pool
from gateway_remote.prefix import prefix_chain
from gateway_remote.samples import Sample, describe, samples
from gateway_remote.vectors import VectorCalls


class OpenAIEngine:
    """An upstream at message level. Satisfies `gateway.protocols.Engine`; bound to the event loop that opened it."""

    def __init__(
        self,
        *,
        config: OpenAIConfig,
        info: ModelInfo,
        language: MessageLanguage,
        client: Client,
        pool: Pool,
    ) -> None:
        self._config = config
        self._info = info
        self._language = language
        self._pool = pool
        self._client = client
        self._dispatcher = Dispatcher(config, client, pool, language, discreet=True)
        self._vectors = VectorCalls(
            self._dispatcher, f"{language.prefix}/embeddings", cut_here=False
        )

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> frozenset[Capability]:
        return capabilities_of(self._config)

    @property
    def tokenizer(self) -> None:
        """The upstream's tokens are its own."""
        return

    def describe(self) -> list[dict[str, object]]:
        """The replicas and how they do, one row each, for `gateway models`."""
        return describe(self._pool.replicas)

    def metrics(self) -> list[Sample]:
        """What is counted, as of now."""
        dispatcher = self._dispatcher
        return samples(self._pool, retries=dispatcher.retries, hedges=dispatcher.hedges)

    @property
    def embedding(self) -> EmbeddingInfo:
        """Only the upstream knows."""
        return EmbeddingInfo(shorter=None)

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """All vectors; see `EmbeddingEngine.embed`."""
        if request.priority:
            raise Unsupported("The upstream takes no priority. Leave it out.", param="priority")
        fields: dict[str, Any] = {"model": self._language.model}
        if request.user is not None and "user" in self._config.forward:
            fields["user"] = request.user
        return await self._vectors.embed(request, fields | self._config.extra_body)

    async def health(self) -> None:
        """Return if some replica can serve; raise `EngineUnavailable` if none can."""
        self._dispatcher.healthy()

    async def check(self, request: EngineRequest) -> None:
        """Refuse what the upstream is known not to do; what only it can know is refused by it."""
        self._language.check(request)
        await self._dispatcher.ready()

    def generate(self, request: EngineRequest) -> AsyncGenerator[EngineOutput, None]:
        """Generate for `request`; see `Dispatcher.generate`."""
        return self._dispatcher.generate(request)


class MessageLanguage:
    """One of the two APIs."""

    def __init__(
        self, config: OpenAIConfig, model: str, translator: Translator, pool: Pool, prefix: str
    ) -> None:
        """`model` is the upstream's name of it; `prefix` what the routes begin with."""
        self._config = config
        self.model = model
        self.prefix = prefix
        self._translator = translator
        self._pool = pool
        route = "/chat/completions" if config.api == "chat" else "/responses"
        self._path = prefix + route
        self._encode = msgspec.json.Encoder().encode

    def check(self, request: EngineRequest) -> None:
        """Raises `InvalidRequest` for what cannot be asked."""
        body_of(request, self._config, self.model)

    def call(self, request: EngineRequest) -> Call:
        made = body_of(request, self._config, self.model)
        chain: list[int] = []
        if len(self._pool.replicas) > 1 and self._config.choice == "affinity":
            tools = self._encode(made.get("tools"))
            messages = self._encode(made["messages" if self._config.api == "chat" else "input"])
            seed = (request.cache_salt, made.get("instructions"), tools)
            chain = prefix_chain(messages, block=self._config.affinity_block, seed=seed)
        headers = {
            "Accept": "text/event-stream",
            "X-Request-Id": request.request_id,
            **(request.trace_headers or {}),
        }
        return Call(request, self._path, self._encode(made), headers, 0, chain)

    def read(self, call: Call, reply: Reply) -> Stream:
        request, translator = call.request, self._translator
        builder: DeltaBuilder
        if self._config.api == "chat":
            builder = ChatBuilder(request, translator, self._config.reasoning_fields)
            return Generation(reply, read_chat, builder)
        builder = ResponsesBuilder(request, translator)
        return Generation(reply, read_responses, builder)


def capabilities_of(config: OpenAIConfig) -> frozenset[Capability]:
    """What the configuration says that the upstream can do."""
    if config.task == "embed":
        return frozenset({"embeddings"})
    found: set[Capability] = {"messages"}
    if config.task == "both":
        found.add("embeddings")
    takes = config.takes
    if takes.logprobs:
        found.add("logprobs")
    if takes.json_schema:
        found.add("json_schema")
    if takes.json_object:
        found.add("json_object")
    if takes.images:
        found.add("images")
    if config.extends("structured_outputs"):
        found |= {"regex", "lark", "gbnf"}
    return frozenset(found)
