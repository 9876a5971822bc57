"""The tokenizer against llama.cpp itself."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest

from gateway.base.errors import EngineUnavailable, InvalidRequest
from gateway_llamacpp import tokenizer as tokenizer_module

pytestmark = pytest.mark.anyio


async def test_decoding_is_llama_cpps(engine):
    """Token by token, for the whole vocabulary."""
    tokenizer = engine.tokenizer
    ids = range(len(tokenizer._vocabulary))
    for token in ids:
        theirs = json.loads(tokenizer.request("POST", "/detokenize", {"tokens": [token]}))[
            "content"
        ]
        assert tokenizer.decode([token]) == theirs


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Hello, world!\n\n  x",
        "naïve 漢字 😀\u200d",
        "<|im_start|>user\n<think>a</think><|im_end|>",
    ],
)
async def test_encoding_and_decoding_give_the_text_back(engine, text):
    ids = engine.tokenizer.encode(text)
    assert engine.tokenizer.decode(ids) == text
    assert b"".join(map(engine.tokenizer.token_bytes, ids)).decode() == text


async def test_special_tokens_in_a_text_become_their_ids(engine):
    ids = engine.tokenizer.encode("<|im_start|>user")
    assert engine.tokenizer.decode(ids, skip_special_tokens=True) == "user"
    assert engine.tokenizer.token_bytes(ids[0]) == b"<|im_start|>"


async def test_many_threads_may_encode_at_once(engine):
    texts = [f"text number {number}" for number in range(64)]
    found = await asyncio.gather(
        *(asyncio.to_thread(engine.tokenizer.encode, text) for text in texts)
    )
    assert [engine.tokenizer.decode(ids) for ids in found] == texts


async def test_encoding_goes_on_after_the_connection_was_idle(engine):
    """llama.cpp closes an idle connection after some seconds; here it is closed under the tokenizer's hands."""
    engine.tokenizer.encode("a")
    engine.tokenizer._short._connection.sock.shutdown(2)
    assert engine.tokenizer.decode(engine.tokenizer.encode("again")) == "again"


async def test_a_short_text_does_not_wait_for_a_long_one(engine):
    """An event loop encodes it, and all streams would wait with it."""
    with engine.tokenizer._long._lock:  # as while a thread encodes a long one
        assert engine.tokenizer.encode("short")
    assert not engine.tokenizer._short._lock.locked()
    long = "word " * 30_000
    engine.tokenizer._max_bytes = None
    with engine.tokenizer._short._lock:
        assert engine.tokenizer.decode(engine.tokenizer.encode(long)) == long


async def test_text_is_encoded_while_requests_run(engine, make_request):
    running = [engine.generate(make_request(ignore_eos=True, max_tokens=900)) for _ in range(4)]
    await asyncio.gather(*(anext(outputs) for outputs in running))
    for _ in range(20):
        assert engine.tokenizer.decode(engine.tokenizer.encode("Hello, world!")) == "Hello, world!"
    for outputs in running:
        await outputs.aclose()


async def test_a_text_that_is_too_long_however_it_is_read_is_refused_unread(engine):
    """Reading it would take llama.cpp a minute, and everybody else waits for its tokenizer."""
    began = time.monotonic()
    with pytest.raises(InvalidRequest) as refused:
        engine.tokenizer.encode("x" * 10_000_000)
    assert time.monotonic() - began < 30
    assert refused.value.code == "context_length_exceeded"


async def test_a_text_that_may_fit_is_read(engine):
    """The longest tokens of the vocabulary, as many as there is room for."""
    vocabulary = engine.tokenizer._vocabulary
    longest = max(vocabulary.text_of, key=len)
    assert engine.tokenizer.encode(longest * 1000)
    limit = engine.info.max_model_len * vocabulary.longest
    assert len(engine.tokenizer.encode("a " * (limit // 4))) > engine.info.max_model_len


async def test_a_request_that_is_not_answered_in_time_is_sent_once(monkeypatch):
    """A second one would have the text tokenized twice."""
    monkeypatch.setattr(
        tokenizer_module.LocalConnection.__init__, "__kwdefaults__", {"timeout": 0.2}
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        route = tokenizer_module._Route(f"http://127.0.0.1:{silent.getsockname()[1]}", "key")
        with pytest.raises(EngineUnavailable, match="timed out"):
            await asyncio.to_thread(route.request, "POST", "/tokenize", b"{}")
        silent.accept()[0].close()
        silent.setblocking(False)
        with pytest.raises(BlockingIOError):
            silent.accept()
