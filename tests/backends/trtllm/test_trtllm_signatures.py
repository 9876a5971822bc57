"""What the plugin relies on of TensorRT-LLM, recorded; the stand-in has it, and so has an installed TensorRT-LLM."""

from __future__ import annotations

import copy
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "backends" / "trtllm"
SCRIPT = FOLDER / "check_signatures.py"
RECORD = json.loads((FOLDER / "signatures.json").read_text(encoding="utf-8"))


@pytest.fixture
def check() -> Any:
    spec = importlib.util.spec_from_file_location("check_signatures", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_stand_in_has_what_is_recorded(tensorrt_llm: Any, check: Any) -> None:
    assert list(check.differences(RECORD)) == []


def test_every_argument_that_is_handed_on_is_recorded(tensorrt_llm: Any, config: Any) -> None:
    from gateway.plugins.hookspecs import EngineContext
    from gateway_trtllm.config import _SAME, llm_arguments

    full = config(
        lora_modules={"a": "/a"}, max_seq_len=10, guided_decoding="xgrammar", max_lora_rank=8
    )
    made = llm_arguments(full, EngineContext(name="x", path="/m"), None)
    taken = set(RECORD["arguments"]["tensorrt_llm.llmapi.TorchLlmArgs"])
    init = {each["name"] for each in RECORD["callables"]["tensorrt_llm.LLM.__init__"]}
    assert {*made, *_SAME} - {"backend"} <= taken | init


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda record: record["callables"]["tensorrt_llm.LLM.generate_async"].pop(1), "needs inputs now"),
        (
            lambda record: record["callables"]["tensorrt_llm.SamplingParams"][2].update(default=16),
            "(max_tokens) has the default 32, and had 16",
        ),
        (
            lambda record: record["callables"]["tensorrt_llm.executor.LoRARequest"].append(
                {"name": "rank", "kind": "KEYWORD_ONLY"}
            ),
            "LoRARequest takes no rank",
        ),
        (
            lambda record: record["callables"]["tensorrt_llm.LLM.__init__"][1].update(kind="KEYWORD_ONLY"),
            "(model) is POSITIONAL_OR_KEYWORD, and was KEYWORD_ONLY",
        ),
        (lambda record: record["members"].update({"tensorrt_llm.LLM": ["encode_all"]}), "encode_all is missing"),
        (lambda record: record["callables"].update({"tensorrt_llm.nothing": []}), "nothing is missing"),
        (
            lambda record: record["fields"].update({"tensorrt_llm.llmapi.CompletionOutput": ["mood"]}),
            "no field mood",
        ),
        (
            lambda record: record["arguments"].update({"tensorrt_llm.llmapi.TorchLlmArgs": ["mood"]}),
            "takes no mood",
        ),
    ],
)  # fmt: skip
def test_a_drift_shows(tensorrt_llm: Any, check: Any, change: Any, told: str) -> None:
    record = copy.deepcopy(RECORD)
    change(record)
    [difference] = check.differences(record)
    assert told in difference


def test_an_installed_tensorrt_llm_has_what_is_recorded() -> None:
    run = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    if run.returncode == 2:
        pytest.skip("TensorRT-LLM is not installed")
    assert run.returncode == 0, run.stdout
