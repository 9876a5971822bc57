"""TensorRT-LLM as an in-process engine, through its LLM API. Importing this package imports neither it nor torch."""

from __future__ import annotations

from gateway.sdk import ChosenPlugins, OpenEngine, Register, hookimpl
from gateway_trtllm.config import TrtllmConfig, check_model
from gateway_trtllm.opening import open_engine

__all__ = ["TrtllmConfig", "gateway_check_configuration", "gateway_register_engines", "open_engine"]


@hookimpl
def gateway_check_configuration(chosen: ChosenPlugins) -> None:
    for model in chosen.models:
        if isinstance(model.config, TrtllmConfig):
            check_model(model.config, model.context)


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "trtllm",
        open_engine,
        config=TrtllmConfig,
        summary="TensorRT-LLM in process: NVIDIA GPUs, LoRA",
    )
