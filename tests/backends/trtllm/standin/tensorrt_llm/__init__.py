"""A stand-in for TensorRT-LLM: its public interface over a model that is a hash, for machines without a GPU.

What of the real thing is relied on is in `backends/trtllm/signatures.json`, and a test compares the two.
"""

from __future__ import annotations

from tensorrt_llm.llm import LLM
from tensorrt_llm.sampling_params import SamplingParams

__all__ = ["LLM", "SamplingParams"]
__version__ = "1.4.0rc1"
