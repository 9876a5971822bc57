"""What the real package exports here."""

from __future__ import annotations

from tensorrt_llm.llm import LLM, TorchLlmArgs
from tensorrt_llm.result import CompletionOutput, RequestError, RequestOutput
from tensorrt_llm.sampling_params import GuidedDecodingParams, SamplingParams

__all__ = [
    "LLM",
    "CompletionOutput",
    "GuidedDecodingParams",
    "RequestError",
    "RequestOutput",
    "SamplingParams",
    "TorchLlmArgs",
]
