"""A model of the hub that vLLM serves: downloaded by the gateway, found by vLLM."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from gateway_testing.hub_server import HubServer

pytest.importorskip("vllm")
pytestmark = pytest.mark.vllm

MODEL = Path(__file__).parents[2] / "models" / "tiny-qwen3"


def environment(hub_server: HubServer, home: Path) -> dict[str, str]:
    ours = ("GATEWAY_", "HF_", "TRANSFORMERS_")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    return {
        **kept,
        "HF_ENDPOINT": hub_server.url,
        "HF_HOME": str(home),
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "GATEWAY_MODELS__TINY_QWEN3__VLLM__ENFORCE_EAGER": "true",
        "GATEWAY_MODELS__TINY_QWEN3__VLLM__MAX_NUM_SEQS": "4",
        "GATEWAY_MODELS__TINY_QWEN3__MAX_MODEL_LEN": "512",
    }


def test_a_repository_of_safetensors_is_downloaded_and_served(
    hub_server: HubServer, tmp_path: Path
) -> None:
    files = {file.name: file.read_bytes() for file in MODEL.iterdir() if file.is_file()}
    hub_server.add("o/tiny-qwen3", files)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "gateway", "serve", "hf:o/tiny-qwen3", "--port", "0"],
            cwd=tmp_path,
            env=environment(hub_server, tmp_path / "hf"),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout is not None
        url = next(
            (line.split()[-1] for line in process.stdout if line.startswith("Litegate listens on")),
            None,
        )
        text = (tmp_path / "log").read_text()
        assert url is not None, text[-3000:]
        assert "gateway.models.hub: downloading o/tiny-qwen3: 100 % of " in text
        body = json.dumps({"model": "o/tiny-qwen3", "input": "Hello!", "max_output_tokens": 8})
        request = urllib.request.Request(
            f"{url}/v1/responses", body.encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            assert json.load(answer)["output"]
        whole = [
            request
            for request in hub_server.seen
            if (request.method, request.path[:5]) == ("GET", "/cdn/")
            and "range" not in request.headers
        ]
        assert len(whole) == 1, "vLLM finds the weights in the cache, and reads but their header"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_repository_that_does_not_exist_is_one_sentence(
    hub_server: HubServer, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "serve", "o/tiny-qwen4", "--port", "0"],
        cwd=tmp_path,
        env=environment(hub_server, tmp_path / "hf"),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"gateway: models.tiny-qwen4: there is no file or folder 'o/tiny-qwen4' here, and {hub_server.url} has no repository "
        "o/tiny-qwen4: check the spelling, or set HF_TOKEN if it is private."
    )
