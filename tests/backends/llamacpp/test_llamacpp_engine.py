"""The engine's promises, on the real llama.cpp with the shipped model."""

from __future__ import annotations

import asyncio
import threading
from contextlib import aclosing

import pytest

from gateway.base.constraints import Const
from gateway.base.errors import ConfigurationError, EngineUnavailable, InvalidRequest, Unsupported
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import ChatPrompt, EngineRequest, Sampling, TokensPrompt
from gateway_llamacpp import LlamaCppConfig, open_llamacpp
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio

LONG = {"ignore_eos": True, "max_tokens": 900}


def request_threads() -> int:
    return sum(thread.name == "llamacpp-request" for thread in threading.enumerate())


async def test_the_model_says_itself_what_it_is(engine):
    info = engine.info
    assert info.architecture == "qwen3"
    assert info.max_model_len == 1024
    assert info.eos_token == "<|im_end|>"
    assert info.eos_token_ids == (engine.tokenizer.encode("<|im_end|>")[0],)
    assert "im_start" in info.chat_template
    assert info.description


async def test_only_the_last_output_has_a_finish_reason(ask):
    answer = await ask(max_tokens=40, temperature=0)
    assert answer.outputs[-1].finish_reason is not None
    assert all(output.finish_reason is None for output in answer.outputs[:-1])
    assert answer.outputs[0].prompt_tokens == 10
    assert answer.outputs[0].cached_tokens is not None


async def test_the_end_token_is_counted_and_is_no_text(engine, ask):
    answer = await ask(temperature=0)
    (end,) = engine.info.eos_token_ids
    assert answer.reason == "stop"
    assert answer.cause == end
    assert answer.ids[-1] == end
    assert answer.text == engine.tokenizer.decode(answer.ids[:-1])
    with_specials = await ask(temperature=0, skip_special_tokens=False)
    assert with_specials.text == answer.text


async def test_max_tokens_is_exact(ask):
    for number in (1, 2, 7):
        answer = await ask(max_tokens=number, ignore_eos=True, seed=number)
        assert len(answer.ids) == number
        assert answer.reason == "length"


async def test_without_a_limit_the_context_is_the_limit(engine, ask):
    answer = await ask(ignore_eos=True)
    assert answer.reason == "length"
    assert 1000 <= 10 + len(answer.ids) <= engine.info.max_model_len


async def test_streams_run_at_once_and_wake_the_loop_together(engine, make_request, monkeypatch):
    """While one stream is half done all the others are; and there are fewer wake-ups than tokens."""
    progress = [0, 0, 0, 0]
    overlaps = wakes = 0
    drain = engine.mailbox._drain

    def counted():
        nonlocal wakes
        wakes += 1
        drain()

    monkeypatch.setattr(engine.mailbox, "_drain", counted)

    async def run(number):
        nonlocal overlaps
        async for output in engine.generate(make_request(ignore_eos=True, max_tokens=200)):
            progress[number] += len(output.token_ids)
            overlaps += all(0 < done < 200 for done in progress)

    await asyncio.gather(*(run(number) for number in range(4)))
    assert overlaps > 50
    assert 0 < wakes < sum(progress)


async def test_a_slow_reader_gets_all_in_few_outputs(engine, make_request):
    fast = [
        o
        async for o in engine.generate(make_request(max_tokens=200, temperature=0, ignore_eos=True))
    ]
    slow = []
    async for output in engine.generate(
        make_request(max_tokens=200, temperature=0, ignore_eos=True)
    ):
        slow.append(output)
        await asyncio.sleep(0.15)
    assert len(slow) < len(fast) / 4
    assert [t for o in slow for t in o.token_ids] == [t for o in fast for t in o.token_ids]
    assert "".join(o.text for o in slow) == "".join(o.text for o in fast)


async def test_closing_the_generator_frees_its_slot_and_ends_its_thread(engine, make_request):
    outputs = engine.generate(make_request(**LONG))
    await anext(outputs)
    assert engine._slots.free == 3
    assert request_threads() == 1
    await outputs.aclose()
    await wait_until_async(lambda: engine._slots.free == 4 and request_threads() == 0)
    await engine.health()


