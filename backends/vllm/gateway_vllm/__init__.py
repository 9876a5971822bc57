"""vLLM as an engine, in process through `AsyncLLM`. Importing this imports neither vLLM nor torch."""

from __future__ import annotations

from gateway.hookspecs import OpenEngine, Register, hookimpl
from gateway_vllm.config import Config
from gateway_vllm.opening import open_engine

__all__ = ["Config", "gateway_register_engines", "open_engine"]


@hookimpl
def gateway_register_engines(register: Register[OpenEngine]) -> None:
    register(
        "vllm", open_engine, config=Config, summary="vLLM in process: GPUs, many streams, LoRA"
    )
