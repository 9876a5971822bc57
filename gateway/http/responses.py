"""/v1/responses."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath
from litestar.types import ASGIApp

from gateway.answers.responses.answer import prepare_response, response_answer
from gateway.answers.responses.compaction import compacted, plan_compaction
from gateway.answers.responses.failed_start import failed_start
from gateway.answers.responses.plan import Plan, make_plan
from gateway.answers.responses.rerun import keep_body
from gateway.base.errors import InvalidRequest, NotFound, Unsupported
from gateway.generation.media import part_resolver, prompt_length
from gateway.generation.rendering import render_parts
from gateway.http.answers import json_answer
from gateway.http.body import read_body
from gateway.http.counted import counted, counts, preparing
from gateway.http.early_start import started_early
from gateway.http.loading import loaded, while_connected
from gateway.http.pages import PAGED_BY, page_of, page_query
from gateway.http.queries import flag_of, include_of, unknown_in
from gateway.http.response_answers import LogStream, final_response
from gateway.http.state import HttpRequest, owner_of, services_of
from gateway.http.streaming import EventStream
from gateway.http.trace import take_rank, trace_headers
from gateway.http.unknown import note_unknown
from gateway.items.included import as_listed, with_included
from gateway.plugins.protocols import UNFINISHED, ResponseStore, StoredResponse, TokensPrompt
from gateway.wire.large_bodies import decode_body
from gateway.wire.listing import Deleted
from gateway.wire.request import decode_response_request
from gateway.wire.response import InputTokens
from gateway.wire.strict import INPUT_TOKENS

_LAST_EVENT = 2**31 - 2
"""A sequence number that no event reaches."""
_RETRIEVED_BY = ("stream", "starting_after", "include_obfuscation")


@post("/v1/responses", status_code=200)
async def create_response(request: HttpRequest) -> ASGIApp:
    """Create a response: streaming, non-streaming, or in the background."""
    services, owner = services_of(request), owner_of(request)
    body = await read_body(request, services)
    decoded = await decode_body(body, partial(decode_response_request, strict=services.strict))
    take_rank(request, decoded)
    headers = trace_headers(request)
    note_unknown(request, services, "/v1/responses", decoded.unknown)

    def keep(plan: Plan) -> None:
        keep_body(plan, body, services)

    async def answer() -> ASGIApp:
        run = await prepare_response(
            decoded,
            services,
            size=len(body),
            owner=owner,
            trace_headers=headers,
            quiet=not (decoded.stream or decoded.background),
            keep=keep if decoded.background else None,
            wait=while_connected(request),
        )
        plan = run.output.plan
        if not plan.background:
            return EventStream(run) if plan.stream else final_response(run)
        assert services.background is not None, (
            "a plan is in the background only where there is a store"
        )
        queued = await services.background.start(run)
        if not plan.stream:
            return json_answer(queued.response)
        return LogStream(services, queued, live=services.background.live(queued.id))

    if not decoded.stream:
        return await answer()
    return await started_early(request, answer(), fail=partial(failed_start, decoded))


@get("/v1/responses/{response_id:str}")
async def retrieve_response(request: HttpRequest, response_id: FromPath[str]) -> ASGIApp:
    """Retrieve a stored response. With `stream`, retrieve the events of a background response after `starting_after`.

    `include` adds to the values of the original request. Events are returned unchanged.
    """
    record = await _record(request, response_id)
    query = request.query_params
    include = include_of(query)
    _note_unknown(request, _RETRIEVED_BY)
    flag_of(query, "include_obfuscation")  # has no effect, but an invalid value is an error
    if not flag_of(query, "stream"):
        if "starting_after" in query:
            raise InvalidRequest(
                "starting_after is for streams. Send stream=true with it.", param="starting_after"
            )
        response, seal = (
            record.response,
            partial(
                services_of(request).sealer.seal, owner=record.owner, model=record.response.model
            ),
        )
        if include:
            response.output = with_included(response.output, include, record.results, seal)
        return json_answer(response)
    if not record.streamed:
        raise InvalidRequest(
            f"Response '{response_id}' was not made with background: true and stream: true, so its events are "
            "not kept. Retrieve it without stream.",
            param="stream",
        )
    after = query.get("starting_after", "-1")
    try:
        number = max(-1, min(int(after), _LAST_EVENT))  # databases do not support larger integers
    except ValueError:
        raise InvalidRequest(
            f"starting_after is the sequence number of an event, and '{after}' is not a whole number.",
            param="starting_after",
        ) from None
    services = services_of(request)
    live = None
    if services.background is not None and record.response.status in UNFINISHED:
        live = services.background.live(response_id)
    return LogStream(services, record, after=number, live=live)


@delete("/v1/responses/{response_id:str}", status_code=200)
@counts
async def delete_response(request: HttpRequest, response_id: FromPath[str]) -> ASGIApp:
    """Delete a stored response. Stops it if it is running."""
    record = await _record(request, response_id)
    store = _store(request)
    if record.response.status in UNFINISHED:
        await store.request_cancel(response_id)
    if not await store.delete(response_id, owner=owner_of(request)):
        raise _unknown(response_id)
    return json_answer(Deleted(id=response_id, object="response.deleted"))


@post("/v1/responses/{response_id:str}/cancel", status_code=200)
async def cancel_response(request: HttpRequest, response_id: FromPath[str]) -> ASGIApp:
    """Cancel a background response. A finished response is returned unchanged."""
    record = await _record(request, response_id)
    if not record.response.background:
        raise InvalidRequest(
            "Cannot cancel a synchronous response. Close its connection instead; only responses that were made with "
            "background: true are cancelled by their id.",
            param="response_id",
        )
    background = services_of(request).background
    assert background is not None, "what is stored has a store"
    return json_answer((await background.cancel(record)).response)


@get("/v1/responses/{response_id:str}/input_items")
async def list_input_items(request: HttpRequest, response_id: FromPath[str]) -> ASGIApp:
    """List a page of the input items of a response."""
    record = await _record(request, response_id)
    include = include_of(request.query_params)
    query = page_query(request.query_params, default_order="desc", backwards=True)
    _note_unknown(request, (*PAGED_BY, "before"))
    page = page_of(list(record.input), query)
    shown = await as_listed(
        page.data,
        include,
        store=_store(request),
        sealer=services_of(request).sealer,
        owner=record.owner,
    )
    return json_answer(msgspec.structs.replace(page, data=shown))


@post("/v1/responses/input_tokens", status_code=200)
async def count_input_tokens(request: HttpRequest) -> ASGIApp:
    """Count the tokens of a request's prompt, with the real renderer and tokenizer."""
    services = services_of(request)
    body = await read_body(request, services)
    async with counted(services):
        decode = partial(
            decode_response_request, require_input=False, strict=services.strict, known=INPUT_TOKENS
        )
        decoded = await decode_body(body, decode)
        async with loaded(request, decoded.model):
            plan = await make_plan(
                msgspec.structs.replace(decoded, background=None, stream=None),
                services,
                size=len(body),
                owner=owner_of(request),
            )
            with plan.params:
                parts = part_resolver(plan.model, services, plan.owner)
                _, rendered = await render_parts(
                    plan.model.renderer, plan.turn, parts, size=len(body)
                )
                prompt = rendered.prompt
                if not isinstance(prompt, TokensPrompt):
                    raise Unsupported(
                        f"The engine of '{plan.model.name}' counts its tokens itself; they are not known here.",
                        param="model",
                    )
                length = await prompt_length(prompt, plan.model.engine)
    return json_answer(InputTokens(input_tokens=length))


