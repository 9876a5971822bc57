"""One server with models that embed, that generate, and that do both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openai import OpenAI

CONFIG = """
[server]
port = {port}
max_embedding_inputs = 64
grace_period = {grace}

[models.vectors]
engine = "scripted"
aliases = ["text-embedding-3-small"]
max_model_len = 100
[models.vectors.scripted]
task = "embed"
dimensions = 32
adapters = ["french"]
rules = [
    { when = "too much", error = { status = 429, message = "Slow down." } },
    { when = "be slow", delay_ms = 120000 },
    { when = "break", finish = "error" },
]

[models.words]
engine = "scripted"
[models.words.scripted]
task = "generate"

[models.both]
engine = "scripted"
max_running = 1
max_waiting = 1
[models.both.scripted]
rules = [{ when = "be slow", delay_ms = 120000 }]

[models.tiny]
engine = "llamacpp"
[models.tiny.llamacpp]
task = "embed"
pooling = "mean"
n_ctx = 256
n_parallel = 2
"""


@pytest.fixture(scope="module")
def embedding_server(start_server: Any) -> Any:
    return start_server(CONFIG)


@pytest.fixture
def sdk(embedding_server: Any) -> Iterator[OpenAI]:
    with embedding_server.client() as client:
        yield client


@pytest.fixture
def raw(embedding_server: Any) -> Iterator[httpx.Client]:
    with embedding_server.http() as client:
        yield client
