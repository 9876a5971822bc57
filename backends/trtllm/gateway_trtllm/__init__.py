"""TensorRT-LLM as an engine, in process through its LLM API. Importing this imports neither it nor torch."""

from __future__ import annotations

from gateway.hookspecs import OpenEngine, Register, hookimpl
from gateway_trtllm.config import Config
from gateway_trtllm.opening import open_engine

__all__ = ["Config", "gateway_register_engines", "open_engine"]


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "trtllm", open_engine, config=Config, summary="TensorRT-LLM in process: NVIDIA GPUs, LoRA"
    )
