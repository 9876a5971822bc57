"""The deployment of compose/llama-server.yaml as processes: two gateways, a Redis, and a llama-server behind a name."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from openai import AuthenticationError, OpenAI

from gateway_testing.free_ports import free_port
from gateway_testing.redis_process import RedisProcess

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "examples" / "deploy" / "compose" / "llama-server.toml"
KEY = "sk-for-this-test"


class Gateway:
    def __init__(self, settings: dict[str, str], log: Path) -> None:
        self.port = free_port()
        self.log = log
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(CONFIG)]
        command += ["--port", str(self.port), "--host", "127.0.0.1"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}  # fmt: skip
        with log.open("w") as out:
            self.process = subprocess.Popen(
                command, env={**kept, **settings}, stdout=out, stderr=subprocess.STDOUT
            )

    def client(self, key: str = KEY) -> OpenAI:
        return OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key=key, max_retries=0)

    def wait(self) -> None:
        give_up = time.monotonic() + 60
        while not self.listens():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < give_up, self.log.read_text()
            time.sleep(0.1)

    def listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture(scope="module")
def gateways(
    llama_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Gateway, Gateway]]:
    folder = tmp_path_factory.mktemp("gateways")
    redis = RedisProcess(folder)
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    settings = {
        "GATEWAY_SERVER__API_KEYS": f'[{{name = "ops", sha256 = "{digest}"}}]',
        "GATEWAY_STORES__REDIS__URL": redis.url,
        # What Docker's name server does for the service's name, the machine does for its own.
        "GATEWAY_MODELS__QWEN__REMOTE__DNS": f"http://localhost:{urlsplit(llama_server).port}",
        "GATEWAY_MODELS__QWEN__REMOTE__TOKENIZER": str(ROOT / "tests/models/tiny-qwen3"),
        "GATEWAY_MODELS__QWEN__SAMPLING__TEMPERATURE": "0",
    }
    made = [Gateway(settings, folder / f"log-{number}") for number in range(2)]
    try:
        for each in made:
            each.wait()
        yield made[0], made[1]
    finally:
        for each in made:
            each.process.kill()
            each.process.wait()
        redis.kill()


def test_nobody_gets_in_without_a_key(gateways: tuple[Gateway, Gateway]) -> None:
    for gateway in gateways:
        with gateway.client("wrong") as client, pytest.raises(AuthenticationError):
            client.models.list()


def test_a_conversation_goes_on_at_the_other_gateway(gateways: tuple[Gateway, Gateway]) -> None:
    with gateways[0].client() as one, gateways[1].client() as two:
        first = one.responses.create(model="qwen", input="My name is Alice.")
        second = two.responses.create(
            model="qwen", input="What is my name?", previous_response_id=first.id
        )
        assert "Alice" in second.output_text
        assert one.responses.retrieve(second.id).output_text == second.output_text


def test_a_gateway_that_is_told_to_stop_ends_its_stream_first(
    gateways: tuple[Gateway, Gateway],
) -> None:
    leaving, other = gateways
    with leaving.client() as client:
        stream = client.responses.create(
            model="qwen",
            input="Hello!",
            stream=True,
            max_output_tokens=500,
            extra_body={"ignore_eos": True},
        )
        events = [next(stream)]
        leaving.process.send_signal(signal.SIGTERM)
        events += list(stream)
    assert events[-1].type == "response.incomplete"
    assert leaving.process.wait(30) == 0
    with other.client() as client:
        stored = client.responses.retrieve(events[-1].response.id)
        assert stored.output_text == events[-1].response.output_text
