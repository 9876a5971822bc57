"""What the scripted engine does beyond what every engine does."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import EngineError, EngineUnavailable, InvalidRequest, RateLimited
from gateway.plugins.protocols import (
    EngineRequest,
    NamedTool,
    Piece,
    Sampling,
    Tail,
    TextFormat,
    TextPiece,
    TokensPrompt,
    ToolDefinition,
    Turn,
)
from gateway_doctor.checks.generating import Generated, generate
from gateway_scripted import ScriptedEngine, parse_scenario
from gateway_testing.store_records import call_item, message

pytestmark = pytest.mark.anyio

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 3}},
    "required": ["n"],
}
TOOLS = (
    ToolDefinition(name="first", parameters=SCHEMA),
    ToolDefinition(name="second"),
    ToolDefinition(name="free", kind="custom"),
)


def engine_of(*rules: dict[str, Any], **options: Any) -> ScriptedEngine:
    return ScriptedEngine(parse_scenario(json.dumps(rules)), **options)


def ask(
    engine: ScriptedEngine,
    prompt: str,
    *,
    turn: Turn | None = None,
    tail: Tail = "unknown",
    **sampling: Any,
) -> EngineRequest:
    return EngineRequest(
        request_id=f"r-{prompt}",
        prompt=TokensPrompt(token_ids=engine.tokenizer.encode(prompt)),
        sampling=Sampling(**sampling),
        turn=turn,
        tail=tail,
    )


async def answer(engine: ScriptedEngine, prompt: str, **options: Any) -> str:
    return (await generate(engine, ask(engine, prompt, **options))).text


async def test_a_matching_rule_is_said_in_its_own_syntax() -> None:
    engine = engine_of(
        {
            "when": "Oslo",
            "pieces": [
                {"reasoning": "hm"},
                {"text": "so"},
                {"call": {"name": "f", "arguments": {"a": 1}}},
                {"raw": "<end>"},
            ],
        }
    )
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert await answer(engine, "in Oslo") == f"<think>\nhm\n</think>\n\nso{call}<end>"
    assert await answer(engine, "in Oslo", tail="reasoning") == f"hm\n</think>\n\nso{call}<end>"


async def test_it_speaks_the_format_that_it_is_given() -> None:
    class Shouting:
        """As much of a format as the engine asks for."""

        def write(self, pieces: list[Piece], *, tail: Tail) -> str:
            return f"{tail}: " + "".join(p.text.upper() for p in pieces if isinstance(p, TextPiece))

    engine = engine_of({"when": "hi", "pieces": [{"text": "hello"}]})
    engine.use_format(Shouting())  # type: ignore[arg-type]
    assert await answer(engine, "hi", tail="text") == "text: HELLO"


async def test_without_a_match_the_last_user_text_comes_back() -> None:
    engine = ScriptedEngine()
    turn = Turn(
        items=[message("user", "one"), message("assistant", "two"), message("user", "drei ü")]
    )
    assert await answer(engine, "the rendered prompt", turn=turn) == "drei ü"
    after_call = Turn(items=[message("user", "one"), call_item()])
    assert await answer(engine, "the rendered prompt", turn=after_call) == "one"
    assert await answer(engine, "the rendered prompt", turn=Turn(items=[])) == ""
    prompt = "<|im_start|>user\nfirst<|im_end|>\n<|im_start|>user\nlast<|im_end|>\n<|im_start|>assistant\n"
    assert await answer(engine, prompt) == "last"
    assert await answer(engine, "no dialect at all") == "no dialect at all"


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("required", '{"name": "first", "arguments": {"n": 3}}'),
        (NamedTool("second"), '{"name": "second", "arguments": {}}'),
        (NamedTool("free"), '{"name": "free", "arguments": {"input": ""}}'),
    ],
)
async def test_a_forced_tool_gets_a_minimal_call(choice: Any, said: str) -> None:
    turn = Turn(items=[message("user", "hi")], tools=TOOLS, tool_choice=choice)
    assert await answer(ScriptedEngine(), "p", turn=turn) == f"<tool_call>\n{said}\n</tool_call>"


async def test_a_forced_schema_gets_a_minimal_instance() -> None:
    for text_format, said in (
        (TextFormat(kind="json_schema", schema=SCHEMA), '{"n": 3}'),
        (TextFormat(kind="json_object"), "{}"),
        (TextFormat(), "hi"),
    ):
        turn = Turn(items=[message("user", "hi")], text_format=text_format)
        assert await answer(ScriptedEngine(), "p", turn=turn) == said


async def test_a_schema_without_an_instance_is_refused() -> None:
    engine = ScriptedEngine()
    impossible = TextFormat(kind="json_schema", schema={"enum": [], "$ref": "#/nowhere"})
    request = ask(engine, "p", turn=Turn(items=[], text_format=impossible))
    with pytest.raises(InvalidRequest, match="no instance"):
        await engine.check(request)


async def test_a_match_is_said_also_where_something_is_forced() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"text": "no"}]})
    turn = Turn(items=[message("user", "hi")], tools=TOOLS, tool_choice="required")
    assert await answer(engine, "hi", turn=turn) == "no"


async def test_one_token_comes_in_each_output() -> None:
    engine = ScriptedEngine()
    done = await generate(engine, ask(engine, "the quick <tool_call> 日本"))
    assert {len(output.token_ids) for output in done.outputs} == {1}
    assert done.outputs[0].cached_tokens == 0


@given(st.integers(1, 30), st.text(st.sampled_from("ab é日🙂<>|\n"), min_size=1, max_size=40))
def test_chunks_have_so_many_characters(chunk: int, text: str) -> None:
    rule = {"when": "hi", "pieces": [{"raw": f"<tool_call>{text}"}], "chunk": chunk}
    engine = engine_of(rule)
    done = asyncio.run(generate(engine, ask(engine, "hi", logprobs=0)))
    assert done.text == f"<tool_call>{text}"
    assert {len(output.text) for output in done.outputs[:-1]} <= {chunk}
    assert done.token_ids == engine.tokenizer.encode(f"<tool_call>{text}")
    assert [each.token_id for each in done.logprobs] == done.token_ids


@given(
    st.text(st.sampled_from("abc é日"), min_size=1, max_size=30),
    st.lists(st.text(st.sampled_from("abc é日"), min_size=1, max_size=4), min_size=1, max_size=3),
    st.booleans(),
)
def test_the_earliest_stop_string_ends_the_text(text: str, stops: list[str], kept: bool) -> None:
    """Wherever the tokens' borders are; log probabilities stop where the text does."""
    engine = engine_of({"when": "hi", "pieces": [{"raw": text}]})
    request = ask(engine, "hi", stop=tuple(stops), include_stop_str_in_output=kept, logprobs=2)
    done = asyncio.run(generate(engine, request))
    hits = [(text.index(stop), stop) for stop in stops if stop in text]
    if not hits:
        assert (done.text, done.finish, done.stop_reason) == (text, "stop", None)
    else:
        assert done.finish == "stop"
        assert done.stop_reason in stops
        # Of those that a token completes at once, the one that begins first.
        assert isinstance(done.stop_reason, str)
        assert done.text == text[: text.index(done.stop_reason)] + (
            done.stop_reason if kept else ""
        )
    assert b"".join(each.bytes for each in done.logprobs) == done.text.encode()


