"""Whatever a sandbox writes to the gateway, other requests are answered meanwhile, and the sandbox is dropped.

The sandboxes here are of the worst kind: a program in place of a container engine, so that all of what arrives is its own.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.waiting import wait_until

ENGINE = """#!{python}
import json, os, sys, time
if sys.argv[1] != "run":
    os._exit(0)
pid = {folder!r} + "/pids/" + str(os.getpid())
open(pid, "w").close()

def say(data):
    while data:
        data = data[os.write(1, data):]

say(b'{{"id": 0, "ready": true}}\\n')
for line in sys.stdin:
    asked = json.loads(line)
    number = asked["id"]
    if "please" not in json.dumps(asked):
        say(json.dumps({{"id": number, "code": 0}}).encode() + b"\\n")
        continue
    stray = b'{{"id": 999999, "x": "' + b"y" * 40 + b'"}}\\n'
    {flood}
"""
FLOODS = {
    "answers to requests that nobody made": "while True: say(stray * 1000)",
    "lines without a number": "while True: say(b'{{}}\\n' * 10000)",
    "empty lines": "while True: say(b'\\n' * 100000)",
    "the same answer again and again": (
        "answer = json.dumps({{'id': number, 'stdout': 'once', 'code': 0}}).encode() + b'\\n'\n"
        "    while True: say(answer * 1000)"
    ),
    "the greeting again and again": "while True: say(b'{{\"id\": 0, \"ready\": true}}\\n' * 1000)",
    "a line without an end": "while True: say(b'x' * 65536)",
    "lists in lists": "say(b'{{\"id\": ' + str(number).encode() + b', \"x\": ' + b'[' * 20000000)\n    say(b'\\n'); time.sleep(60)",
    "lists in lists as an answer": (
        "say(b'{{\"id\": ' + str(number).encode() + b', \"stdout\": ' + b'[' * 100000 + b']' * 100000 + b'}}\\n')\n"
        "    time.sleep(60)"
    ),
    "numbers beyond all bounds": "say(b'{{\"id\": 1' + b'0' * 5000 + b'}}\\n'); time.sleep(60)",
}  # fmt: skip


def floods(folder: Path, flood: str) -> dict[str, Any]:
    """A gateway whose model runs one command, in a sandbox that answers with a flood."""
    import sys

    engine = folder / "engine"
    (folder / "pids").mkdir()
    engine.write_text(
        ENGINE.format(python=sys.executable, folder=str(folder), flood=flood.format())
    )
    engine.chmod(0o755)
    call = {"call": {"name": "shell", "arguments": {"commands": ["please"]}}}
    rules = [
        {"when": "begin", "pieces": [call]},
        {"when": "once", "pieces": [{"text": "Answered."}]},
        {"when": "ended", "pieces": [{"text": "It was ended."}]},
    ]
    return {
        "models": {"m": {"engine": "scripted", "parser": "qwen3", "scripted": {"rules": rules}}},
        "tools": {"container": {}},
        "resources": {
            "containers": {"isolation": "engine", "engine": str(engine), "image": "x"},
        },
    }


@pytest.mark.parametrize("what", FLOODS)
def test_a_sandbox_that_floods_the_gateway_is_dropped_and_others_are_answered(
    gateway_server: Any, tmp_path: Path, what: str
) -> None:
    gateway = gateway_server(floods(tmp_path, FLOODS[what]))
    root = gateway.base_url.removesuffix("/v1")
    answers: list[httpx.Response] = []
    body = {
        "model": "m",
        "input": "begin",
        "tools": [{"type": "shell", "environment": {"type": "container_auto"}}],
    }
    asking = threading.Thread(
        target=lambda: answers.append(
            httpx.post(f"{gateway.base_url}/responses", json=body, timeout=60)
        )
    )
    asking.start()
    healthy = 0
    while asking.is_alive() or healthy < 20:
        healthy += httpx.get(f"{root}/health", timeout=60).status_code == 200
    asking.join()
    [answer] = answers
    assert answer.status_code == 200, answer.text
    said = answer.json()["output"][-1]["content"][0]["text"]
    assert said in {"It was ended.", "Answered."}, answer.text

    def ended() -> bool:
        assert httpx.get(f"{root}/health", timeout=60).status_code == 200
        return not any(running(int(pid.name)) for pid in (tmp_path / "pids").iterdir())

    wait_until(ended, "the sandbox ends")


def running(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False
