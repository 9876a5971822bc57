"""/v1/completions."""

from __future__ import annotations

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.completions.run import CompletionRun, PreparedCompletion, prepare_completion
from gateway.loop.attempts import Attempts
from gateway.routes.body import read_body
from gateway.routes.choices import ChunkStream, plain_choices
from gateway.routes.loading import loaded
from gateway.routes.state import HttpRequest, owner_of, services_of
from gateway.routes.trace import take_rank, trace_headers
from gateway.routes.unknown import note_unknown
from gateway.wire.completions import decode_completion_request


@post("/v1/completions", status_code=200)
async def create_completion(request: HttpRequest) -> ASGIApp:
    """Complete raw prompts, streaming or not."""
    services = services_of(request)
    body = await read_body(request)
    decoded = decode_completion_request(body, strict=services.strict)
    take_rank(request, decoded)
    note_unknown(request, "/v1/completions", decoded.unknown)
    owner = owner_of(request)

    async def prepare(model: str | None) -> PreparedCompletion:
        return await prepare_completion(
            decoded,
            services,
            size=len(body),
            owner=owner,
            trace_headers=trace_headers(request),
            model_name=model,
        )

    names = await services.candidates(
        decoded.model, api="completions", does="generates", owner=owner, size=len(body)
    )
    attempts = Attempts(
        names,
        prepare,
        services.metrics,
        hold=services.loaded,
        hold_first=partial(loaded, request),
    )
    async with attempts:
        run = CompletionRun(decoded, services, await attempts.begin(), attempts)
    return ChunkStream(run) if decoded.stream else plain_choices(run)
