"""What is sent arrives as it was, however it is cut."""

from __future__ import annotations

import inspect

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base import errors
from gateway.base.constraints import Const, JsonSchema, Sequence
from gateway.base.deltas import TextDelta
from gateway.base.errors import EngineError, GatewayError, InvalidRequest
from gateway.engines.process.frames import MAX_FRAME, FrameReader, FrameTooLarge, framed
from gateway.engines.process.messages import (
    Piece,
    WireError,
    WireRequest,
    error_of,
    failure_of,
    from_wire,
    output_of,
    piece_of,
    to_wire,
)
from gateway.plugins.protocols import (
    ChatPrompt,
    EngineOutput,
    EngineRequest,
    Media,
    PlacedMedia,
    Sampling,
    TextFormat,
    TokenLogprob,
    TokensPrompt,
    ToolDefinition,
    TopLogprob,
    Turn,
)
from gateway.wire.content import InputText
from gateway.wire.items import Message

KINDS = [
    each
    for _, each in inspect.getmembers(errors, inspect.isclass)
    if issubclass(each, GatewayError)
]


@given(st.lists(st.binary(max_size=300), max_size=8), st.integers(1, 64))
def test_frames_are_the_same_however_they_are_cut(payloads: list[bytes], size: int) -> None:
    sent = b"".join(map(framed, payloads))
    reader = FrameReader()
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    assert [each for piece in pieces for each in reader.feed(piece)] == payloads


def test_a_frame_that_announces_too_much_is_refused_before_it_is_received() -> None:
    with pytest.raises(FrameTooLarge):
        list(FrameReader().feed((MAX_FRAME + 1).to_bytes(4, "big")))


@pytest.mark.parametrize("kind", KINDS, ids=lambda each: each.__name__)
def test_errors_keep_their_meaning(kind: type[GatewayError]) -> None:
    error = kind("It went wrong.", param=("input", 3))
    error.headers = {"retry-after": "7"}
    sent = msgspec.msgpack.encode(failure_of(error))
    received = error_of(msgspec.msgpack.decode(sent, type=WireError))
    assert type(received) is kind
    assert vars(received) == vars(error)
    assert str(received) == str(error)


def test_an_error_of_a_plugin_is_of_the_nearest_known_kind() -> None:
    class TooOdd(InvalidRequest):
        default_code = "too_odd"

    received = error_of(failure_of(TooOdd("No.", param="input")))
    assert type(received) is InvalidRequest
    assert (received.code, received.param) == ("too_odd", "input")
    assert type(error_of(WireError("Unheard", "of"))) is EngineError


def test_requests_arrive_whole() -> None:
    image = Media(kind="image", data=b"\0\xff", media_type="image/png", sha256="0" * 64, width=1)
    request = EngineRequest(
        request_id="r",
        prompt=TokensPrompt(
            token_ids=[0, 5, -1, 2**40], media=[PlacedMedia(media=image, at=2, param=("input", 0))]
        ),
        sampling=Sampling(max_tokens=3, logit_bias={7: -100.0}, stop=("a",), temperature=0.5),
        constraint=Sequence((Const("<"), JsonSchema({"type": "object"}))),
        adapter="a",
        cache_salt="s",
        owner="o",
        priority=-2,
        trace_headers={"traceparent": "00"},
        hints={"user": "u"},
        vllm_xargs={"x": [1, None]},
        data_parallel_rank=1,
        kv_transfer_params={"do_remote_prefill": True},
        mm_processor_kwargs={"max_pixels": 100},
        tail="reasoning",
        turn=Turn(
            items=[Message(role="user", content=[InputText(text="Hi")])],
            tools=[ToolDefinition(name="t", parameters={"type": "object"})],
            text_format=TextFormat(kind="json_schema", schema={"type": "string"}),
        ),
    )
    sent = msgspec.msgpack.encode(to_wire(request, with_turn=True))
    received = from_wire(msgspec.msgpack.decode(sent, type=WireRequest))
    # Tuples arrive as lists.
    plain = [msgspec.msgpack.decode(msgspec.msgpack.encode(each)) for each in (received, request)]
    assert plain[0] == plain[1]
    without = to_wire(request, with_turn=False)
    assert without.turn is None


def test_what_cannot_be_sent_is_refused() -> None:
    huge = EngineRequest(request_id="r", prompt=TokensPrompt(token_ids=[2**70]))
    messages = EngineRequest(request_id="r", prompt=ChatPrompt(messages=[]))
    for request in (huge, messages):
        with pytest.raises(InvalidRequest) as refused:
            to_wire(request, with_turn=False)
        assert refused.value.param == "input"
    with pytest.raises(ValueError, match="server process"):
        piece_of(1, EngineOutput(deltas=[TextDelta("a")]))


logprobs = st.builds(
    TokenLogprob,
    st.integers(0, 9),
    st.text(max_size=2),
    st.floats(-9, 0),
    st.binary(max_size=2),
    st.lists(
        st.builds(TopLogprob, st.integers(0, 9), st.text(max_size=2), st.floats(-9, 0), st.binary(max_size=2)),
        max_size=2,
    ).map(tuple),
    st.none() | st.integers(1, 9),
)  # fmt: skip
outputs = st.builds(
    EngineOutput,
    text=st.text(max_size=5),
    token_ids=st.lists(st.integers(0, 2**31), max_size=3),
    logprobs=st.none() | st.lists(logprobs, max_size=2),
    finish_reason=st.sampled_from([None, "stop", "length"]),
    stop_reason=st.none() | st.text(max_size=3) | st.integers(0, 9),
    prompt_tokens=st.none() | st.integers(0, 9),
    cached_tokens=st.none() | st.integers(0, 9),
    prompt_logprobs=st.none() | st.lists(st.none() | logprobs, max_size=2),
)


@given(outputs)
def test_outputs_arrive_whole(output: EngineOutput) -> None:
    sent = msgspec.msgpack.encode(piece_of(4, output))
    received = msgspec.msgpack.decode(sent, type=Piece)
    assert received.stream == 4
    assert output_of(received) == output
