"""How requests reach TensorRT-LLM, and how its outputs and its death come back; over a stand-in."""

from __future__ import annotations

import asyncio
import enum
import importlib.util
import json
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.constraints import Const, Constraint, Grammar, JsonSchema, Regex, Sequence
from gateway.base.errors import EngineUnavailable, InvalidRequest, Unsupported
from gateway.plugins.protocols import TokensPrompt
from gateway_doctor.checks.generating import generate
from tests.waiting import wait_until_async

pytestmark = pytest.mark.anyio
needs_xgrammar = pytest.mark.skipif(
    importlib.util.find_spec("xgrammar") is None,
    reason="xgrammar is not installed; TensorRT-LLM and vLLM bring it",
)


BY_PRIORITY = {"scheduler_config": {"waiting_queue_policy": "priority"}}
ATTENTION_DP = {"enable_attention_dp": True}


async def test_every_sampling_parameter_arrives(start: Any, ask: Any) -> None:
    engine, llm = await start(args=BY_PRIORITY)
    wanted = {
        "max_tokens": 7,
        "min_tokens": 2,
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 20,
        "min_p": 0.1,
        "presence_penalty": 0.5,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.1,
        "seed": 42,
        "logprobs": 2,
    }
    request = ask(
        engine,
        **wanted,
        stop=("never",),
        stop_token_ids=(5,),
        bad_words=("the",),
        logit_bias={3: 1.5},
        ignore_eos=False,
        cache_salt="salt",
        priority=-50,
    )
    await generate(engine, request)
    [asked] = llm.requests
    params = asked["sampling_params"]
    assert {name: getattr(params, name) for name in wanted} == wanted
    assert params.bad == ["the"]
    assert params.embedding_bias[3] == 1.5
    assert sum(map(bool, params.embedding_bias)) == 1
    assert asked["cache_salt"] == "salt"
    assert asked["priority"] == 0.75
    # Text and stop strings are the gateway's own.
    assert params.detokenize is False
    assert params.stop is None
    assert params.include_stop_str_in_output is True
    # All ends of the model, and the request's own.
    assert set(params.stop_token_ids) | {params.end_id} == {5, *engine.info.eos_token_ids}


async def test_nothing_said_means_sampling_and_another_seed_each_time(start: Any, ask: Any) -> None:
    engine, llm = await start()
    for _ in range(2):
        await generate(engine, ask(engine, temperature=None, ignore_eos=False))
    one, other = (asked["sampling_params"] for asked in llm.requests)
    assert one.temperature == 1.0
    assert one.seed != other.seed


async def test_ends_are_ignored_all_of_them(start: Any, ask: Any) -> None:
    engine, _ = await start()
    ends = dict.fromkeys(engine.info.eos_token_ids, 90.0)
    done = await generate(engine, ask(engine, logit_bias=ends))
    assert done.finish == "length"
    assert set(done.token_ids) <= ends.keys()
    done = await generate(engine, ask(engine, logit_bias=ends, ignore_eos=False))
    assert (done.finish, len(done.token_ids)) == ("stop", 1)
    assert done.stop_reason == done.token_ids[0]
    assert done.text == ""


@pytest.mark.parametrize("skip", [True, False])
async def test_the_end_token_is_no_text(start: Any, ask: Any, skip: bool) -> None:
    engine, _ = await start()
    end = engine.info.eos_token_ids[0]
    done = await generate(
        engine, ask(engine, ignore_eos=False, logit_bias={end: 3.0}, skip_special_tokens=skip, max_tokens=200)
    )  # fmt: skip
    assert done.finish == "stop"
    assert done.token_ids[-1] in engine.info.eos_token_ids
    assert "<|im_end|>" not in done.text


@pytest.mark.parametrize(
    ("parameter", "settings"),
    [
        ("temperature", {"temperature": float("nan")}),
        ("temperature", {"temperature": -1.0}),
        ("top_p", {"top_p": 0.0}),
        ("top_p", {"top_p": 1.5}),
        ("top_k", {"top_k": -2}),
        ("min_p", {"min_p": 2.0}),
        ("presence_penalty", {"presence_penalty": 3.0}),
        ("repetition_penalty", {"repetition_penalty": 0.0}),
        ("max_tokens", {"max_tokens": 0}),
        ("min_tokens", {"min_tokens": 100}),
        ("logprobs", {"logprobs": -1}),
        ("logprobs", {"logprobs": 101}),
        ("prompt_logprobs", {"prompt_logprobs": 101}),
        ("stop_token_ids", {"stop_token_ids": (2**31,)}),
        ("logit_bias", {"logit_bias": {2**31: 1.0}}),
        ("logit_bias", {"logit_bias": {1: 101.0}}),
        ("bad_words", {"bad_words": ("a",), "ignore_eos": True}),
        ("priority", {"priority": 101}),
        ("model", {"adapter": "nobody"}),
    ],
)
async def test_what_it_cannot_do_is_refused_by_name(
    start: Any, ask: Any, parameter: str, settings: dict[str, Any]
) -> None:
    engine, llm = await start(args=BY_PRIORITY)
    request = ask(engine, **settings)
    for attempt in (engine.check(request), generate(engine, request)):
        with pytest.raises(InvalidRequest) as caught:
            await attempt
        assert caught.value.param == parameter
    assert llm.requests == []


