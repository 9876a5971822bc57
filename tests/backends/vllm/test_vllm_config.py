"""From configuration to vLLM's arguments; needs no vLLM."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
from typing import Any, Literal

import msgspec
import pytest

from gateway.base.errors import ConfigurationError, InvalidRequest
from gateway.plugins.hookspecs import EngineContext
from gateway.plugins.protocols import Sampling
from gateway_vllm import VllmConfig, gateway_register_engines, open_engine
from gateway_vllm.config import engine_arguments
from gateway_vllm.environment import children_without_interrupts, set_defaults
from gateway_vllm.error_log import root_cause
from gateway_vllm.errors import refused
from gateway_vllm.sampling import sampling_arguments

KNOWN = {"max_num_seqs", "max_loras", "generation_config", "structured_outputs_config", "model"}
TINY = EngineContext(name="tiny", path="/models/tiny")


def test_the_engine_is_offered_under_its_name() -> None:
    offered: dict[str, Any] = {}

    def register(name: str, make: Any, **more: Any) -> None:
        offered[name] = (make, more["config"])

    gateway_register_engines(register)
    assert offered == {"vllm": (open_engine, VllmConfig)}


@pytest.mark.parametrize(("backend", "seconds"), [("xgrammar", "0"), ("guidance", None)])
def test_patterns_that_are_tried_before_have_no_second_deadline(
    monkeypatch: pytest.MonkeyPatch, backend: Literal["xgrammar", "guidance"], seconds: str | None
) -> None:
    monkeypatch.setattr(os, "environ", {})
    set_defaults(VllmConfig(structured_outputs=backend))
    assert os.environ.get("VLLM_REGEX_COMPILATION_TIMEOUT_S") == seconds


def test_what_is_not_said_is_left_to_vllm() -> None:
    arguments = engine_arguments(VllmConfig(), TINY, KNOWN)
    assert "max_num_seqs" not in arguments
    assert "max_model_len" not in arguments
    assert arguments["model"] == "/models/tiny"
    assert arguments["structured_outputs_config"] == {"backend": "xgrammar"}
    assert arguments["enable_lora"] is False


def test_the_gateway_s_limit_of_the_length_wins() -> None:
    context = msgspec.structs.replace(TINY, max_model_len=100)
    config = VllmConfig(max_model_len=200)
    assert engine_arguments(config, context, KNOWN)["max_model_len"] == 100
    assert engine_arguments(config, TINY, KNOWN)["max_model_len"] == 200


def test_adapters_turn_lora_on() -> None:
    arguments = engine_arguments(VllmConfig(lora_modules={"a": "/a", "b": "/b"}), TINY, KNOWN)
    assert (arguments["enable_lora"], arguments["max_loras"]) == (True, 2)
    with pytest.raises(ConfigurationError, match="enable_lora"):
        engine_arguments(VllmConfig(lora_modules={"a": "/a"}, enable_lora=False), TINY, KNOWN)


def test_metrics_name_the_model_and_not_its_path() -> None:
    assert engine_arguments(VllmConfig(), TINY, KNOWN)["served_model_name"] == "tiny"


def test_further_arguments_are_handed_on() -> None:
    arguments = engine_arguments(VllmConfig(args={"generation_config": "vllm"}), TINY, KNOWN)
    assert arguments["generation_config"] == "vllm"


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        ({"generation_confg": 1}, 'did you mean "generation_config"?'),
        ({"max_num_seqs": 1}, "place of its own: models.tiny.vllm.max_num_seqs"),
        ({"model": "other"}, "use the model's path instead"),
        ({"structured_outputs_config": {}}, "use structured_outputs instead"),
    ],
)
def test_further_arguments_that_cannot_be_are_refused(args: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        engine_arguments(VllmConfig(args=args), TINY, KNOWN)
    assert sentence in str(caught.value)


def test_a_model_without_a_path_is_refused() -> None:
    async def start() -> None:
        async with open_engine(VllmConfig(), EngineContext(name="tiny", path=None)):
            raise AssertionError("unreachable")

    with pytest.raises(ConfigurationError, match="has no path"):
        asyncio.run(start())


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed")
def test_without_vllm_the_error_says_how_to_install_it() -> None:
    async def start() -> None:
        async with open_engine(VllmConfig(), TINY):
            raise AssertionError("unreachable")

    with pytest.raises(ConfigurationError, match="pip install vllm"):
        asyncio.run(start())


def test_children_are_started_without_interrupts_and_the_mask_is_put_back() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with children_without_interrupts():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_the_root_cause_is_the_first_exception_of_a_chain() -> None:
    text = (
        "EngineCore failed to start.\nTraceback (most recent call last):\n  File x\nValueError: no room\n"
        "\nDuring handling of the above exception, another exception occurred:\n\nRuntimeError: died\n"
    )
    assert root_cause(text) == "ValueError: no room"
    assert root_cause("just words") is None


def arguments_of(sampling: Sampling, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    return sampling_arguments(sampling, defaults=defaults or {}, room=100)


def test_the_model_s_defaults_stand_where_the_request_is_silent() -> None:
    defaults = {"temperature": 0.6, "top_p": 0.95, "max_tokens": 50}
    assert arguments_of(Sampling(temperature=0.0), defaults) == {
        "temperature": 0.0,
        "top_p": 0.95,
        "max_tokens": 50,
    }


def test_max_tokens_is_what_the_context_has_left_at_most() -> None:
    assert arguments_of(Sampling())["max_tokens"] == 100
    assert arguments_of(Sampling(max_tokens=1000))["max_tokens"] == 100
    assert arguments_of(Sampling(max_tokens=7))["max_tokens"] == 7


def test_every_field_of_the_sampling_arrives() -> None:
    everything = Sampling(
        max_tokens=9,
        min_tokens=2,
        temperature=0.5,
        top_p=0.5,
        top_k=5,
        min_p=0.1,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        repetition_penalty=1.1,
        seed=3,
        stop=("a",),
        stop_token_ids=(4,),
        bad_words=("b",),
        allowed_token_ids=(7,),
        ignore_eos=True,
        include_stop_str_in_output=True,
        logit_bias={5: 1.0},
        logprobs=1,
        prompt_logprobs=2,
        skip_special_tokens=False,
    )
    arguments = arguments_of(everything)
    for field in msgspec.structs.fields(Sampling):
        value = getattr(everything, field.name)
        assert value != field.default, "every field is tried"
        assert arguments[field.name] == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize("sampling", [Sampling(seed=2**63), Sampling(max_tokens=2**64)])
def test_numbers_that_do_not_fit_are_refused(sampling: Sampling) -> None:
    with pytest.raises(InvalidRequest, match="64-bit"):
        arguments_of(sampling)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("presence_penalty must be in [-2, 2], got 3.", "presence_penalty"),
        ("stop cannot contain an empty string.", "stop"),
        ("Something else altogether.", None),
        ("people must be kind", None),
    ],
)
def test_the_parameter_is_read_from_the_message(message: str, param: str | None) -> None:
    refusal = refused(ValueError(message))
    assert (refusal.message, refusal.param) == (message, param)
