"""/tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

import asyncio

from litestar import post
from litestar.types import ASGIApp

from gateway.chat.plan import in_chats_words, make_chat_plan
from gateway.errors import GatewayError, InvalidRequest, Unsupported
from gateway.protocols import Tokenizer, TokensPrompt
from gateway.routes.answers import json_answer
from gateway.routes.body import read_body
from gateway.routes.state import HttpRequest, services_of
from gateway.serving.served import ServedModel, Services
from gateway.wire.chat import convert_chat_request
from gateway.wire.common import JsonObject
from gateway.wire.completions import (
    Detokenized,
    DetokenizeRequest,
    TokenizeOptions,
    Tokens,
)
from gateway.wire.decoding import convert, decode_object, missing


@post("/tokenize", status_code=200)
async def tokenize(request: HttpRequest) -> ASGIApp:
    """The tokens of a text, or of the prompt that a chat request makes."""
    services = services_of(request)
    body = await read_body(request)
    raw = decode_object(body)
    options = convert(raw, TokenizeOptions, "")
    model = services.any_model(options.model)
    tokenizer = _tokenizer(model)
    if options.prompt is not None:
        token_ids = await asyncio.to_thread(
            tokenizer.encode,
            options.prompt,
            add_special_tokens=options.add_special_tokens is not False,
        )
    elif raw.get("messages") is not None:
        token_ids = await _chat_tokens(raw, services, len(body))
    else:
        raise missing("prompt", "Send a text as prompt, or messages.")
    return json_answer(
        Tokens(
            count=len(token_ids),
            max_model_len=model.info.max_model_len,
            tokens=token_ids,
            token_strs=(
                [tokenizer.decode([token]) for token in token_ids]
                if options.return_token_strs
                else None
            ),
        )
    )


@post("/detokenize", status_code=200)
async def detokenize(request: HttpRequest) -> ASGIApp:
    """The text of tokens."""
    decoded = convert(decode_object(await read_body(request)), DetokenizeRequest, "")
    tokenizer = _tokenizer(services_of(request).any_model(decoded.model))
    try:
        text = await asyncio.to_thread(tokenizer.decode, decoded.tokens)
    except (ValueError, IndexError, OverflowError) as error:
        raise InvalidRequest(
            f"These are not all tokens of the model: {error}", param="tokens"
        ) from None
    return json_answer(Detokenized(prompt=text))


async def _chat_tokens(raw: JsonObject, services: Services, size: int) -> list[int]:
    plan = await make_chat_plan(convert_chat_request(raw), services, size=size)
    try:
        prompt = plan.model.renderer.render(plan.turn).prompt
    except GatewayError as error:
        raise in_chats_words(error, plan)  # noqa: B904 (the same error)
    if not isinstance(prompt, TokensPrompt):
        raise Unsupported("The engine of this model keeps its tokens to itself.", param="messages")
    return list(prompt.token_ids)


def _tokenizer(model: ServedModel) -> Tokenizer:
    tokenizer = model.engine.tokenizer
    if tokenizer is None:
        raise Unsupported(
            f"The engine of '{model.name}' has no tokenizer of its own here.", param="model"
        )
    return tokenizer
