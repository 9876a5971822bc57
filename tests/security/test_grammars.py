"""No schema, pattern or grammar of a request holds up anybody else: it is bounded, and compiled where it can be stopped."""

from __future__ import annotations

import asyncio
import importlib
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from gateway.base.constraints import Constraint, Grammar, JsonSchema, Regex, Sequence
from gateway.base.errors import InvalidRequest, RateLimited
from gateway.base.json_schema import SchemaNode
from gateway.engines.compiling import Compiler, encoded
from gateway_testing.server import RunningGateway, run_gateway

CONFIG: dict[str, Any] = {
    "server": {"store": "none", "schemas": {"compile_seconds": 3}},
    "models": {"tiny": {"engine": "llamacpp"}, "scripted": {"engine": "scripted"}},
}
OBJECT = {"type": "object", "additionalProperties": False}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    pytest.importorskip("xllamacpp")
    with run_gateway(CONFIG, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=120) as client:
        yield client


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {**OBJECT, "properties": {"a": schema}, "required": ["a"]}
    return schema


def schema_of(inside: dict[str, Any]) -> dict[str, Any]:
    return {**OBJECT, "properties": {"a": inside}, "required": ["a"]}


def text_format(schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "text": {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": schema}}
    }


def tool(schema: dict[str, Any]) -> dict[str, Any]:
    function = {"type": "function", "name": "f", "parameters": schema, "strict": True}
    return {"tools": [function], "tool_choice": "required"}


def custom(syntax: str, definition: str) -> dict[str, Any]:
    format_ = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {
        "tools": [{"type": "custom", "name": "f", "format": format_}],
        "tool_choice": {"type": "custom", "name": "f"},
    }


ALTERNATION = "|".join(f"word{number}" for number in range(6000))  # 54 kB
TOO_LARGE: dict[str, tuple[dict[str, Any], str]] = {
    "properties": ({"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(5001)}}, "5000"),
    "properties in all": (
        {"type": "object", "properties": {f"p{n}": {"type": "object", "properties": {f"q{m}": {} for m in range(60)}} for n in range(100)}},
        "5000",
    ),
    "enumeration": ({"enum": [f"value {n}" for n in range(200_000)]}, "5000"),
    "alternatives": ({"anyOf": [{"const": n} for n in range(1001)]}, "1000"),
    "pattern": ({"type": "string", "pattern": ALTERNATION}, "8192"),
    "negated classes": ({"type": "string", "pattern": "[^a-z]" * 20_000}, "8192"),
    "depth": (nested(40), "64"),
    "bytes": ({"type": "string", "description": "x" * 2_000_001}, "2000000"),
}  # fmt: skip


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["tiny", "scripted"])
@pytest.mark.parametrize("case", TOO_LARGE)
async def test_a_schema_beyond_a_bound_is_refused_with_the_parameter_and_the_bound(
    http: httpx.AsyncClient, model: str, case: str
) -> None:
    schema, bound = TOO_LARGE[case]
    for asked, param in (
        (text_format(schema_of(schema)), "text.format.schema"),
        (tool(schema_of(schema)), "tools[0].parameters"),
    ):
        answer = await http.post("/responses", json={"model": model, "input": "Hi", **asked})
        error = answer.json()["error"]
        assert answer.status_code == 400, error
        assert error["param"] == param
        assert bound in error["message"]
        assert len(error["message"]) < 1000


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"guided_regex": ALTERNATION}, "guided_regex"),
        ({"structured_outputs": {"regex": ALTERNATION}}, "structured_outputs.regex"),
        ({"structured_outputs": {"choice": [f"c{n}" for n in range(5001)]}}, "structured_outputs.choice"),
        ({"guided_grammar": 'root ::= "a"\n' + "#" * 100_000}, "guided_grammar"),
        ({"guided_json": nested(40)}, "guided_json"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": nested(40)}}},
            "response_format.json_schema.schema",
        ),
    ],
)  # fmt: skip
async def test_the_bounds_hold_for_chat_and_completions(
    http: httpx.AsyncClient, asked: dict[str, Any], param: str
) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for path, prompt in (
        ("/chat/completions", {"messages": messages}),
        ("/completions", {"prompt": "Hi"}),
    ):
        answer = await http.post(path, json={"model": "tiny", **prompt, **asked})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == param


