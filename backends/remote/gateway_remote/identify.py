"""Detects a replica's kind of server and its model by asking the server."""

from __future__ import annotations

import logging

import msgspec
from msgspec import Struct

from gateway.sdk import Capability
from gateway_remote.client import ReplicaClient
from gateway_remote.config import DialectName
from gateway_remote.failures import ReplicaFailure, UnknownServer
from gateway_remote.media import counts_media
from gateway_remote.replica import Endpoint

_TIMEOUT = 10.0
logger = logging.getLogger("gateway.remote")


class Identity(Struct, frozen=True, kw_only=True):
    """Properties that a server reports; None or empty if it does not."""

    dialect: DialectName
    model: str
    source: str | None = None
    """Path or hub id of the loaded model, as the server sees it."""
    max_model_len: int | None = None
    adapters: tuple[str, ...] = ()
    embeds: bool = False
    """Whether it only embeds."""
    reranks: bool = False
    """Whether it only reranks."""
    chat_template: str | None = None
    tool_chat_template: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    media: frozenset[Capability] = frozenset()
    """`images` and `audio`, if the model takes them."""


class _Card(Struct):
    id: str
    owned_by: str = ""
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class _Models(Struct):
    data: list[_Card] = []


class _Settings(Struct, frozen=True):
    n_ctx: int | None = None


class _Modalities(Struct, frozen=True):
    vision: bool = False
    audio: bool = False


class _Props(Struct):
    """llama-server's /props."""

    default_generation_settings: _Settings = _Settings()
    model_path: str | None = None
    chat_template: str | None = None
    chat_template_tool_use: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    modalities: _Modalities = _Modalities()


class _SglangModel(Struct):
    """SGLang's /get_model_info."""

    model_path: str | None = None
    tokenizer_path: str | None = None
    is_generation: bool = True


_OWNERS: dict[str, DialectName] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "trtllm",
    "llamacpp": "llamacpp",
}


async def identify(
    client: ReplicaClient, where: Endpoint, *, dialect: DialectName | None, model: str | None
) -> Identity:
    """Identify the server. Raises `ReplicaFailure` if it does not respond, or does not serve the model, and `UnknownServer` if its
    kind is neither known nor configured."""
    cards = (await client.get(where, "/v1/models", _Models, within=_TIMEOUT)).data
    bases = [card for card in cards if card.parent is None]
    card = next((each for each in bases if model in (None, each.id)), None)
    if card is None:
        names = ", ".join(each.id for each in cards) or "none"
        raise ReplicaFailure(f"it serves no model {model!r}, but: {names}")
    kind = dialect or await _kind(client, where, card)
    identity = Identity(
        dialect=kind,
        model=card.id,
        source=card.root or card.id,
        max_model_len=card.max_model_len,
        adapters=tuple(each.id for each in cards if each.parent is not None),
    )
    match kind:
        case "llamacpp":
            return await _of_llama_server(client, where, identity)
        case "sglang":
            return await _of_sglang(client, where, identity)
        case "vllm" | "vllm-generate":
            # vLLM also reranks by embedding models, as the cosine of vectors.
            embeds = await _has_vectors(client, where)
            reranks = not embeds and await _has_scores(client, where, identity.model)
            return msgspec.structs.replace(identity, embeds=embeds, reranks=reranks)
        case "trtllm":
            return identity


async def _has_vectors(client: ReplicaClient, where: Endpoint) -> bool:
    """Whether the server embeds. An embedding server rejects an empty request as invalid; others lack the route or say
    so."""
    status = await client.status(where, "/v1/embeddings", within=_TIMEOUT, body=b"{}")
    return status in (400, 422)


async def _has_scores(client: ReplicaClient, where: Endpoint, model: str) -> bool:
    """Whether the server reranks. Others lack the route, or have it and say that they do not."""
    body = msgspec.json.encode({"model": model, "query": "a", "documents": ["b"]})
    return await client.status(where, "/rerank", within=_TIMEOUT, body=body) == 200


async def _kind(client: ReplicaClient, where: Endpoint, card: _Card) -> DialectName:
    kind = _OWNERS.get(card.owned_by)
    if kind is None and await _answers(client, where, "/get_model_info"):
        kind = "sglang"
    if kind is None and await _answers(client, where, "/props"):
        kind = "llamacpp"
    if kind is None:
        raise UnknownServer(f"its models are owned by {card.owned_by[:100]!r}")
    if kind == "vllm":
        # The route exists if an empty request is rejected as invalid rather than not found.
        status = await client.status(where, "/inference/v1/generate", within=_TIMEOUT, body=b"{}")
        return "vllm-generate" if status in (400, 422) else "vllm"
    return kind


async def _answers(client: ReplicaClient, where: Endpoint, path: str) -> bool:
    return await client.status(where, path, within=_TIMEOUT) == 200


async def _of_llama_server(client: ReplicaClient, where: Endpoint, identity: Identity) -> Identity:
    props = await client.get(where, "/props", _Props, within=_TIMEOUT)
    reranks = await _has_scores(client, where, identity.model)
    return Identity(
        dialect=identity.dialect,
        model=identity.model,
        source=props.model_path,
        max_model_len=props.default_generation_settings.n_ctx,
        embeds=not reranks and await _has_vectors(client, where),
        reranks=reranks,
        chat_template=props.chat_template,
        tool_chat_template=props.chat_template_tool_use,
        bos_token=props.bos_token,
        eos_token=props.eos_token,
        media=await _media(client, where, props.modalities),
    )


async def _media(
    client: ReplicaClient, where: Endpoint, modalities: _Modalities
) -> frozenset[Capability]:
    taken: dict[Capability, bool] = {"images": modalities.vision, "audio": modalities.audio}
    found = frozenset(name for name, takes in taken.items() if takes)
    if found and not await counts_media(client, where):
        logger.warning(
            "%s takes %s, but does not count their tokens: they are not used. Update llama-server.",
            where,
            " and ".join(sorted(found)),
        )
        return frozenset()
    return found


async def _of_sglang(client: ReplicaClient, where: Endpoint, identity: Identity) -> Identity:
    info = await client.get(where, "/get_model_info", _SglangModel, within=_TIMEOUT)
    return Identity(
        dialect=identity.dialect,
        model=identity.model,
        source=info.tokenizer_path or info.model_path or identity.source,
        max_model_len=identity.max_model_len,
        adapters=identity.adapters,
        embeds=not info.is_generation,
    )
