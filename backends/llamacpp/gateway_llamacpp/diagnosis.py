"""Why llama.cpp does not load a file: it says so in its log only, so a second process loads the file and its log is read.

Run as a program, `python -m gateway_llamacpp.diagnosis FILE [PROJECTOR]`, it is that process.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SECONDS = 60.0
"""Time limit of the second process."""
_REASON = re.compile(r"error loading model: (.+)|\bE \S+ *(?:\S+: )?((?:failed|unable) to .+)")
_LONGEST = 300
_ADVICE = {
    "not within the file bounds": "The file is incomplete: copy or download it again.",
    "unknown model architecture": "A newer version of xllamacpp may know it.",
}


def diagnose(path: Path, projector: Path | None = None) -> str:
    """Sentences that say why llama.cpp does not load the file at `path`, and what to do. Blocks."""
    files = [str(file) for file in (path, projector) if file is not None]
    command = [sys.executable, "-m", "gateway_llamacpp.diagnosis", *files]
    try:
        done = subprocess.run(  # noqa: S603  # our own module
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return _UNKNOWN
    if done.returncode == 0:
        return (
            "It loads with a small context, so the memory may not suffice: lower max_model_len, n_ctx or n_parallel, or choose a smaller "
            "quantization."
        )
    log = done.stdout[-100_000:].decode("utf-8", "replace")
    found = _REASON.search(log)
    if found is None:
        return _UNKNOWN
    reason = "".join(each for each in found[1] or found[2] if each.isprintable()).strip(" .")
    advice = next((text for part, text in _ADVICE.items() if part in reason), "")
    return f"{reason[:_LONGEST]}. {advice}".strip()


_UNKNOWN = "Set `verbose = true` to read llama.cpp's log."


def _load(path: str, projector: str | None = None) -> None:
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    params = xllamacpp.CommonParams()
    params.model.path = path
    if projector is not None:
        params.mmproj.path = projector
    params.n_ctx = 64
    params.n_parallel = 1
    params.n_gpu_layers = 0
    params.fit_params = False
    params.warmup = False
    params.verbosity = 1
    xllamacpp.Server(params)


if __name__ == "__main__":
    import os

    try:
        _load(*sys.argv[1:3])
    except (RuntimeError, ValueError):
        os._exit(1)
    os._exit(0)  # a server that has not started yet never ends