AMBIGUOUS = {
    "nested counts": "((a{0,1000}){0,1000}){0,1000}",
    "optional characters": "(.?.?.?){200}",
    "stars": "(.*){30}",
    "counts of counts": "(.{0,40}){0,40}",
    "alternatives": "((a|b|c|.)*)*(x|.)*(.*)*y",
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", AMBIGUOUS)
async def test_a_pattern_that_would_stop_the_sampler_is_refused(
    http: httpx.AsyncClient, case: str
) -> None:
    pattern = AMBIGUOUS[case]
    chat = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    for path, asked, param in (
        ("/chat/completions", {**chat, "guided_regex": pattern}, "guided_regex"),
        (
            "/responses",
            {"model": "tiny", "input": "Hi", **text_format(schema_of({"type": "string", "pattern": pattern}))},
            "text.format.schema",
        ),
        ("/responses", {"model": "tiny", "input": "Hi", **custom("regex", pattern)}, "tools[0].format.definition"),
    ):  # fmt: skip
        answer = await http.post(path, json=asked)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param


def doubling(levels: int) -> str:
    rules = [f"x{n} ::= x{n + 1} | x{n + 1} x{n + 1}" for n in range(levels)]
    return "\n".join(["root ::= x0", *rules, f'x{levels} ::= "a" | ""', ""])


GRAMMARS = {
    "doubling": doubling(30),
    "left recursion": 'root ::= root "a" | "a"\n',
    "not factored": 'root ::= e\ne ::= t | t "+" e\nt ::= "a" | "(" e ")"\n',
    "behind a long text": f'root ::= "{"h" * 5000}" x\nx ::= (.?.?.?){{40}}\n',
    "deep groups": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000 + "\n",
    "huge counts": "root ::= (((.{0,1000}){0,1000}){0,1000}){0,1000}\n",
    "unclosed": 'root ::= ("a"\n',
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", GRAMMARS)
async def test_a_grammar_that_would_stop_the_sampler_is_refused(
    http: httpx.AsyncClient, case: str
) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}]}
    answer = await http.post("/chat/completions", json={**body, "guided_grammar": GRAMMARS[case]})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "guided_grammar"


IMPOSSIBLE = {
    "reversed range": ("root ::= [b-a]\n", "[b-a] ends before it begins"),
    "reversed range behind a text": ('root ::= "a" [xyz9-0]\n', "[xyz9-0] ends before it begins"),
    "reversed range of escapes": (r"root ::= [^\x62-\x61]", "ends before it begins"),
    "nothing outside": (r"root ::= [^\x00-\U0010FFFF]", "no character is in the class"),
    "no character": (r"root ::= [\U00200000-\UFFFFFFFF]", "not a character"),
    "no character in a text": (r'root ::= "\UFFFFFFFF"', "not a character"),
    "nothing but NUL": (r"root ::= [\x00]", "no character is in the class"),
    "nothing but NUL outside": (r"root ::= [^\x01-\U0010FFFF]", "no character is in the class"),
    "NUL in a text": (r'root ::= "a\x00"', "has the character U+0000"),
    "no such token": ("root ::= <[99999999]>\n", "no token <[99999999]>"),
}
"""What llama.cpp reads, and fails with where it must write a character that cannot be."""


@pytest.mark.anyio
@pytest.mark.parametrize("case", IMPOSSIBLE)
async def test_a_grammar_that_llama_cpp_would_fail_with_is_refused(
    http: httpx.AsyncClient, case: str
) -> None:
    grammar, reason = IMPOSSIBLE[case]
    messages = [{"role": "user", "content": "Hi"}]
    for path, asked, param in (
        ("/chat/completions", {"messages": messages, "guided_grammar": grammar}, "guided_grammar"),
        ("/completions", {"prompt": "Hi", "guided_grammar": grammar}, "guided_grammar"),
        (
            "/responses",
            {"input": "Hi", "structured_outputs": {"grammar": grammar}},
            "structured_outputs.grammar",
        ),
    ):
        for stream in (False, True):
            answer = await http.post(path, json={"model": "tiny", "stream": stream, **asked})
            error = answer.json()["error"]
            assert answer.status_code == 400, error
            assert (error["type"], error["param"], error["code"]) == (
                "invalid_request_error",
                param,
                "invalid_value",
            )
            assert reason in error["message"]


def multiplying() -> dict[str, Any]:
    """Each definition combines the one below with itself, so that there are 2^50 of the last."""
    definitions: dict[str, Any] = {
        f"d{n}": {
            "allOf": [
                {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}"}}},
                {"properties": {"x": {"$ref": f"#/$defs/d{n + 1}", "title": "t"}}},
            ]
        }
        for n in range(50)
    }
    definitions["d50"] = {"type": "string"}
    return {"$ref": "#/$defs/d0", "$defs": definitions}


