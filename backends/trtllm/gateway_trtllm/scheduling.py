"""What TensorRT-LLM is told about where and when a request runs. Imports TensorRT-LLM when it is called."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from gateway.sdk import EngineRequest, InvalidRequest, Unsupported


def waiting_queue_policy(args: Any) -> str:
    """The order in which waiting requests are served: `fcfs`, or `priority`, without which priorities have no effect.
    Versions before 1.3 have no such setting."""
    config = getattr(args, "scheduler_config", None)
    if isinstance(config, Mapping):
        policy = config.get("waiting_queue_policy")
    else:
        policy = getattr(config, "waiting_queue_policy", None)
    policy = getattr(policy, "value", policy)  # an enumeration
    return str(policy or "fcfs").lower()


def attention_ranks(args: Any) -> int:
    """Number of data-parallel ranks of attention, which are the tensor-parallel ones; 0 if it is not data-parallel."""
    if not getattr(args, "enable_attention_dp", False):
        return 0
    return getattr(args, "tensor_parallel_size", None) or 1


def scheduling(rank: int, ranks: int) -> Any:
    """The scheduling parameters for a request that has chosen its rank. Raises `InvalidRequest`, or `Unsupported` where there
    are no ranks."""
    if not ranks:
        raise Unsupported(
            "The engine of this model has no data-parallel ranks to choose from (enable_attention_dp). Leave data_parallel_rank "
            "out.",
            param="data_parallel_rank",
        )
    if rank >= ranks:
        raise InvalidRequest(
            f"data_parallel_rank is {rank}, and the engine of this model has the ranks 0 to {ranks - 1}.",
            param="data_parallel_rank",
        )
    from tensorrt_llm.scheduling_params import (  # type: ignore[import-not-found,unused-ignore]
        SchedulingParams,
    )

    # The client has chosen: it is not moved to an idle rank.
    return SchedulingParams(attention_dp_rank=rank, attention_dp_relax=False)


def conversation_of(request: EngineRequest) -> Any | None:
    """What keeps the requests of one conversation on one rank, where its prefix is cached: the client's `prompt_cache_key`. None
    without one. Keys of different owners are different."""
    key = request.hints.get("prompt_cache_key")
    if not key:
        return None
    from tensorrt_llm.conversation_params import (  # type: ignore[import-not-found,unused-ignore]
        ConversationParams,
    )

    named = f"{request.prefix_salt or ''}\n{key}"
    return ConversationParams(conversation_id=hashlib.sha256(named.encode()).hexdigest()[:32])