async def test_cancelling_the_reader_frees_the_slot(engine, make_request):
    async def read():
        async with aclosing(engine.generate(make_request(**LONG))) as outputs:
            async for _ in outputs:
                pass

    task = asyncio.create_task(read())
    await wait_until_async(lambda: engine._slots.free == 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await wait_until_async(lambda: engine._slots.free == 4)


async def test_aborted_slots_are_free_inside_llama_cpp_too(engine, ask, make_request):
    """If an abort left llama.cpp's slot busy, the next four would wait for 900 tokens."""
    running = [engine.generate(make_request(**LONG)) for _ in range(4)]
    await asyncio.gather(*(anext(outputs) for outputs in running))
    for outputs in running:
        await outputs.aclose()
    answers = await asyncio.gather(*(ask(max_tokens=2) for _ in range(4)))
    assert all(answer.ids for answer in answers)
    assert request_threads() <= 4


async def test_a_request_that_waits_for_a_slot_can_be_aborted(engine, make_request):
    running = [engine.generate(make_request(**LONG)) for _ in range(4)]
    await asyncio.gather(*(anext(outputs) for outputs in running))
    waiting = asyncio.ensure_future(anext(engine.generate(make_request(max_tokens=1))))
    await asyncio.sleep(0.02)
    assert not waiting.done()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert request_threads() == 4
    for outputs in running:
        await outputs.aclose()
    await wait_until_async(lambda: engine._slots.free == 4)


async def test_more_requests_than_slots_are_all_answered(ask):
    answers = await asyncio.gather(*(ask(max_tokens=5, ignore_eos=True) for _ in range(15)))
    assert [len(answer.ids) for answer in answers] == [5] * 15


async def test_a_long_prompt_can_be_aborted_before_its_first_token(engine, make_request):
    outputs = engine.generate(make_request(prompt=[300] * 1000))
    first = asyncio.ensure_future(anext(outputs))
    await wait_until_async(lambda: engine._slots.free == 3)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await wait_until_async(lambda: engine._slots.free == 4)


async def test_a_seed_gives_the_same_again(ask):
    first = await ask(max_tokens=40, seed=7, temperature=1.5, ignore_eos=True)
    again = await ask(max_tokens=40, seed=7, temperature=1.5, ignore_eos=True)
    other = await ask(max_tokens=40, seed=8, temperature=1.5, ignore_eos=True)
    assert first.ids == again.ids
    assert first.ids != other.ids
    assert (await ask(max_tokens=3, seed=2**63 + 5)).ids


async def test_without_a_seed_answers_differ(ask):
    answers = [await ask(max_tokens=30, temperature=3.0, ignore_eos=True) for _ in range(2)]
    assert answers[0].ids != answers[1].ids


async def test_a_prefix_is_reused_unless_a_salt_or_a_seed_forbids_it(ask):
    prompt = [300 + number for number in range(100)]
    # A slot may still be closing its last request: then another one reads the prompt, until all of them have.
    reused = [(await ask(prompt=prompt, max_tokens=1)).outputs[0].cached_tokens for _ in range(6)]
    assert max(reused) > 90
    assert (await ask(prompt=prompt, max_tokens=1, cache_salt="mine")).outputs[0].cached_tokens == 0
    assert (await ask(prompt=prompt, max_tokens=1, seed=1)).outputs[0].cached_tokens == 0


async def test_log_probabilities_spell_the_text(ask):
    answer = await ask(max_tokens=60, logprobs=3, temperature=1.0)
    assert b"".join(entry.bytes for entry in answer.logprobs).decode() == answer.text
    assert [entry.token_id for entry in answer.logprobs] == answer.ids
    for entry in answer.logprobs:
        assert entry.logprob <= 0
        assert len(entry.top) == 3
        assert [other.logprob for other in entry.top] == sorted(
            (other.logprob for other in entry.top), reverse=True
        )
        known = {other.token_id: other.logprob for other in entry.top}
        assert known.get(entry.token_id, entry.logprob) == pytest.approx(entry.logprob, abs=1e-4)


async def test_the_sampled_tokens_alone_have_log_probabilities_where_none_more_are_wanted(ask):
    answer = await ask(max_tokens=5, logprobs=0)
    assert len(answer.logprobs) == len(answer.ids)
    assert all(entry.top == () for entry in answer.logprobs)
    assert (await ask(max_tokens=5)).logprobs == []


@pytest.mark.parametrize(
    "text", ["naïve café", "漢字かな交じり文", "😀 👩‍👩‍👧 🇩🇪", "a\u0301\U0010ffff-€", "\ufffd"]
)
async def test_characters_of_several_tokens_keep_text_and_tokens_together(engine, ask, text):
    """llama.cpp's stream leaves out tokens that end inside a character; all of them must be found again."""
    answer = await ask(constraint=Const(text), logprobs=1, temperature=1.0)
    assert answer.text == text
    assert engine.tokenizer.decode(answer.ids, skip_special_tokens=True) == text
    assert b"".join(entry.bytes for entry in answer.logprobs).decode() == text


async def test_a_limit_inside_a_character_is_still_exact(engine, ask):
    whole = await ask(constraint=Const("😀😀"), temperature=0)
    assert len(whole.ids) > 6
    for number in range(1, len(whole.ids)):
        cut = await ask(constraint=Const("😀😀"), temperature=0, max_tokens=number)
        assert cut.ids == whole.ids[:number]
        assert cut.text == engine.tokenizer.decode(cut.ids).rstrip("\ufffd")  # of whole characters
        assert cut.reason == "length"


async def test_malformed_output_becomes_replacement_characters(engine, ask):
    for seed in range(5):
        answer = await ask(max_tokens=200, temperature=50.0, seed=seed, ignore_eos=True, logprobs=0)
        spelled = b"".join(entry.bytes for entry in answer.logprobs)
        assert spelled.decode(errors="replace") == answer.text
        assert len(answer.ids) == 200
        decoded = engine.tokenizer.decode(answer.ids, skip_special_tokens=True)
        assert decoded.removeprefix(answer.text).strip("\ufffd") == ""  # an incomplete character


async def test_a_stop_string_ends_the_text_before_it_also_across_tokens(engine, ask):
    text = "one two three four"
    for stop in (" three", "wo th", "e t", "r"):
        answer = await ask(constraint=Const(text), stop=(stop, "never"), logprobs=0)
        assert answer.text == text[: text.index(stop)]
        assert answer.reason == "stop"
        assert answer.cause == stop
        assert b"".join(entry.bytes for entry in answer.logprobs).decode() == answer.text
        kept = await ask(constraint=Const(text), stop=(stop,), include_stop_str_in_output=True)
        assert kept.text == text[: text.index(stop) + len(stop)]


async def test_a_stop_string_that_does_not_come_to_an_end_is_text(ask):
    answer = await ask(constraint=Const("one two"), stop=("two three",))
    assert answer.text == "one two"


async def test_stop_tokens_end_the_output(engine, ask):
    plain = await ask(temperature=0)
    token = plain.ids[4]
    at = plain.ids.index(token)
    answer = await ask(temperature=0, stop_token_ids=(token, 3))
    assert answer.ids == plain.ids[: at + 1]
    assert answer.text == engine.tokenizer.decode(plain.ids[:at])
    assert (answer.reason, answer.cause) == ("stop", token)


async def test_min_tokens_puts_the_end_off(engine, ask):
    plain = await ask(temperature=0)
    wanted = len(plain.ids) + 5
    for more in ({}, {"seed": 3}):
        answer = await ask(temperature=0, min_tokens=wanted, max_tokens=wanted + 20, **more)
        assert len(answer.ids) >= wanted
        assert engine.info.eos_token_ids[0] not in answer.ids[:wanted]
        assert answer.ids[: len(plain.ids) - 1] == plain.ids[:-1]
        assert answer.outputs[0].prompt_tokens == 10


async def test_logit_bias_and_bad_words_change_what_is_said(engine, ask):
    wanted = engine.tokenizer.encode("B")[0]
    answer = await ask(max_tokens=4, logit_bias={wanted: 100.0})
    assert answer.ids == [wanted] * 4
    plain = await ask(temperature=0)
    word = next(
        engine.tokenizer.decode([t]) for t in plain.ids if engine.tokenizer.decode([t]).isalpha()
    )
    answer = await ask(temperature=0, bad_words=(word,), max_tokens=60)
    assert not set(engine.tokenizer.encode(word)) & set(answer.ids)


async def test_top_k_of_one_is_greedy_at_any_temperature(ask):
    greedy = await ask(temperature=0, max_tokens=20)
    for sampling in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert (await ask(temperature=5.0, max_tokens=20, **sampling)).ids == greedy.ids


async def test_special_tokens_are_text_where_they_are_asked_for(engine, ask):
    token = engine.tokenizer.encode("<|im_start|>")[0]
    for skip, text in ((True, ""), (False, "<|im_start|>" * 3)):
        answer = await ask(
            max_tokens=3, logit_bias={token: 100.0}, skip_special_tokens=skip, logprobs=0
        )
        assert answer.ids == [token] * 3
        assert answer.text == text
        assert b"".join(entry.bytes for entry in answer.logprobs).decode() == text


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"prompt": []}, "input"),
        ({"prompt": [5, 10**7]}, "input"),
        ({"prompt": [-1]}, "input"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"logit_bias": {10**7: 1.0}}, "logit_bias"),
        ({"bad_words": ("several tokens",)}, "bad_words"),
        ({"min_tokens": 2, "constraint": Const("x")}, "min_tokens"),
    ],
)
async def test_what_cannot_be_done_is_refused_before_it_starts(engine, make_request, change, param):
    request = make_request(**change)
    with pytest.raises(InvalidRequest) as refusal:
        await engine.check(request)
    assert refusal.value.param == param
    with pytest.raises(InvalidRequest):
        await anext(engine.generate(request))
    assert engine._slots.free == 4


