"""/v1/chat/completions."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.answers.chat.output import chat_answer
from gateway.answers.chat.plan import ChatPlan, make_chat_plan
from gateway.answers.chunks import failed_chunk
from gateway.http.attempts import attempts_of
from gateway.http.body import read_body
from gateway.http.choices import plain_choices
from gateway.http.early_start import started_early
from gateway.http.state import HttpRequest, owner_of, services_of
from gateway.http.streaming import ByteStream
from gateway.http.trace import take_rank, trace_headers
from gateway.http.unknown import note_unknown
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

    async def plan(model: str | None) -> ChatPlan:
        return await make_chat_plan(
            decoded,
            services,
            size=len(body),
            owner=owner,
            trace_headers=headers,
            model_name=model,
        )

    async def answer() -> ASGIApp:
        attempts = await attempts_of(
            request, services, decoded.model, plan, api="chat", owner=owner, size=len(body)
        )
        with attempts:
            made = chat_answer(await attempts.begin(), services, attempts)
            await made.prepare()
        return ByteStream(made) if decoded.stream else plain_choices(made)

    if not decoded.stream:
        return await answer()
    return await started_early(request, answer(), fail=failed_chunk)