async def test_a_prompt_longer_than_a_step_is_refused_unless_it_is_chunked(
    start: Any, ask: Any
) -> None:
    engine, _ = await start(max_num_tokens=4)
    with pytest.raises(InvalidRequest, match="max_num_tokens is 4") as caught:
        await engine.check(ask(engine))
    assert caught.value.code == "context_length_exceeded"
    engine, _ = await start(max_num_tokens=4, enable_chunked_prefill=True)
    assert (await generate(engine, ask(engine))).finish == "length"


async def test_prompt_log_probabilities_are_whole_whatever_is_cached(start: Any, ask: Any) -> None:
    engine, _ = await start()
    request = ask(engine, "one two three four five six seven", prompt_logprobs=2, max_tokens=2)
    for _ in range(2):
        done = await generate(engine, request)
        told = done.outputs[0].prompt_logprobs
        assert told is not None
        assert told[0] is None
        ids = list(request.prompt.token_ids)
        assert [token.token_id for token in told[1:]] == ids[1:]
        assert all(len(token.top) == 2 and token.logprob <= 0 for token in told[1:])


async def test_cached_tokens_are_told_and_a_salt_keeps_them_apart(start: Any, ask: Any) -> None:
    engine, _ = await start()
    prompt = "one two three four five six seven eight nine"

    async def cached(**settings: Any) -> int | None:
        done = await generate(engine, ask(engine, prompt, **settings))
        assert [output.cached_tokens for output in done.outputs[1:]] == [None] * (
            len(done.outputs) - 1
        )
        return done.outputs[0].cached_tokens

    assert await cached() == 0
    assert (await cached() or 0) >= 4
    assert await cached(cache_salt="mine") == 0


async def test_an_adapter_is_asked_for_by_its_name(start: Any, ask: Any, tmp_path: Path) -> None:
    engine, llm = await start(lora_modules={"support": str(tmp_path)}, max_lora_rank=16)
    assert engine.info.adapters == ("support",)
    assert llm.args.lora_config == {
        "lora_dir": [str(tmp_path)],
        "max_loras": 1,
        "max_cpu_loras": 1,
        "max_lora_rank": 16,
    }
    await generate(engine, ask(engine, adapter="support"))
    assert llm.requests[0]["lora_request"].lora_name == "support"
    assert llm.requests[0]["lora_request"].lora_path == str(tmp_path)


async def test_a_bad_word_stays_out(start: Any, ask: Any) -> None:
    engine, _ = await start()
    free = await generate(engine, ask(engine, ignore_eos=False))
    word = engine.tokenizer.decode([free.token_ids[0]])
    kept = await generate(engine, ask(engine, ignore_eos=False, bad_words=(word,)))
    assert free.token_ids[0] not in kept.token_ids


