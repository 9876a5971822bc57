"""vLLM as an in-process engine, through `AsyncLLM`. Importing this package imports neither vLLM nor torch."""

from __future__ import annotations

from gateway.sdk import ChosenPlugins, OpenEngine, Register, hookimpl
from gateway_vllm.config import VllmConfig, check_model
from gateway_vllm.opening import open_engine

__all__ = ["VllmConfig", "gateway_check_configuration", "gateway_register_engines", "open_engine"]


@hookimpl
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    for model in chosen.models:
        if isinstance(model.config, VllmConfig):
            check_model(model.config, model.context)


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "vllm", open_engine, config=VllmConfig, summary="vLLM in process: GPUs, many streams, LoRA"
    )
