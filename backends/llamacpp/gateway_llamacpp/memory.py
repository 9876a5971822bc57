"""How much memory a model needs, as far as its file tells, and how much there is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gateway.sdk import ConfigurationError
from gateway.sdk.hub import human_size
from gateway_llamacpp.config import CacheType, LlamaCppConfig

SHARE = 0.7
"""The part of the available memory that weights and context may take by default."""
SMALLEST_CONTEXT = 2048
"""A default context is not made shorter than this, in tokens of a slot."""
_ELEMENT_BYTES: Mapping[CacheType, float] = {
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "q8_0": 34 / 32,
    "q5_1": 24 / 32,
    "q5_0": 22 / 32,
    "q4_1": 20 / 32,
    "q4_0": 18 / 32,
}
_SPLIT = re.compile(r"-\d{5}-of-(\d{5})\.gguf\Z")
_CGROUP = Path("/sys/fs/cgroup")


def weights_of(path: Path) -> int:
    """The size of a model's file, or of all its parts, in bytes."""
    split = _SPLIT.search(path.name)
    if split is None:
        return path.stat().st_size
    stem = path.name[: split.start()]
    return sum(part.stat().st_size for part in path.parent.glob(f"{stem}-*-of-{split[1]}.gguf"))


def token_bytes(metadata: Mapping[str, Any], config: LlamaCppConfig) -> float:
    """The size of one token in the KV cache, in bytes; 0 if the metadata does not tell.

    An upper bound for models whose layers do not all attend to the whole context.
    """
    prefix = metadata.get("general.architecture")

    def value(key: str) -> Any:
        return metadata.get(f"{prefix}.{key}")

    layers, heads = value("block_count"), value("attention.head_count")
    kv_heads = value("attention.head_count_kv") or heads
    width = value("embedding_length")
    if not (isinstance(layers, int) and isinstance(width, int)) or kv_heads is None:
        return 0
    some_heads = max(heads) if isinstance(heads, Sequence) else heads
    if not isinstance(some_heads, int) or some_heads < 1:
        return 0
    total_heads = sum(kv_heads) if isinstance(kv_heads, Sequence) else kv_heads * layers
    key = value("attention.key_length") or width // some_heads
    val = value("attention.value_length") or width // some_heads
    per_head = key * _ELEMENT_BYTES[config.cache_type_k] + val * _ELEMENT_BYTES[config.cache_type_v]
    return float(total_heads * per_head)


def fitting_context(n_ctx: int, per_token: float, weights: int, slots: int, available: int) -> int:
    """The context of a slot, at most `n_ctx`, with which the model takes `SHARE` of the `available` memory.

    Not less than `SMALLEST_CONTEXT`, unless `n_ctx` is.
    """
    room = available * SHARE - weights
    if per_token <= 0 or per_token * slots * n_ctx <= room:
        return n_ctx
    fitting = int(max(room, 0) / (per_token * slots)) // 256 * 256
    return min(n_ctx, max(fitting, SMALLEST_CONTEXT))


def check_room(path: Path, weights: int, context: float, n_ctx: int, slots: int) -> None:
    """Raise `ConfigurationError` if a model needs more memory than this machine has, swap space included."""
    total = total_memory()
    if total is None or weights + context <= total:
        return
    raise ConfigurationError(
        f"{path} needs about {human_size(int(weights + context))} of memory ({human_size(weights)} of weights, "
        f"{human_size(int(context))} for the context of {slots} requests of {n_ctx} tokens), and this machine has "
        f"{human_size(total)}: lower max_model_len, n_ctx or n_parallel, or choose a smaller quantization or model."
    )


def total_memory() -> int | None:
    """The memory that this process may use at most, in bytes, with swap space; None if unknown."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
    return min([physical + _meminfo().get("SwapTotal", 0), *_limits("memory.max")])


def available_memory() -> int | None:
    """The memory that is available now, in bytes, without swap space; None if unknown."""
    available = _meminfo().get("MemAvailable")
    if available is None:
        return None
    left = [
        limit - used
        for limit, used in zip(_limits("memory.max"), _limits("memory.current"), strict=False)
    ]
    return max(min([available, *left]), 0)


def _meminfo() -> dict[str, int]:
    found: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            name, _, rest = line.partition(":")
            found[name] = int(rest.split()[0]) * 1024
    return found


def _limits(file: str) -> Iterator[int]:
    """A value of the process's control group, if it is not `max`; version 2 only."""
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
        own = next(line.removeprefix("0::/") for line in lines if line.startswith("0::/"))
        for folder in dict.fromkeys((_CGROUP / own, _CGROUP)):
            with suppress(OSError, ValueError):
                yield int((folder / file).read_text())
                return
