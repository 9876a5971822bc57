"""/tokenize and /detokenize, compatible with vLLM."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from litestar import post
from litestar.types import ASGIApp

from gateway.answers.chat.plan import make_chat_plan
from gateway.base.errors import InvalidRequest, Unsupported
from gateway.generation.media import prompt_length
from gateway.generation.rendering import render_parts
from gateway.generation.token_texts import text_of_tokens, token_texts
from gateway.http.answers import JsonAnswer
from gateway.http.body import read_body
from gateway.http.counted import counted
from gateway.http.loading import loaded
from gateway.http.state import HttpRequest, owner_of, services_of
from gateway.models.served_model import ServedModel
from gateway.plugins.protocols import Tokenizer, TokensPrompt
from gateway.services import Services
from gateway.wire.chat import convert_chat_request
from gateway.wire.common import JsonObject, encode
from gateway.wire.completions import (
    Detokenized,
    DetokenizeRequest,
    TokenizeAnswer,
    TokenizeOptions,
)
from gateway.wire.decoding import convert, decode_object
from gateway.wire.field_errors import missing
from gateway.wire.json_pieces import encode_pieces
from gateway.wire.large_bodies import decode_body, threaded_if_many


@post("/tokenize", status_code=200)
async def tokenize(request: HttpRequest) -> ASGIApp:
    """Return the tokens of a text, or of the prompt of a chat request."""
    services = services_of(request)
    body = await read_body(request, services)
    async with counted(services):
        raw = await decode_body(body, decode_object)
        options = convert(raw, TokenizeOptions)
        async with loaded(request, options.model, None):
            answer = await _tokenized(raw, options, services, len(body), owner_of(request))
    return JsonAnswer(answer, 200)


@post("/detokenize", status_code=200)
async def detokenize(request: HttpRequest) -> ASGIApp:
    """Return the text of tokens."""
    services = services_of(request)
    body = await read_body(request, services)
    async with counted(services):
        decoded = await decode_body(
            body, lambda sent: convert(decode_object(sent), DetokenizeRequest)
        )
        async with loaded(request, decoded.model, None):
            tokenizer = _tokenizer(services.lookup.any_model(decoded.model))
            try:
                answer = await asyncio.to_thread(_detokenized, tokenizer, decoded.tokens)
            except (ValueError, IndexError, OverflowError) as error:
                raise InvalidRequest(
                    f"Some ids are not tokens of the model: {error}", param="tokens"
                ) from None
    return JsonAnswer(answer, 200)


def _detokenized(tokenizer: Tokenizer, token_ids: Sequence[int]) -> bytes:
    return encode(Detokenized(prompt=text_of_tokens(tokenizer, token_ids)))


async def _tokenized(
    raw: JsonObject, options: TokenizeOptions, services: Services, size: int, owner: str | None
) -> bytes:
    """The answer, as JSON."""
    model = services.lookup.any_model(options.model)
    tokenizer = _tokenizer(model)
    if options.prompt is not None:
        token_ids = await asyncio.to_thread(
            tokenizer.encode,
            options.prompt,
            add_special_tokens=options.add_special_tokens is not False,
        )
        count = len(token_ids)
    elif raw.get("messages") is not None:
        token_ids, count = await _chat_tokens(raw, services, size, owner)
    else:
        raise missing("prompt", "Send a text as prompt, or messages.")

    def answer(token_ids: list[int]) -> bytes:
        texts = token_texts(tokenizer, token_ids) if options.return_token_strs else None
        return encode(
            TokenizeAnswer(
                count=count,
                max_model_len=model.info.max_model_len,
                tokens=encode_pieces(token_ids),
                token_strs=None if texts is None else encode_pieces(texts),
            )
        )

    return await threaded_if_many(token_ids, answer)


async def _chat_tokens(
    raw: JsonObject, services: Services, size: int, owner: str | None
) -> tuple[list[int], int]:
    """The tokens of the prompt, and its length in tokens including images and sounds."""
    plan = await make_chat_plan(convert_chat_request(raw), services, size=size, owner=owner)
    with plan.params:
        _, rendered = await render_parts(
            plan.model.renderer, plan.turn, plan.settings.parts, size=size
        )
        prompt = rendered.prompt
        if isinstance(prompt, TokensPrompt):
            return list(prompt.token_ids), await prompt_length(prompt, plan.model.engine)
    raise Unsupported("The engine of this model does not report token ids.", param="messages")


def _tokenizer(model: ServedModel) -> Tokenizer:
    tokenizer = model.engine.tokenizer
    if tokenizer is None:
        raise Unsupported(
            f"The engine of '{model.name}' does not expose a tokenizer.", param="model"
        )
    return tokenizer
