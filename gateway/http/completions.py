"""/v1/completions."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.answers.chunks import failed_chunk
from gateway.answers.completions.output import completion_answer
from gateway.answers.completions.plan import PreparedCompletion, prepare_completion
from gateway.http.attempts import attempts_of
from gateway.http.body import read_body
from gateway.http.choices import plain_choices
from gateway.http.early_start import started_early
from gateway.http.state import HttpRequest, owner_of, services_of
from gateway.http.streaming import ByteStream
from gateway.http.trace import take_rank, trace_headers
from gateway.http.unknown import note_unknown
from gateway.wire.completions import decode_completion_request
from gateway.wire.large_bodies import decode_body


@post("/v1/completions", status_code=200)
async def create_completion(request: HttpRequest) -> ASGIApp:
    """Complete raw prompts, streaming or not."""
    services, owner = services_of(request), owner_of(request)
    body = await read_body(request, services)
    decoded = await decode_body(body, partial(decode_completion_request, strict=services.strict))
    take_rank(request, decoded)
    headers = trace_headers(request)
    note_unknown(request, services, "/v1/completions", decoded.unknown)

    async def prepare(model: str | None) -> PreparedCompletion:
        return await prepare_completion(
            decoded,
            services,
            size=len(body),
            owner=owner,
            trace_headers=headers,
            model_name=model,
        )

    async def answer() -> ASGIApp:
        attempts = await attempts_of(
            request,
            services,
            decoded.model,
            prepare,
            api="completions",
            owner=owner,
            size=len(body),
        )
        with attempts:
            made = completion_answer(decoded, await attempts.begin(), services, attempts)
            await made.prepare()
        return ByteStream(made) if decoded.stream else plain_choices(made)

    if not decoded.stream:
        return await answer()
    return await started_early(request, answer(), fail=failed_chunk)