async def test_abort_by_closing_by_cancelling_and_by_a_stop_string(start: Any, ask: Any) -> None:
    engine, llm = await start()
    long = ask(engine, max_tokens=400)
    async with aclosing(engine.generate(long)) as stream:
        await anext(stream)
        assert engine.running == 1
    text = (await generate(engine, ask(engine))).text
    stopped = await generate(engine, ask(engine, max_tokens=400, stop=(text[5:8],)))
    assert stopped.stop_reason == text[5:8]
    llm.executor.frozen.set()
    task = asyncio.create_task(generate(engine, long))
    await wait_until_async(lambda: engine.waiting == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    llm.executor.frozen.clear()
    assert (engine.running, engine.waiting) == (0, 0)
    assert await asyncio.to_thread(llm.executor.idle, 60)
    assert (await generate(engine, ask(engine))).finish == "length"


@pytest.mark.parametrize("tell", [True, False])
async def test_death_ends_every_request_and_is_not_forgotten(
    start: Any, ask: Any, tell: bool
) -> None:
    """Some versions tell those that wait, others leave them waiting for ever."""
    engine, llm = await start()
    llm.executor.frozen.set()
    running = [asyncio.create_task(generate(engine, ask(engine))) for _ in range(3)]
    await wait_until_async(lambda: engine.waiting == 3)
    llm.executor.die(RuntimeError("a GPU fell off the bus"), tell=tell)
    async with asyncio.timeout(60):
        ended = await asyncio.gather(*running, return_exceptions=True)
    assert [type(each) for each in ended] == [EngineUnavailable] * 3
    if tell:
        assert "fell off the bus" in str(ended[0])
    for attempt in (engine.health(), engine.check(ask(engine)), generate(engine, ask(engine))):
        with pytest.raises(EngineUnavailable, match="Restart the server"):
            await attempt


async def test_a_request_error_leaves_the_engine_alive(start: Any, ask: Any) -> None:
    from tensorrt_llm.result import RequestError, Step

    engine, llm = await start()
    original = llm._executor.submit

    def submit(prompt: Any, params: Any, salt: Any) -> Any:
        result = original(prompt, params, salt)
        result.put(Step([], [], error=RequestError("CUDA says no")))
        return result

    llm._executor.submit = submit
    with pytest.raises(Exception, match="CUDA says no") as caught:
        await generate(engine, ask(engine, max_tokens=400))
    assert getattr(caught.value, "status", None) == 500
    llm._executor.submit = original
    await engine.health()
    assert (await generate(engine, ask(engine))).finish == "length"


async def test_closing_the_engine_ends_its_requests_and_its_worker(
    tensorrt_llm: Any, config: Any, ask: Any
) -> None:
    from gateway.plugins.hookspecs import EngineContext
    from gateway_trtllm import open_engine

    model = Path(__file__).parents[2] / "models" / "tiny-qwen3"
    async with open_engine(config(), EngineContext(name="tiny", path=str(model))) as engine:
        llm = tensorrt_llm.LLM.opened[-1]
        llm.executor.frozen.set()
        task = asyncio.create_task(generate(engine, ask(engine)))
        await wait_until_async(lambda: engine.waiting == 1)
        assert engine.info.max_model_len == 32768
    async with asyncio.timeout(60):
        [ended] = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(ended, EngineUnavailable)
    assert tensorrt_llm.LLM.opened == []
    assert not llm.executor._thread.is_alive()


async def test_without_guided_decoding_a_constraint_is_refused(start: Any, ask: Any) -> None:
    engine, _ = await start(guided_decoding="none")
    assert not engine.capabilities & {"json_schema", "regex", "structure"}
    with pytest.raises(Unsupported, match="guided_decoding"):
        await engine.check(ask(engine, constraint=Regex("a"), ignore_eos=False))


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


@needs_xgrammar
@pytest.mark.parametrize(
    ("constraint", "guide", "settings"),
    [
        (JsonSchema(SCHEMA), {"json": SCHEMA}, {"max_json_whitespace": None}),
        (
            JsonSchema(SCHEMA),
            {"type": "json_schema", "json_schema": SCHEMA, "max_whitespace_cnt": 64},
            {},
        ),
        (Regex("a.b"), {"regex": r"a[^\n]b"}, {}),
        (Grammar("gbnf", 'root ::= "a"'), {"grammar": 'root ::= "a"'}, {}),
        (
            Sequence((Const("<tool_call>"), Regex("a"))),
            {
                "type": "sequence",
                "elements": [{"type": "const_string", "value": "<tool_call>"}, {"type": "regex", "pattern": "a"}],
            },
            {},
        ),
    ],
)  # fmt: skip
async def test_constraints_arrive_as_guides(
    start: Any, ask: Any, constraint: Constraint, guide: Any, settings: Any
) -> None:
    engine, llm = await start(**settings)
    await generate(engine, ask(engine, constraint=constraint, ignore_eos=False, max_tokens=100))
    params = llm.requests[0]["sampling_params"]
    guided = params.guided_decoding
    if guided.structural_tag is not None:
        assert json.loads(guided.structural_tag)["format"] == guide
    else:
        assert {name: getattr(guided, name) for name in guide} == guide
    # A special token is not the text that it is written with.
    special = engine.tokenizer.special["<|im_start|>"]
    assert special in params.bad_token_ids


@needs_xgrammar
@pytest.mark.parametrize(
    "bad", [Regex("a("), Grammar("gbnf", "root ::= ("), Grammar("lark", "start: no")]
)
async def test_a_bad_constraint_is_refused_before_anything_begins(
    start: Any, ask: Any, bad: Constraint
) -> None:  # fmt: skip
    engine, llm = await start()
    for constraint in (bad, Sequence((Const("a"), bad))):
        with pytest.raises(InvalidRequest) as caught:
            await engine.check(ask(engine, constraint=constraint, ignore_eos=False))
        assert "/project/" not in caught.value.message
    with pytest.raises(InvalidRequest) as caught:
        await engine.check(ask(engine, constraint=Regex("a")))
    assert caught.value.param == "ignore_eos"
    assert llm.requests == []


async def test_a_prompt_is_read_as_it_is_given(start: Any, ask: Any) -> None:
    engine, llm = await start()
    await generate(engine, ask(engine, prompt=TokensPrompt(token_ids=(7, 8, 9))))
    assert llm.requests[0]["prompt"] == [7, 8, 9]


class Policy(enum.Enum):
    FCFS = "fcfs"
    PRIORITY = "priority"


@pytest.mark.parametrize(
    ("scheduler", "honoured"),
    [
        (None, False),
        ({}, False),
        ({"waiting_queue_policy": "fcfs"}, False),
        ({"waiting_queue_policy": "priority"}, True),
        (SimpleNamespace(waiting_queue_policy=Policy.FCFS), False),
        (SimpleNamespace(waiting_queue_policy=Policy.PRIORITY), True),
        (SimpleNamespace(capacity_scheduler_policy="max_utilization"), False),
    ],
)
async def test_priorities_are_claimed_only_where_the_queue_honours_them(
    start: Any, ask: Any, scheduler: Any, honoured: bool
) -> None:
    engine, llm = await start(args={} if scheduler is None else {"scheduler_config": scheduler})
    assert (engine.last_priority is not None) is honoured
    await generate(engine, ask(engine))
    request = ask(engine, priority=-50)
    if honoured:
        await generate(engine, request)
        assert [asked["priority"] for asked in llm.requests] == [0.5, 0.75]
    else:
        with pytest.raises(Unsupported, match="waiting_queue_policy") as caught:
            await engine.check(request)
        assert caught.value.param == "priority"


async def test_a_request_may_choose_a_rank_of_attention(start: Any, ask: Any) -> None:
    engine, llm = await start(tensor_parallel_size=4, args=ATTENTION_DP)
    assert "data_parallel_rank" in engine.capabilities
    await generate(engine, ask(engine, data_parallel_rank=3))
    chosen = llm.requests[-1]["scheduling_params"]
    assert (chosen.attention_dp_rank, chosen.attention_dp_relax) == (3, False)
    await generate(engine, ask(engine))
    assert llm.requests[-1]["scheduling_params"] is None
    with pytest.raises(InvalidRequest, match="ranks 0 to 3") as caught:
        await engine.check(ask(engine, data_parallel_rank=4))
    assert caught.value.param == "data_parallel_rank"
    engine, _ = await start(tensor_parallel_size=4)
    assert "data_parallel_rank" not in engine.capabilities
    with pytest.raises(Unsupported, match="enable_attention_dp"):
        await engine.check(ask(engine, data_parallel_rank=0))


async def test_a_conversation_stays_where_its_prefix_is(start: Any, ask: Any) -> None:
    engine, llm = await start(tensor_parallel_size=4, args=ATTENTION_DP)
    hints = {"prompt_cache_key": "thread 1"}
    for settings in ({"hints": hints}, {"hints": hints}, {"hints": hints, "owner": "other"}, {}):
        await generate(engine, ask(engine, **settings))
    one, same, other, none = (asked["conversation_params"] for asked in llm.requests)
    assert one == same
    assert one.conversation_id != other.conversation_id
    assert none is None
    engine, llm = await start()
    await generate(engine, ask(engine, hints=hints))
    assert llm.requests[-1]["conversation_params"] is None, "there is one rank only"


async def test_version_1_2_serves_what_it_can(
    start: Any, ask: Any, tensorrt_llm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no trace headers, no priorities, no conversations and no `preprocess`."""
    newer = tensorrt_llm.LLM.generate_async

    def generate_async(
        self: Any,
        inputs: Any,
        sampling_params: Any = None,
        lora_request: Any = None,
        prompt_adapter_request: Any = None,
        streaming: bool = False,
        kv_cache_retention_config: Any = None,
        disaggregated_params: Any = None,
        _postproc_params: Any = None,
        scheduling_params: Any = None,
        cache_salt: str | None = None,
    ) -> Any:
        given = {"scheduling_params": scheduling_params, "cache_salt": cache_salt}
        return newer(self, inputs, sampling_params, lora_request, streaming=streaming, **given)

    monkeypatch.setattr(tensorrt_llm.LLM, "generate_async", generate_async)
    monkeypatch.delattr(tensorrt_llm.LLM, "preprocess")
    engine, llm = await start(
        tensor_parallel_size=2,
        args={**ATTENTION_DP, **BY_PRIORITY, "otlp_traces_endpoint": "http://127.0.0.1:9"},
    )
    assert engine.last_priority is None
    assert "images" not in engine.capabilities
    settings = {"hints": {"prompt_cache_key": "k"}, "trace_headers": {"traceparent": "00"}}
    done = await generate(engine, ask(engine, **settings, cache_salt="salt"))
    assert done.finish == "length"
    await generate(engine, ask(engine, data_parallel_rank=1))
    assert llm.requests[-1]["scheduling_params"].attention_dp_rank == 1
    with pytest.raises(Unsupported, match="priority"):
        await engine.check(ask(engine, priority=1))
