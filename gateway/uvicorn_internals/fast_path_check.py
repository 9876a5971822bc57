"""The check at start that the fast path writes what uvicorn's `send` would write."""

from __future__ import annotations

from litestar.types import Receive, Scope, Send

from gateway.uvicorn_internals.canned import (
    HEAD,
    PARTS,
    REQUEST,
    Exchange,
    body_part,
    exchange_of,
    plain_stream,
    problem_of,
    require,
)
from gateway.uvicorn_internals.connections import ServingConfig
from gateway.uvicorn_internals.fast_path import (
    SingleWrite,
    chunk_writer,
    unbegun_cycle,
    unchunked,
    write_answer,
    write_beginning,
)

_WHOLE = b'{"checked": true}'
_WHOLE_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_WHOLE))]


async def fast_path_problem(settings: ServingConfig) -> str | None:
    """Why the fast path cannot be used, or None if its bytes are those of plain ASGI."""
    try:
        plain = await exchange_of(settings, plain_stream)
        fast = await exchange_of(settings, _fast_stream)
        head, first, *rest = plain.connection.writes
        require(
            fast.connection.writes == [head + first, *rest],
            "a stream's bytes differ from those of plain ASGI",
        )
        by_asgi = await exchange_of(settings, _answer_by_asgi)
        at_once = await exchange_of(settings, _answer_at_once)
        require(
            at_once.connection.writes == [by_asgi.connection.written],
            "a whole answer's bytes differ from those of plain ASGI",
        )
        begun = await exchange_of(settings, _stream_begun_at_once)
        require(
            begun.connection.writes == [head + first, *rest],
            "the beginning of a stream differs from that of plain ASGI",
        )
        await exchange_of(settings, _stream_of_lost_client)
        old = await exchange_of(
            settings, _stream_without_fast_path, REQUEST.replace(b"HTTP/1.1", b"HTTP/1.0")
        )
        body = old.connection.written.partition(b"\r\n\r\n")[2]
        require(
            old.connection.closed and body == b"".join(PARTS),
            "the body of an HTTP/1.0 stream is not the bytes that were sent",
        )  # fmt: skip
    except Exception as error:
        return problem_of(error)
    return None


async def _fast_stream(scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
    first, *middle, last = PARTS
    with SingleWrite(send):
        await send(HEAD)
        await send(body_part(first))
        require(not exchange.connection.writes, "the head of an answer cannot be held")
    write = chunk_writer(send).write
    exchange.protocol.pause_writing()
    require(not write(first), "a chunk is written although the client does not read")
    exchange.protocol.resume_writing()
    for part in middle:
        require(write(part), "a chunk cannot be written")
    await send(body_part(last, more=False))


async def _answer_by_asgi(scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": _WHOLE_HEADERS})
    await send(body_part(_WHOLE, more=False))


async def _answer_at_once(scope: Scope, receive: Receive, send: Send, exchange: Exchange) -> None:
    exchange.protocol.pause_writing()
    require(unbegun_cycle(send) is None, "an answer is written although the client does not read")
    exchange.protocol.resume_writing()
    cycle = unbegun_cycle(send)
    require(cycle is not None, "a whole answer cannot be written")
    assert cycle is not None
    write_answer(cycle, 200, _WHOLE_HEADERS, _WHOLE)
    require(unbegun_cycle(send) is None, "an answer could be written twice")


async def _stream_begun_at_once(
    scope: Scope, receive: Receive, send: Send, exchange: Exchange
) -> None:
    first, *middle, last = PARTS
    cycle = unbegun_cycle(send)
    require(cycle is not None, "the beginning of a stream cannot be written")
    assert cycle is not None
    write_beginning(cycle, HEAD["status"], HEAD["headers"], first)
    write = chunk_writer(send).write
    for part in middle:
        require(write(part), "a chunk cannot be written")
    await send(body_part(last, more=False))


async def _stream_of_lost_client(
    scope: Scope, receive: Receive, send: Send, exchange: Exchange
) -> None:
    await send(HEAD)
    write = chunk_writer(send).write
    exchange.end()
    require(not write(PARTS[0]), "a chunk is written although the client has gone")


async def _stream_without_fast_path(
    scope: Scope, receive: Receive, send: Send, exchange: Exchange
) -> None:
    await plain_stream(scope, receive, unchunked(send), exchange)
