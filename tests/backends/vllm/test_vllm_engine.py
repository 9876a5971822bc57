"""What the engine promises for every request, on the tiny model and the CPU."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import InvalidRequest, Unsupported
from gateway.plugins.protocols import ChatPrompt, EngineOutput, EngineRequest

pytest.importorskip("vllm", reason="vLLM is not installed", exc_type=ImportError)


def text_of(outputs: list[EngineOutput]) -> str:
    return "".join(output.text for output in outputs)


def tokens_of(outputs: list[EngineOutput]) -> list[int]:
    return [token_id for output in outputs for token_id in output.token_ids]


def bytes_of(outputs: list[EngineOutput]) -> bytes:
    return b"".join(token.bytes for output in outputs for token in output.logprobs or ())


def test_the_outputs_add_up_to_the_text_of_the_tokens(served: Any) -> None:
    outputs = served.generate(served.ask())
    *tokens, last = tokens_of(outputs)
    assert text_of(outputs) == served.engine.tokenizer.decode(tokens)
    assert last in served.engine.info.eos_token_ids
    assert [output.finish_reason for output in outputs[:-1]] == [None] * (len(outputs) - 1)
    assert outputs[-1].finish_reason == "stop"
    assert outputs[-1].stop_reason == last


def test_the_first_output_says_how_long_the_prompt_was(served: Any) -> None:
    request = served.ask()
    first, *others = served.generate(request)
    assert first.prompt_tokens == len(request.prompt.token_ids)
    assert first.cached_tokens == 0
    assert all(output.prompt_tokens is None for output in others)


def test_max_tokens_ends_with_length(served: Any) -> None:
    outputs = served.generate(served.ask(max_tokens=3))
    assert len(tokens_of(outputs)) == 3
    assert outputs[-1].finish_reason == "length"


def test_more_max_tokens_than_the_context_holds_end_with_the_context(served: Any) -> None:
    request = served.ask_tokens([300] * 1000, max_tokens=2**40, ignore_eos=True)
    outputs = served.generate(request)
    assert len(tokens_of(outputs)) == 24
    assert outputs[-1].finish_reason == "length"


def test_a_stop_string_is_left_out_unless_it_is_asked_for(served: Any) -> None:
    whole = text_of(served.generate(served.ask()))
    stop = whole[4:7]
    outputs = served.generate(served.ask(stop=(stop,)))
    assert text_of(outputs) == whole[: whole.index(stop)]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", stop)
    outputs = served.generate(served.ask(stop=(stop,), include_stop_str_in_output=True))
    assert text_of(outputs) == whole[: whole.index(stop) + len(stop)]


def test_a_stop_token_ends_the_output(served: Any) -> None:
    whole = tokens_of(served.generate(served.ask()))
    outputs = served.generate(served.ask(stop_token_ids=(whole[3],)))
    assert tokens_of(outputs) == whole[: whole.index(whole[3]) + 1]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", whole[3])


@pytest.mark.parametrize("adapter", [None, "noise"])
@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("stop", [(), ("e", "the lazy dog", " ")])
def test_the_bytes_of_the_log_probabilities_add_up_to_the_text(
    served: Any, adapter: str | None, skip: bool, stop: tuple[str, ...]
) -> None:
    for seed in range(4):
        request = served.ask(
            adapter=adapter,
            temperature=1.5,
            seed=seed,
            logprobs=2,
            skip_special_tokens=skip,
            stop=stop,
        )
        outputs = served.generate(request)
        assert bytes_of(outputs) == text_of(outputs).encode()
        scored = [token for output in outputs for token in output.logprobs or ()]
        assert [token.token_id for token in scored] == tokens_of(outputs)


def test_alternatives_come_best_first_and_as_many_as_asked_for(served: Any) -> None:
    outputs = served.generate(served.ask(logprobs=5, temperature=1.0, seed=1))
    for output in outputs:
        for token in output.logprobs or ():
            values = [alternative.logprob for alternative in token.top]
            assert len(values) == 5
            assert values == sorted(values, reverse=True)
            assert token.logprob <= values[0]
            for alternative in token.top:
                assert alternative.bytes == served.engine.tokenizer.token_bytes(
                    alternative.token_id
                )


def test_no_alternatives_and_no_log_probabilities_are_two_things(served: Any) -> None:
    scored = [t for o in served.generate(served.ask(logprobs=0)) for t in o.logprobs or ()]
    assert scored
    assert all(token.top == () for token in scored)
    assert all(output.logprobs is None for output in served.generate(served.ask()))


def test_prompt_log_probabilities_come_with_the_first_output(served: Any) -> None:
    request = served.ask(prompt_logprobs=1)
    first, *others = served.generate(request)
    scored = first.prompt_logprobs
    assert scored[0] is None
    assert [token.token_id for token in scored[1:]] == list(request.prompt.token_ids[1:])
    for token in scored[1:]:
        assert (token.rank == 1) == (token.token_id == token.top[0].token_id)
    assert all(output.prompt_logprobs is None for output in others)


def test_a_seed_makes_the_output_repeatable(served: Any) -> None:
    def once(seed: int) -> str:
        return text_of(served.generate(served.ask(adapter="noise", temperature=1.0, seed=seed)))

    assert once(1) == once(1)
    assert once(1) != once(2)


def test_the_sampling_parameters_arrive(served: Any) -> None:
    whole = tokens_of(served.generate(served.ask()))
    other = served.engine.tokenizer.encode("zebra")[0]
    forced = tokens_of(served.generate(served.ask(max_tokens=3, logit_bias={other: 100.0})))
    assert forced == [other] * 3
    word = served.engine.tokenizer.decode(whole[:1])
    assert tokens_of(served.generate(served.ask(bad_words=(word,))))[0] != whole[0]
    longer = tokens_of(served.generate(served.ask(min_tokens=len(whole) + 5)))
    assert len(longer) >= len(whole) + 5
    endless = served.generate(served.ask(ignore_eos=True, max_tokens=60))
    assert len(tokens_of(endless)) == 60
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 1.0}):
        assert tokens_of(served.generate(served.ask(temperature=2.0, **narrow))) == whole


def test_the_prefix_cache_is_shared_only_under_one_salt(served: Any) -> None:
    prompt = list(range(200, 600))

    def cached(salt: str | None) -> int:
        request = served.ask_tokens(prompt, max_tokens=1, cache_salt=salt)
        count: int = served.generate(request)[0].cached_tokens
        return count

    assert cached("mine") == 0
    assert cached("mine") >= 128
    assert cached("yours") == 0


def test_an_adapter_changes_the_answer(served: Any) -> None:
    assert served.engine.info.adapters == ("noise",)
    plain = text_of(served.generate(served.ask()))
    assert text_of(served.generate(served.ask(adapter="noise"))) != plain
    assert text_of(served.generate(served.ask())) == plain


def test_a_priority_is_taken(served: Any) -> None:
    for priority in (-3, served.engine.last_priority):
        assert text_of(served.generate(served.ask(priority=priority)))


def test_streams_side_by_side_do_not_mix(served: Any) -> None:
    async def one(request: EngineRequest) -> list[EngineOutput]:
        return [output async for output in served.engine.generate(request)]

    async def all_of_them() -> list[list[EngineOutput]]:
        return await asyncio.gather(*map(one, requests))

    requests = [served.ask("x " * number, max_tokens=5 + number) for number in range(1, 21)]
    for request, outputs in zip(requests, served.run(all_of_them()), strict=True):
        assert outputs[0].prompt_tokens == len(request.prompt.token_ids)
        assert len(tokens_of(outputs)) <= request.sampling.max_tokens
        assert sum(output.finish_reason is not None for output in outputs) == 1


def test_closing_the_stream_aborts_the_request_in_the_engine(served: Any) -> None:
    engine = served.engine

    async def begin_and_leave() -> tuple[int, int]:
        request = served.ask(max_tokens=900, ignore_eos=True)
        async with aclosing(engine.generate(request)) as stream:
            await anext(stream)
            during = engine.running
        return during, engine.running

    assert served.run(begin_and_leave()) == (1, 0)
    assert served.run(comes_to_rest(engine))


def test_cancelling_the_reader_aborts_the_request_in_the_engine(served: Any) -> None:
    engine = served.engine

    async def read() -> None:
        async for _ in engine.generate(served.ask(max_tokens=900, ignore_eos=True)):
            pass

    async def cancel() -> None:
        task = asyncio.create_task(read())
        while not engine.running:  # noqa: ASYNC110 (nothing tells when vLLM has begun)
            await asyncio.sleep(0.005)
        task.cancel()
        await asyncio.wait([task])

    served.run(cancel())
    assert (engine.running, engine.waiting) == (0, 0)
    assert served.run(comes_to_rest(engine))


async def comes_to_rest(engine: Any) -> bool:
    """Whether vLLM's engine process soon has nothing to do: long before 900 tokens could have been made."""
    for _ in range(20):
        if not await engine._llm.engine_core.call_utility_async("has_work"):
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.parametrize(
    ("settings", "param"),
    [
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"presence_penalty": 3.0}, "presence_penalty"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"min_tokens": 100, "max_tokens": 5}, "min_tokens"),
        ({"seed": 2**70}, "seed"),
        ({"stop": ("",)}, "stop"),
        ({"stop_token_ids": (10**6,)}, "stop_token_ids"),
        ({"bad_words": ("",)}, "bad_words"),
        ({"logit_bias": {10**6: 1.0}}, "logit_bias"),
        ({"logit_bias": {1: float("inf")}}, "logit_bias"),
        ({"logprobs": 1000}, "logprobs"),
        ({"prompt_logprobs": 1000}, "prompt_logprobs"),
        ({"adapter": "nobody"}, "model"),
        ({"priority": 2**64}, "priority"),
    ],
)
def test_what_vllm_refuses_is_a_400_that_names_the_parameter(
    served: Any, settings: dict[str, Any], param: str
) -> None:
    request = served.ask(**settings)
    with pytest.raises(InvalidRequest) as checked:
        served.check(request)
    assert checked.value.param == param
    with pytest.raises(InvalidRequest) as generated:
        served.generate(request)
    assert generated.value.param == param
    assert served.engine.running + served.engine.waiting == 0