@given(st.integers(1, 12))
def test_a_limit_within_a_character_leaves_it_out(limit: int) -> None:
    engine = engine_of({"when": "hi", "pieces": [{"raw": "日本語テキスト🙂🙂"}]})
    done = asyncio.run(generate(engine, ask(engine, "hi", max_tokens=limit, logprobs=0)))
    assert "日本語テキスト🙂🙂".startswith(done.text)
    assert len(done.token_ids) <= limit
    assert b"".join(each.bytes for each in done.logprobs) == done.text.encode()


async def test_the_context_is_a_limit() -> None:
    engine = engine_of(
        {"when": "hi", "pieces": [{"text": "word "}], "repeat": 1000}, max_model_len=50
    )
    done = await generate(engine, ask(engine, "hi"))
    assert (len(done.token_ids), done.finish) == (49, "length")


async def test_special_tokens_are_skipped_on_request() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"raw": "<|channel|>a<tool_call>b"}]})
    assert await answer(engine, "hi") == "a<tool_call>b"
    assert await answer(engine, "hi", skip_special_tokens=False) == "<|channel|>a<tool_call>b"


async def test_the_end_token_ends_the_output() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"raw": "a<|im_end|>b"}]})
    assert await answer(engine, "hi") == "a"
    assert await answer(engine, "hi", ignore_eos=True) == "ab"


async def test_fewer_tokens_than_the_least_do_not_stop() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"raw": "stop and stop again"}]})
    assert await answer(engine, "hi", stop=("stop",)) == ""
    assert await answer(engine, "hi", stop=("stop",), min_tokens=3) == "stop and "


@pytest.mark.parametrize("finish", ["length", "content_filter", "stop"])
async def test_a_rule_says_how_it_ends(finish: str) -> None:
    engine = engine_of({"when": "hi", "pieces": [{"text": "cut"}], "finish": finish})
    done = await generate(engine, ask(engine, "hi"))
    assert (done.text, done.finish) == ("cut", finish)


async def test_nothing_to_say_is_one_output() -> None:
    engine = engine_of({"when": "hi"})
    done = await generate(engine, ask(engine, "hi", logprobs=1))
    assert [(output.text, output.finish_reason) for output in done.outputs] == [("", "stop")]