CYCLES: dict[str, dict[str, Any]] = {
    "a reference to itself": {"$ref": "#"},
    "two references to each other": {
        "$ref": "#/$defs/a",
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "alternatives that are the whole": {"anyOf": [{"$ref": "#"}] * 10},
    "combined with itself": {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "type": "object"},
    "definitions that multiply": multiplying(),
    "properties that are the whole": {
        **OBJECT,
        "properties": {f"p{n}": {"anyOf": [{"$ref": "#"}] * 8} for n in range(20)},
    },
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", CYCLES)
async def test_references_in_circles_neither_fail_nor_hang(
    http: httpx.AsyncClient, case: str
) -> None:
    for model in ("tiny", "scripted"):
        for asked in (text_format(CYCLES[case]), tool(schema_of(CYCLES[case]))):
            body = {"model": model, "input": "Hi", "max_output_tokens": 16, **asked}
            answer = await http.post("/responses", json=body)
            assert answer.status_code in (200, 400), answer.text


@pytest.mark.anyio
async def test_others_are_served_while_something_is_compiled(
    http: httpx.AsyncClient, gateway: RunningGateway
) -> None:
    """The longest pause of `/health` while many expensive schemas come in at once."""
    wide = {f"p{n}": {"type": "string", "pattern": "[a-z]{0,50}[^0-9]{0,50}"} for n in range(300)}
    requests = [
        {"model": "tiny", "input": "Hi", "max_output_tokens": 16,
         **text_format({**OBJECT, "properties": {**wide, f"q{n}": {}}, "required": [*wide]})}
        for n in range(4)
    ]  # fmt: skip
    # What clients pay to write and the server to read the JSON is not looked at.
    done = asyncio.gather(*(http.post("/responses", json=each) for each in requests))
    longest = 0.0
    async with httpx.AsyncClient(
        base_url=gateway.base_url.removesuffix("/v1"), timeout=60
    ) as other:
        while not done.done():
            begun = time.monotonic()
            assert (await other.get("/health")).status_code == 200
            longest = max(longest, time.monotonic() - begun)
            await asyncio.sleep(0.01)
    for answer in await done:
        assert answer.status_code in (200, 400), answer.text
    assert longest < 20, "the event loop stood still"


@pytest.mark.anyio
async def test_what_is_ordinary_is_still_enforced(http: httpx.AsyncClient) -> None:
    person: dict[str, Any] = {
        **OBJECT,
        "properties": {
            "name": {"type": "string", "maxLength": 12},
            "colour": {"enum": [f"colour {n}" for n in range(1000)]},
            "day": {"type": "string", "format": "date"},
            "mark": {"type": "string", "pattern": "^[a-f]{2,4}-[0-9]{1,3}$"},
            "more": {"anyOf": [{"$ref": "#/$defs/more"}, {"type": "null"}]},
        },
        "required": ["name", "colour", "day", "mark", "more"],
        "$defs": {"more": {**OBJECT, "properties": {"n": {"type": "integer", "maximum": 100}}, "required": ["n"]}},
    }  # fmt: skip
    answer = await http.post(
        "/responses", json={"model": "tiny", "input": "Hi", "temperature": 1, **text_format(person)}
    )
    assert answer.status_code == 200, answer.text
    made = msgspec.json.decode(answer.json()["output"][-1]["content"][0]["text"])
    assert made["colour"] in person["properties"]["colour"]["enum"]
    assert len(made["name"]) <= 12


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_schema_that_refers_to_itself_is_read_a_bounded_number_of_times(
    keyword: str,
) -> None:
    node = SchemaNode({keyword: [{"$ref": "#"}] * 10})
    node.types()
    assert node.items() is None
    assert node.member("a") is None


def test_definitions_that_every_parameter_brings_along_do_not_multiply() -> None:
    definitions = {"large": {"description": "x" * 1_000_000}}
    parts = tuple(JsonSchema({"$ref": "#/$defs/large", "$defs": definitions}) for _ in range(5000))
    with pytest.raises(InvalidRequest, match="bytes once its parts are put together"):
        encoded(Sequence(parts))


MODULE = """
from gateway.engines.compiling import compiled
from gateway.base.errors import InvalidRequest
from gateway.base.json_schema import SchemaNode


def spin(text, number=0):
    while text == "slow":
        pass
    return compiled(lambda: made(text))


def made(text):
    if text == "bad":
        raise InvalidRequest("It is bad.", param="pattern")
    return "x" * 1000 if text == "large" else text.upper()
"""


@pytest.fixture
async def helper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Compiler]:
    """Compiles with a module of its own, which a helper process can import."""
    (tmp_path / "spinning_compiler.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    spin = importlib.import_module("spinning_compiler").spin
    # The parameter is the deadline.
    seconds = getattr(request, "param", 120)
    made = Compiler(spin, seconds=seconds, processes=1, cache_bytes=2500)
    yield made
    await made.close()


@pytest.mark.anyio
@pytest.mark.parametrize("helper", [1], indirect=True)
async def test_a_compilation_beyond_its_deadline_is_a_refusal_that_is_remembered(
    helper: Compiler,
) -> None:
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="longer than 1 seconds") as refusal:
            await helper("slow")
        assert refusal.value.param == "schema"
    assert helper.calls == 1


@pytest.mark.anyio
async def test_each_is_compiled_once(helper: Compiler) -> None:
    assert await asyncio.gather(*(helper("a") for _ in range(10))) == ["A"] * 10
    assert await helper("a") == "A"
    with pytest.raises(InvalidRequest) as refusal:
        await helper("bad")
    assert refusal.value.param == "pattern"
    with pytest.raises(InvalidRequest):
        await helper("bad")
    assert helper.calls == 2


@pytest.mark.anyio
async def test_what_one_owner_has_compiled_saves_another_no_time(helper: Compiler) -> None:
    """It would tell whether somebody else has sent the same schema."""
    for _ in range(2):
        assert await helper("a", key="bob") == "A"
        assert await helper("a", key="alice") == "A"
    assert helper.calls == 2


@pytest.mark.anyio
async def test_one_owner_who_fills_the_queue_is_refused_and_nobody_else(helper: Compiler) -> None:
    tasks = [asyncio.create_task(helper("a", n, key="alice")) for n in range(400)]
    await asyncio.sleep(0)
    assert await helper("a", key="bob") == "A"
    assert helper.calls - 400 == 1
    ended = [each for each in tasks if each.done()]
    assert sum(isinstance(each.exception(), RateLimited) for each in ended) == 400 - 257
    assert len(ended) <= 400 - 257 + 3, "bob waits for a turn or two"
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.anyio
async def test_what_is_remembered_is_bounded_in_bytes(helper: Compiler) -> None:
    for number in range(10):
        await helper("large", number)
    await helper("large", 9)
    assert helper.calls == 10
    await helper("large", 0)  # forgotten: all of them are larger than the cache
    assert helper.calls == 11


@pytest.mark.anyio
async def test_a_compilation_nobody_waits_for_is_stopped(helper: Compiler) -> None:
    waiting = asyncio.create_task(helper("slow"))
    while not helper._pool.process_ids:  # noqa: ASYNC110  # a process has no event
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await helper("a") == "A"


@pytest.mark.parametrize(
    "constraint",
    [
        Regex("(a|b)*(c|d)*e"),
        Regex(r"\w+(\s\w+)*"),
        Regex(r"[A-Z][a-z]{1,30}, \d{4}-\d{2}-\d{2}"),
        JsonSchema({"type": "string", "format": "uri"}),
        JsonSchema({"type": "array", "items": {"type": "string", "maxLength": 500}, "maxItems": 50}),
        Grammar("gbnf", 'root ::= [a-z]+ (" " [a-z]+)*\n'),
        Grammar("gbnf", 'root ::= e\ne ::= t ("+" e)?\nt ::= "a" | "(" e ")"\n'),
    ],
)  # fmt: skip
def test_ordinary_patterns_and_grammars_are_not_taken_for_slow_ones(constraint: Constraint) -> None:
    compilation = pytest.importorskip("gateway_llamacpp.compilation")
    answer = compilation.compile_constraint(msgspec.msgpack.encode(constraint), 150_000)
    assert answer[1] is None


@pytest.mark.anyio
async def test_a_llama_server_gets_no_grammar_that_would_stop_it() -> None:
    pytest.importorskip("gateway_llamacpp.gbnf.ambiguity")
    compiling = pytest.importorskip("gateway_remote.compiling")
    settings: dict[str, Any] = {
        "special": {},
        "ending": [],
        "max_json_whitespace": None,
        "vocabulary": 150_000,
    }
    structures = compiling.PreparedStructures("llamacpp", settings, seconds=30)
    try:
        with pytest.raises(InvalidRequest, match=r"more than|ways to"):
            await structures.prepare(Regex("(.?.?.?){200}"), "")
        await structures.prepare(Regex("[ab]{2,3}"), "")
        assert "root" in structures.fields(Regex("[ab]{2,3}"))["grammar"]
    finally:
        await structures.compiler.close()
