"""The parts that the chunks of Chat Completions and of Completions have in common."""

from __future__ import annotations

from gateway.answers.timings import AnswerTimes
from gateway.base.errors import GatewayError
from gateway.wire.chat import CompletionUsage
from gateway.wire.common import encode
from gateway.wire.event_frames import SSE_DONE
from gateway.wire.response import error_body

SSE_END = b"}\n\n"


def chunk_head(
    chunk_id: str,
    kind: str,
    created: int,
    model: str,
    service_tier: str | None,
    system_fingerprint: str | None = None,
) -> bytes:
    """Return the common beginning of all chunks of an answer, up to `choices`."""
    head = b'data: {"id":%b,"object":%b,"created":%d,"model":%b,' % (
        encode(chunk_id),
        encode(kind),
        created,
        encode(model),
    )
    if service_tier is not None:
        head += b'"service_tier":%b,' % encode(service_tier)
    if system_fingerprint is not None:
        head += b'"system_fingerprint":%b,' % encode(system_fingerprint)
    return head + b'"choices":['


def last_chunk(head: bytes, usage: CompletionUsage | None, times: AnswerTimes | None) -> bytes:
    """Return the end of the stream, after the last choice: a chunk with usage and times, if requested, and `[DONE]`."""
    shown = b""
    if usage is not None:
        shown = b',"usage":%b' % encode(usage)
    if times is not None:
        shown += b',"timings":%b,"metrics":%b' % (encode(times.timings), encode(times.metrics))
    return b"%b]%b}\n\n%b" % (head, shown, SSE_DONE) if shown else SSE_DONE


def failed_chunk(error: GatewayError) -> bytes:
    """Return the end of a stream that failed."""
    return b"data: %b\n\n%b" % (error_body(error), SSE_DONE)