async def test_a_prompt_that_does_not_fit_is_refused_with_openais_code(engine, make_request):
    await engine.check(make_request(prompt=[300] * 1023))
    with pytest.raises(InvalidRequest) as refusal:
        await engine.check(make_request(prompt=[300] * 1024))
    assert refusal.value.param == "input"
    assert refusal.value.code == "context_length_exceeded"


async def test_the_longest_prompt_that_is_accepted_generates(ask):
    answer = await ask(prompt=[300] * 1023, ignore_eos=True)
    assert answer.reason == "length"
    assert len(answer.ids) == 1


async def test_messages_are_refused(engine):
    request = EngineRequest(request_id="x", prompt=ChatPrompt(messages=[]))
    with pytest.raises(Unsupported):
        await engine.check(request)


async def test_closing_the_engine_ends_running_and_waiting_requests():
    config = LlamaCppConfig(n_parallel=2, n_ctx=1024)
    request = EngineRequest(
        request_id="long", prompt=TokensPrompt(token_ids=[300]), sampling=Sampling(**LONG)
    )

    async def read():
        async for _ in engine.generate(request):
            pass

    async with open_llamacpp(config, EngineContext(name="tiny", path=None)) as engine:
        readers = [asyncio.ensure_future(read()) for _ in range(4)]
        await wait_until_async(lambda: engine._slots.free == 0)
    for outcome in await asyncio.gather(*readers, return_exceptions=True):
        assert isinstance(outcome, EngineUnavailable)
    await wait_until_async(lambda: request_threads() == 0)
    with pytest.raises(EngineUnavailable):
        await engine.health()
    with pytest.raises(EngineUnavailable):
        await engine.check(request)


@pytest.mark.parametrize(
    "content", [None, b"", b"GGUF", b"not a model at all, but long enough to be read"]
)
async def test_a_file_that_is_no_model_is_a_sentence(tmp_path, content):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"model\.gguf"):
        async with open_llamacpp(LlamaCppConfig(), EngineContext(name="x", path=str(path))):
            pass


async def test_a_lower_limit_of_the_configuration_holds():
    context = EngineContext(name="tiny", path=None, max_model_len=300)
    async with open_llamacpp(LlamaCppConfig(n_parallel=1), context) as engine:
        assert engine.info.max_model_len == 300
