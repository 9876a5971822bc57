"""The engine: sends messages to one of the upstream's replicas and returns deltas."""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.sdk import (
    Capability,
    EmbeddingInfo,
    EmbeddingRequest,
    EmbeddingResult,
    EngineRequest,
    ModelInfo,
    ScoreRequest,
    ScoreResult,
    ScoringInfo,
    Unsupported,
)
from gateway_openai.body import body_of
from gateway_openai.building import DeltaBuilder
from gateway_openai.chat_stream import ChatBuilder, read_chat
from gateway_openai.config import OpenAIConfig
from gateway_openai.errors import Translator
from gateway_openai.listings import UpstreamListing
from gateway_openai.responses_stream import ResponsesBuilder, read_responses
from gateway_remote.client import ReplicaClient, StreamedReply
from gateway_remote.connecting import ReplicaEngine
from gateway_remote.dispatch import Dispatcher, EncodedRequest, ReplyStream
from gateway_remote.generation import RemoteGeneration
from gateway_remote.pool import Pool
from gateway_remote.prefix import prefix_chain
from gateway_remote.score_calls import ScoreCalls
from gateway_remote.vectors import VectorCalls


class OpenAIEngine(ReplicaEngine):
    """An OpenAI-compatible upstream. Implements `gateway.sdk.Engine`; bound to the event loop that opened it."""

    def __init__(
        self,
        *,
        config: OpenAIConfig,
        info: ModelInfo,
        language: MessageLanguage,
        client: ReplicaClient,
        pool: Pool,
    ) -> None:
        super().__init__(info, pool, Dispatcher(config, client, pool, language, discreet=True))
        self._config = config
        self._language = language
        self._vectors = VectorCalls(
            self._dispatcher, f"{language.prefix}/embeddings", cut_here=False
        )
        self._scores = ScoreCalls(self._dispatcher, f"{language.prefix}/rerank")

    @property
    def capabilities(self) -> frozenset[Capability]:
        return capabilities_of(self._config)

    @property
    def last_priority(self) -> int | None:
        """See `PrioritizingEngine`."""
        return 2**31 - 1 if "priority" in self._config.extensions else None

    @property
    def tokenizer(self) -> None:
        """None: the upstream does not expose its tokenizer."""
        return

    @property
    def embedding(self) -> EmbeddingInfo:
        """Leaves `shorter` unknown: only the upstream knows whether it shortens vectors."""
        return EmbeddingInfo(shorter=None)

    async def embed(self, request: EmbeddingRequest) -> EmbeddingResult:
        """Return all vectors; see `EmbeddingEngine.embed`."""
        return await self._vectors.embed(request, self._fields(request) | self._config.extra_body)

    @property
    def scoring(self) -> ScoringInfo:
        return ScoringInfo()

    async def score(self, request: ScoreRequest) -> ScoreResult:
        """Return all scores; see `ScoringEngine.score`."""
        fields = {**self._fields(request), "return_documents": False}
        return await self._scores.score(request, fields | self._config.extra_body)

    def _fields(self, request: EmbeddingRequest | ScoreRequest) -> dict[str, Any]:
        """The fields that requests for vectors and scores share. Raises `Unsupported`."""
        fields: dict[str, Any] = {"model": self._language.model}
        if request.priority:
            if "priority" not in self._config.extensions:
                raise Unsupported("The upstream takes no priority. Leave it out.", param="priority")
            fields["priority"] = request.priority
        if request.user is not None and "user" in self._config.forward:
            fields["user"] = request.user
        return fields

    async def check(self, request: EngineRequest) -> None:
        """Reject requests that the upstream is known not to support. The upstream itself rejects the rest."""
        self._language.check(request)
        await self._dispatcher.ready()


class MessageLanguage:
    """Sends requests by one of the two APIs. Implements `gateway_remote.dispatch.Language`."""

    def __init__(
        self,
        config: OpenAIConfig,
        model: str,
        translator: Translator,
        pool: Pool,
        prefix: str,
        listing: UpstreamListing | None,
    ) -> None:
        """`model` is the model's name at the upstream; `prefix` is the path that all routes start with. `listing` says what kind of
        server it is."""
        self._config = config
        self._listing = listing if config.strict_default is None else None
        self.model = model
        self.prefix = prefix
        self._translator = translator
        self._pool = pool
        route = "/chat/completions" if config.api == "chat" else "/responses"
        self._path = prefix + route
        self._encode = msgspec.json.Encoder().encode

    def check(self, request: EngineRequest) -> None:
        """Raises `InvalidRequest` or `Unsupported` for a request that cannot be sent."""
        self._body_of(request)

    def _body_of(self, request: EngineRequest) -> dict[str, Any]:
        listing = self._listing
        if listing is not None and listing.self_hosted:
            self._config = msgspec.structs.replace(self._config, strict_default=False)
            self._listing = None
        return body_of(request, self._config, self.model)

    async def prepare(self, request: EngineRequest) -> None:
        """Does nothing: schemas are sent to upstreams unchanged."""

    def call(self, request: EngineRequest) -> EncodedRequest:
        made = self._body_of(request)
        chain: list[int] = []
        if len(self._pool.replicas) > 1 and self._config.choice == "affinity":
            tools = self._encode(made.get("tools"))
            messages = self._encode(made["messages" if self._config.api == "chat" else "input"])
            seed = (request.prefix_salt, made.get("instructions"), tools)
            chain = prefix_chain(messages, block=self._config.affinity_block, seed=seed)
        headers = {
            "Accept": "text/event-stream",
            "X-Request-Id": request.request_id,
            **(request.trace_headers or {}),
        }
        return EncodedRequest(request, self._path, self._encode(made), headers, 0, chain)

    def read(self, call: EncodedRequest, reply: StreamedReply) -> ReplyStream:
        request, translator = call.request, self._translator
        builder: DeltaBuilder
        if self._config.api == "chat":
            builder = ChatBuilder(request, translator, self._config.reasoning_fields)
            return RemoteGeneration(reply, read_chat, builder)
        origin = self._config.origin if self._config.takes.encrypted_reasoning else None
        builder = ResponsesBuilder(request, translator, origin)
        return RemoteGeneration(reply, read_responses, builder)


def capabilities_of(config: OpenAIConfig) -> frozenset[Capability]:
    """The capabilities that the configuration declares."""
    if config.task == "embed":
        return frozenset({"embeddings"})
    if config.task == "rerank":
        return frozenset({"rerank"})
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
    if takes.files:
        found.add("files")
    if takes.encrypted_reasoning:
        found.add("encrypted_reasoning")
    if config.extends("structured_outputs"):
        found |= {"regex", "lark", "gbnf"}
    if config.extends("allowed_token_ids"):
        found.add("allowed_token_ids")
    if config.extends("vllm_xargs"):
        found.add("vllm_xargs")
    if config.extends("thinking_token_budget") or config.extends("thinking_budget_tokens"):
        found.add("thinking_budget")
    if config.extends("use_beam_search"):
        found.add("beam_search")
    return frozenset(found)
