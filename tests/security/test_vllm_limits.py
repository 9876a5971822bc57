"""What clients write does not hold up vLLM: its grammars are compiled beforehand, where they can be stopped."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_testing.server import RunningGateway, run_gateway

pytest.importorskip("vllm", reason="vLLM is not installed")

pytestmark = pytest.mark.slow
MODEL = Path(__file__).parents[1] / "models" / "tiny-qwen3"
KEYS = {"alice": "a", "bob": "b"}
HASHES = {
    "alice": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
    "bob": "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
}
CONFIG: dict[str, Any] = {
    "server": {
        "store": "none",
        "schemas": {"compile_seconds": 1, "max_pattern_bytes": 200_000},
        "api_keys": [{"name": name, "sha256": sha256} for name, sha256 in HASHES.items()],
    },
    "models": {
        "m": {
            "engine": "vllm",
            "path": str(MODEL),
            "vllm": {
                "dtype": "bfloat16", "max_num_seqs": 8, "enforce_eager": True, "seed": 0, "max_json_whitespace": 2,
                "max_model_len": 1024, "enable_prefix_caching": True, "args": {"block_size": 32},
            },
        }
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with pytest.MonkeyPatch.context() as environment, warnings.catch_warnings():
        # While they are imported and started, vLLM, torch and transformers warn about each other.
        warnings.simplefilter("ignore")
        for name, value in (
            ("VLLM_CPU_KVCACHE_SPACE", "1"),
            ("HF_HUB_OFFLINE", "1"),
            ("TRANSFORMERS_OFFLINE", "1"),
            ("TORCH_COMPILE_DISABLE", "1"),
        ):
            environment.setenv(name, value)
        with run_gateway(CONFIG, tmp_path_factory.mktemp("gateway")) as running:
            yield running


@pytest.fixture
async def http(gateway: RunningGateway) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"authorization": "Bearer a"}
    async with httpx.AsyncClient(base_url=gateway.base_url, timeout=120, headers=headers) as client:
        yield client


def chat(**asked: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, **asked}


@pytest.mark.anyio
async def test_a_pattern_that_compiles_too_long_is_refused_and_others_are_served(
    http: httpx.AsyncClient,
) -> None:
    slow = asyncio.create_task(
        http.post("/chat/completions", json=chat(guided_regex="[^a-z]" * 33_000))
    )
    served = 0
    while not slow.done():
        begun = time.monotonic()
        answer = await http.post("/chat/completions", json=chat(guided_regex="[ab]c"))
        assert answer.status_code == 200, answer.text
        assert time.monotonic() - begun < 20
        served += 1
    refused = await slow
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert error["param"] == "guided_regex"
    assert "compile_seconds" in error["message"]
    assert served > 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"p{n}": {"type": "string", "maxLength": 9} for n in range(2000)}},
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}] * 10},
        {"enum": [f"value {n}" for n in range(5000)]},
        {"type": "string", "pattern": "((a{0,1000}){0,1000}){0,1000}"},
    ],
)  # fmt: skip
async def test_large_and_circular_schemas_neither_fail_nor_hang(
    http: httpx.AsyncClient, schema: dict[str, Any]
) -> None:
    format_ = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": schema, "strict": True},
    }
    answer = await http.post("/chat/completions", json=chat(response_format=format_))
    assert answer.status_code in (200, 400), answer.text
    assert (await http.post("/chat/completions", json=chat())).status_code == 200


@pytest.mark.anyio
async def test_a_bounded_schema_is_enforced(http: httpx.AsyncClient) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^[ab]{2}$"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    format_ = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": schema, "strict": True},
    }
    body = chat(response_format=format_, max_tokens=64)
    answer = await http.post("/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert '"a"' in answer.json()["choices"][0]["message"]["content"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "extreme",
    [
        {"stop_token_ids": [2**31 - 1], "min_tokens": 2},
        {"logit_bias": {"99999999": 1}},
        {"logit_bias": {str(n): 1 for n in range(1000)}},
        {"bad_words": ["x" * 200] * 128},
        {"stop": [f"stop {n}" for n in range(256)]},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"temperature": 1e-320},
        {"top_p": 1e-320},
        {"top_k": 2**31 - 1},
        {"repetition_penalty": 0.01, "temperature": 2},
        {"min_tokens": 2**31 - 1},
        {"priority": 2**31 - 1},
        {"logprobs": True, "top_logprobs": 20},
        {"n": 128},
        {"max_tokens": 2**31 - 1, "stop": "e"},
    ],
)
async def test_no_extreme_of_sampling_ends_the_engine(
    http: httpx.AsyncClient, extreme: dict[str, Any]
) -> None:
    answer = await http.post("/chat/completions", json=chat(**extreme))
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.json()["error"]["param"]
    assert (await http.post("/chat/completions", json=chat())).status_code == 200


@pytest.mark.anyio
async def test_a_guessed_prompt_does_not_tell_that_another_owner_sent_it(
    http: httpx.AsyncClient,
) -> None:
    text = (
        "The code of the safe in the cellar is nine four two seven, and nobody must know it. " * 4
    )
    counts = []
    for owner in ("alice", "bob", "alice", "bob"):
        answer = await http.post(
            "/completions",
            json={"model": "m", "prompt": text, "max_tokens": 2, "cache_salt": "same"},
            headers={"authorization": f"Bearer {KEYS[owner]}"},
        )
        assert answer.status_code == 200, answer.text
        details = answer.json()["usage"].get("prompt_tokens_details") or {}
        counts.append(details.get("cached_tokens", 0))
    assert counts[:2] == [0, 0]
    assert counts[2] > 0
    assert counts[3] > 0
