"""The API's routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from gateway.sdk import AsgiApp, GatewayError, PreparedAnswer, Reply, Route, RouteRequest
from gateway.sdk.wire import Value, decode_body, encode, new_id, threaded_if_large
from gateway_messages.answer import Message, Usage
from gateway_messages.assembler import MessageAssembler
from gateway_messages.config import MessagesConfig
from gateway_messages.errors import error_reply
from gateway_messages.events import MessageEventWriter, error_event
from gateway_messages.generation_request import ConvertedRequest, convert_request
from gateway_messages.message import MessageBodyWriter
from gateway_messages.models import model_info, model_page
from gateway_messages.params import explained_tools, request_path
from gateway_messages.request import (
    MessagesRequest,
    ThinkingAdaptive,
    ThinkingEnabled,
    decode_request,
)
from gateway_messages.signatures import DigestSigner, SealingSigner
from gateway_messages.stream_events import MessageEvent

VERSION_HEADER = "anthropic-version"
"""A header that clients of this API send. It distinguishes them on a path that two APIs share."""


class TokenCount(Value, frozen=True, kw_only=True):
    input_tokens: int


class MessagesApi:
    """Implements `gateway.sdk.Api`."""

    def __init__(self, config: MessagesConfig) -> None:
        self._config = config
        self._idle_seconds = config.ping_interval or None
        self.routes: Sequence[Route] = (
            Route(
                method="POST",
                path="/v1/messages",
                handle=self._create,
                takes=MessagesRequest,
                answers=Message,
                streams=MessageEvent,
            ),
            Route(
                method="POST",
                path="/v1/messages/count_tokens",
                handle=self._count,
                takes=MessagesRequest,
                answers=TokenCount,
            ),
            Route(method="GET", path="/v1/models", handle=self._models, header=VERSION_HEADER),
            Route(
                method="GET",
                path="/v1/models/{model:path}",
                handle=self._model,
                header=VERSION_HEADER,
            ),
        )

    def error(self, error: GatewayError, request_id: str) -> Reply:
        return error_reply(error, request_id)

    async def _create(self, request: RouteRequest) -> AsgiApp:
        """Create a message, streaming or not."""
        decoded, converted = await self._read(request)
        headers = {"request-id": request.id}
        if decoded.stream:
            request.begin_stream(
                fail=partial(error_event, request_id=request.id),
                headers=headers,
                idle_seconds=self._idle_seconds,
            )
        with explained_tools(converted):
            answer = await request.gateway.prepare(converted.generation)

        def new_writer() -> MessageAssembler:
            message = _initial_message(answer)
            writer = (
                MessageEventWriter(message, request.id)
                if decoded.stream
                else MessageBodyWriter(message)
            )
            return _assembler(writer, decoded, converted, answer, request)

        if decoded.stream:
            return answer.stream(new_writer, headers=headers, idle_seconds=self._idle_seconds)
        return answer.whole(new_writer, headers=headers)

    async def _count(self, request: RouteRequest) -> Reply:
        """Count the tokens of a request's prompt."""
        _, converted = await self._read(request, counts=True)
        with explained_tools(converted):
            count = await request.gateway.count_tokens(converted.generation)
        return _json(TokenCount(input_tokens=count), request)

    async def _read(
        self,
        request: RouteRequest,
        *,
        counts: bool = False,
    ) -> tuple[MessagesRequest, ConvertedRequest]:
        body = await request.body()
        gateway, owner = request.gateway, request.owner
        decoded = await decode_body(body, partial(decode_request, counts=counts))
        request.note_unknown(decoded.unknown)
        request.take_rank(decoded)
        convert = partial(
            convert_request,
            decoded,
            partial(gateway.unseal, owner=owner, model=decoded.model),
            size=len(body),
            trace_headers=request.trace_headers,
            owner=owner,
            available=gateway.tool_types(decoded.model),
            offers_tools=self._config.offer_tools,
            max_turns=self._config.max_turns,
        )
        converted = await threaded_if_large(len(body), convert)
        own_path = partial(request_path, request=decoded, converted=converted)
        generation = msgspec.structs.replace(converted.generation, own_path=own_path)
        return decoded, msgspec.structs.replace(converted, generation=generation)

    async def _models(self, request: RouteRequest) -> Reply:
        return _json(model_page(request.gateway.models(), request.query), request)

    async def _model(self, request: RouteRequest) -> Reply:
        found = request.gateway.model(request.path_parameters["model"])
        return _json(model_info(found), request)


def _initial_message(answer: PreparedAnswer) -> Message:
    return Message(
        id=new_id("msg_"),
        model=answer.model,
        usage=Usage(input_tokens=answer.prompt_tokens, output_tokens=0),
    )


def _assembler(
    writer: MessageEventWriter | MessageBodyWriter,
    decoded: MessagesRequest,
    converted: ConvertedRequest,
    answer: PreparedAnswer,
    request: RouteRequest,
) -> MessageAssembler:
    thinking = decoded.thinking
    omitted = (
        isinstance(thinking, ThinkingEnabled | ThinkingAdaptive) and thinking.display == "omitted"
    )
    seal = partial(request.gateway.seal, owner=request.owner)
    return MessageAssembler(
        writer,
        new_id=new_id,
        new_signer=partial(SealingSigner, partial(seal, model=decoded.model))
        if omitted
        else DigestSigner,
        shows_thinking=not omitted,
        stop_sequences=tuple(decoded.stop_sequences or ()),
        hides_output=decoded.max_tokens == 0,
        served=answer.available_tools,
        seal=seal,
        known=converted.generation.turn.results.values(),
    )


def _json(body: object, request: RouteRequest) -> Reply:
    return Reply(body=encode(body), headers={"request-id": request.id})


@asynccontextmanager
async def open_messages(config: MessagesConfig) -> AsyncIterator[MessagesApi]:
    """The API; it needs no resources."""
    yield MessagesApi(config)