@pytest.mark.parametrize("ids", [[], [300] * 1024, [10**6], [-1], [2**70]])
def test_a_prompt_that_cannot_be_is_refused(served: Any, ids: list[int]) -> None:
    with pytest.raises(InvalidRequest) as checked:
        served.check(served.ask_tokens(ids))
    assert checked.value.param == "input"
    assert (checked.value.code == "context_length_exceeded") == (len(ids) == 1024)


def test_messages_are_not_taken(served: Any) -> None:
    prompt = ChatPrompt(messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(Unsupported):
        served.check(EngineRequest(request_id="test", prompt=prompt))


def test_a_good_request_passes_the_check_and_starts_nothing(served: Any) -> None:
    served.check(served.ask(stop=("x",), logprobs=3, bad_words=("dog",)))
    assert served.engine.running + served.engine.waiting == 0


def test_the_model_is_described(served: Any) -> None:
    info = served.engine.info
    assert (info.name, info.engine) == ("tiny", "vllm")
    assert (info.architecture, info.model_type) == ("Qwen3ForCausalLM", "qwen3")
    assert info.max_model_len == 1024
    assert "<|im_start|>" in info.chat_template
    assert info.eos_token == "<|im_end|>"
    assert served.engine.tokenizer.encode("<|im_end|>") == [info.eos_token_ids[0]]


def test_every_token_has_the_bytes_that_it_adds(served: Any) -> None:
    tokenizer = served.engine.tokenizer
    text = 'Ünïcödé 漢字 🦊 {"a": [1, 2]}\n\t<think>x</think><|im_end|>'
    ids = tokenizer.encode(text)
    assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    assert tokenizer.decode(ids) == text
    assert tokenizer.decode(ids, skip_special_tokens=True) == text.removesuffix("<|im_end|>")
    with pytest.raises(ValueError, match="outside"):
        tokenizer.token_bytes(10**6)


def test_the_engine_is_healthy(served: Any) -> None:
    served.run(served.engine.health())


def test_without_the_setting_there_are_no_metrics(served: Any) -> None:
    assert served.engine.metrics() == []


def test_adapters_are_loaded_and_unloaded_while_it_runs(
    served: Any, noise: Path, tmp_path: Path
) -> None:
    engine = served.engine
    noisy = text_of(served.generate(served.ask(max_tokens=8, adapter="noise")))
    served.run(engine.load_adapter("second", str(noise)))
    assert engine.info.adapters == ("noise", "second")
    assert text_of(served.generate(served.ask(max_tokens=8, adapter="second"))) == noisy
    with pytest.raises(InvalidRequest, match="cannot load the adapter 'broken'"):
        served.run(engine.load_adapter("broken", str(tmp_path)))
    served.run(engine.unload_adapter("second"))
    assert engine.info.adapters == ("noise",)
    with pytest.raises(InvalidRequest, match="There is no adapter 'second'"):
        served.generate(served.ask(max_tokens=8, adapter="second"))
    assert text_of(served.generate(served.ask(max_tokens=8, adapter="noise"))) == noisy


def test_transfers_of_the_cache_need_a_connector(served: Any) -> None:
    assert "kv_transfer_params" not in served.engine.capabilities
