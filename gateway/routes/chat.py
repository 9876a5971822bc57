"""/v1/chat/completions."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.chat.plan import make_chat_plan
from gateway.chat.run import ChatRun, PreparedChat, prepare_chat
from gateway.routes.attempts import attempts_of
from gateway.routes.body import read_body
from gateway.routes.choices import ChunkStream, failed, plain_choices
from gateway.routes.early_start import started_early
from gateway.routes.state import HttpRequest, owner_of, services_of
from gateway.routes.trace import take_rank, trace_headers
from gateway.routes.unknown import note_unknown
from gateway.wire.chat import decode_chat_request
from gateway.wire.large_bodies import decode_body


@post("/v1/chat/completions", status_code=200)
async def create_chat_completion(request: HttpRequest) -> ASGIApp:
    """Create a chat completion, streaming or not."""
    services, owner = services_of(request), owner_of(request)
    body = await read_body(request, services)
    decoded = await decode_body(body, partial(decode_chat_request, strict=services.strict))
    take_rank(request, decoded)
    headers = trace_headers(request)
    note_unknown(request, services, "/v1/chat/completions", decoded.unknown)

    async def prepare(model: str | None) -> PreparedChat:
        plan = await make_chat_plan(
            decoded,
            services,
            size=len(body),
            owner=owner,
            trace_headers=headers,
            model_name=model,
        )
        return await prepare_chat(plan, services)

    async def answer() -> ASGIApp:
        attempts = await attempts_of(
            request, services, decoded.model, prepare, api="chat", owner=owner, size=len(body)
        )
        async with attempts:
            run = ChatRun(await attempts.begin(), services, attempts)
        return ChunkStream(run) if decoded.stream else plain_choices(run)

    return await (started_early(request, answer(), fail=failed) if decoded.stream else answer())
