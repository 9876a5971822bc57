"""/v1/chat/completions."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.chat.plan import make_chat_plan
from gateway.chat.run import ChatRun, PreparedChat, prepare_chat
from gateway.loop.attempts import Attempts
from gateway.routes.body import read_body
from gateway.routes.choices import ChunkStream, plain_choices
from gateway.routes.loading import loaded
from gateway.routes.state import HttpRequest, owner_of, services_of
from gateway.routes.trace import take_rank, trace_headers
from gateway.routes.unknown import note_unknown
from gateway.wire.chat import decode_chat_request


@post("/v1/chat/completions", status_code=200)
async def create_chat_completion(request: HttpRequest) -> ASGIApp:
    """Create a chat completion, streaming or not."""
    services = services_of(request)
    body = await read_body(request)
    decoded = decode_chat_request(body, strict=services.strict)
    take_rank(request, decoded)
    note_unknown(request, "/v1/chat/completions", decoded.unknown)
    owner = owner_of(request)

    async def prepare(model: str | None) -> PreparedChat:
        plan = await make_chat_plan(
            decoded,
            services,
            size=len(body),
            owner=owner,
            trace_headers=trace_headers(request),
            model_name=model,
        )
        return await prepare_chat(plan, services)

    names = await services.candidates(
        decoded.model, api="chat", does="generates", owner=owner, size=len(body)
    )
    attempts = Attempts(
        names,
        prepare,
        services.metrics,
        hold=services.loaded,
        hold_first=partial(loaded, request),
    )
    async with attempts:
        run = ChatRun(await attempts.begin(), services, attempts)
    return ChunkStream(run) if decoded.stream else plain_choices(run)