@post("/v1/responses/compact", status_code=200)
async def compact_response(request: HttpRequest) -> ASGIApp:
    """Compact a conversation: returns the items that replace it in the next request."""
    services = services_of(request)
    body = await read_body(request, services)
    decode = partial(decode_response_request, require_input=False, strict=services.strict)
    decoded = await decode_body(body, decode)
    with preparing(services):
        async with loaded(request, decoded.model):
            plan = await plan_compaction(decoded, services, size=len(body), owner=owner_of(request))
            run = response_answer(plan, services, quiet=True)
            await run.prepare()
    return final_response(run, shown=compacted(plan, services))


def _note_unknown(request: HttpRequest, known: Collection[str]) -> None:
    names = unknown_in(request.query_params, known)
    note_unknown(request, services_of(request), "/v1/responses", names)


def _store(request: HttpRequest) -> ResponseStore:
    store = services_of(request).store
    if store is None:
        raise Unsupported('This server stores no responses (store = "none").')
    return store


async def _record(request: HttpRequest, response_id: str) -> StoredResponse:
    record = await _store(request).get(response_id, owner=owner_of(request))
    if record is None:
        raise _unknown(response_id)
    return record


def _unknown(response_id: str) -> NotFound:
    return NotFound(f"Response with id '{response_id[:100]}' not found.", code="response_not_found")
