"""A gateway with batches, and its clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gateway_testing.server import RunningGateway, run_gateway
from tests.plugins.batches.batch_client import Batches, configuration


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """One gateway for the tests of a file."""
    folder = tmp_path_factory.mktemp("batches")
    small = {"batches": {"max_lines": 2000, "max_line_bytes": 20_000, "max_output_bytes": 300_000}}
    with run_gateway(configuration(folder / "files", apis=small), folder) as gateway:
        yield gateway


@pytest.fixture
def ada(serving: RunningGateway) -> Iterator[Batches]:
    with serving.client(api_key="key-ada") as client:
        yield Batches(client)


@pytest.fixture
def bob(serving: RunningGateway) -> Iterator[Batches]:
    with serving.client(api_key="key-bob") as client:
        yield Batches(client)