async def collect_until_error(engine: ScriptedEngine, prompt: str) -> tuple[str, Exception]:
    said = ""
    try:
        async for output in engine.generate(ask(engine, prompt)):
            assert output.finish_reason is None
            said += output.text
    except (EngineError, EngineUnavailable) as error:
        return said, error
    raise AssertionError("it ended without an error")


async def test_a_rule_may_fail_after_its_pieces() -> None:
    engine = engine_of(
        {"when": "hi", "pieces": [{"text": "so far"}], "finish": "error"}, {"finish": "error"}
    )
    said, error = await collect_until_error(engine, "hi")
    assert (said, type(error)) == ("so far", EngineError)
    assert (await collect_until_error(engine, "else"))[0] == ""
    await engine.health()
    assert not engine.aborted


async def test_a_stop_comes_before_a_failure() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"text": "so far"}], "finish": "error"})
    assert await answer(engine, "hi", stop=("far",)) == "so "


async def test_an_error_has_its_status_and_comes_before_anything() -> None:
    engine = engine_of({"when": "hi", "error": {"status": 429, "message": "Slow down."}})
    request = ask(engine, "hi")
    with pytest.raises(RateLimited, match=r"Slow down\."):
        await engine.check(request)
    with pytest.raises(RateLimited, match=r"Slow down\."):
        await anext(engine.generate(request))


async def test_a_crash_takes_everything_with_it_and_heals() -> None:
    now = 100.0
    engine = engine_of(
        {"when": "die", "pieces": [{"text": "ah"}], "finish": "crash"},
        {"when": "slow", "pieces": [{"text": "tick "}], "repeat": 1000, "delay_ms": 60_000},
        recover_after=30,
        clock=lambda: now,
    )
    slow = asyncio.create_task(collect_until_error(engine, "slow"))
    await asyncio.sleep(0.01)
    said, error = await collect_until_error(engine, "die")
    assert (said, type(error)) == ("ah", EngineUnavailable)
    async with asyncio.timeout(60):
        assert type((await slow)[1]) is EngineUnavailable
    for call in (engine.health(), engine.check(ask(engine, "other")), answer(engine, "other")):
        with pytest.raises(EngineUnavailable):
            await call
    now += 31
    await engine.health()
    assert await answer(engine, "other") == "other"
    assert not engine.running


async def test_a_crash_may_last_for_ever() -> None:
    now = 0.0
    engine = ScriptedEngine(recover_after=None, clock=lambda: now)
    engine.crash()
    now += 1e9
    with pytest.raises(EngineUnavailable):
        await engine.health()


async def test_delays_are_kept() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"raw": "a b c d e"}], "delay_ms": 20}, delay_ms=0)
    start = time.monotonic()
    done = await generate(engine, ask(engine, "hi"))
    assert time.monotonic() - start >= 0.02 * len(done.outputs) - 0.005


async def test_what_is_aborted_is_seen() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"text": "a b c d e f g"}]})
    assert await answer(engine, "hi") == "a b c d e f g"
    assert not engine.aborted
    request = ask(engine, "hi")
    async with aclosing(engine.generate(request)) as stream:
        await anext(stream)
        assert engine.running == {request.request_id}
    assert list(engine.aborted) == [request.request_id]
    assert not engine.running
    assert [each.request_id for each in engine.requests] == [request.request_id] * 2


async def test_a_cancelled_wait_is_an_abort() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"text": "a"}], "delay_ms": 60_000})
    task = asyncio.create_task(answer(engine, "hi"))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert list(engine.aborted) == ["r-hi"]


async def test_prompt_logprobs_cover_the_prompt() -> None:
    engine = ScriptedEngine()
    done = await generate(engine, ask(engine, "a longer prompt", prompt_logprobs=1))
    found = done.outputs[0].prompt_logprobs
    assert found is not None
    assert found[0] is None
    assert [each.token_id for each in found[1:] if each] == engine.tokenizer.encode(
        "a longer prompt"
    )[1:]


async def test_an_unknown_adapter_is_refused() -> None:
    engine = ScriptedEngine()
    request = EngineRequest(request_id="r", prompt=TokensPrompt(token_ids=[1]), adapter="lora")
    with pytest.raises(InvalidRequest, match="lora"):
        await engine.check(request)


async def test_a_thousand_streams_run_at_once() -> None:
    engine = engine_of({"when": "hi", "pieces": [{"text": "tick "}], "repeat": 10, "delay_ms": 5})
    done: list[Generated] = await asyncio.gather(
        *(generate(engine, ask(engine, f"hi {number}")) for number in range(1000))
    )
    assert {each.text for each in done} == {"tick " * 10}
    assert not engine.running
